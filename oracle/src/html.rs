//! A report as one page that needs nothing else: no script, no font, no picture from elsewhere.

use crate::greedy::Choices;
use crate::report::{ExecutionReport, Report, Verdict};
use std::fmt::Write;

/// The width and height of a plot in its own units; it is shown as wide as the page.
const PLOT: (f64, f64) = (640.0, 260.0);
/// Room for the labels of the axes.
const MARGIN: (f64, f64) = (56.0, 30.0);
/// A colour for each execution, told apart by the colour-blind too.
const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7"];

const STYLE: &str = "\
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem;color:#1a1a1a;background:#fff}\
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}\
.pass,.mismatch{padding:.6rem 1rem;border-radius:.4rem;font-weight:600}\
.pass{background:#d9f2e3;color:#0b5c2e}.mismatch{background:#fbe0dc;color:#8c1d10}\
.scroll{overflow-x:auto}table{border-collapse:collapse;font-size:.875rem}\
td,th{padding:.25rem .6rem;text-align:right;border-bottom:1px solid #ddd;white-space:nowrap}\
td:first-child,th:first-child{text-align:left}tr.over,td.over{background:#fbe0dc}\
svg{width:100%;height:auto}svg text{font:11px system-ui,sans-serif;fill:#444}\
details{margin:.5rem 0}summary{cursor:pointer;padding:.4rem 0}code{font-size:.875em}\
@media(prefers-color-scheme:dark){body{background:#16181b;color:#e6e6e6}td,th{border-color:#333}\
svg text{fill:#bbb}.pass{background:#113a24;color:#a6e6c0}.mismatch,tr.over,td.over{background:#4a1a14;color:#ffc9c1}}";

/// The page of a report.
pub fn page(report: &Report) -> String {
    let mut page = String::new();
    let (class, verdict) = match report.verdict {
        Verdict::Pass => (
            "pass",
            "Pass: every execution is within what rounding explains.",
        ),
        Verdict::Mismatch => (
            "mismatch",
            "Mismatch: an execution is further from the interpreter than rounding explains.",
        ),
    };
    let model = escaped(&report.model);
    let _ = write!(
        page,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{model}: {}</title><style>{STYLE}</style></head><body>\
         <h1>{model}</h1><p>{}, held against the interpreter in f64.</p>\
         <p class=\"{class}\" id=\"verdict\">{verdict}</p>",
        match report.verdict {
            Verdict::Pass => "pass",
            Verdict::Mismatch => "mismatch",
        },
        report.size(),
    );
    findings(&mut page, report);
    executions(&mut page, report);
    if by_depth(report) {
        page.push_str("<h2>Error by depth, as a share of its budget</h2>");
        legend(&mut page, report);
        depth(&mut page, report);
    }
    page.push_str("<h2>Positions by the divergence of their next-token distribution</h2>");
    legend(&mut page, report);
    histogram(&mut page, report);
    for execution in &report.executions {
        tables(&mut page, execution);
    }
    page.push_str("</body></html>\n");
    page
}

fn findings(page: &mut String, report: &Report) {
    for finding in &report.findings {
        let _ = write!(
            page,
            "<p><strong>{}</strong> is wrong at <code>{}</code>: relative error {:.2e}, budget {:.2e}. ",
            escaped(&finding.execution),
            escaped(&finding.region),
            finding.measurement.distance.relative_rms,
            finding.measurement.budget,
        );
        let _ = match (&finding.element, finding.local) {
            (Some(element), true) => write!(
                page,
                "The fault is in node <code>{}</code> ({}): element {} is {} and not {} ± {:.1e}, given what the same \
                 execution computed before it.</p>",
                escaped(&finding.node),
                escaped(&finding.op),
                element.index,
                element.found,
                element.expected,
                element.bound,
            ),
            _ => write!(
                page,
                "No node is wrong by itself: the error is inherited.</p>"
            ),
        };
        for remark in finding.remarks() {
            let _ = write!(page, "<p>{}.</p>", escaped(&remark));
        }
    }
    for execution in &report.executions {
        if let Some(fault) = execution.choices.as_ref().and_then(|c| c.fault.as_ref()) {
            let name = escaped(&execution.execution);
            let _ = write!(page, "<p><strong>{name}</strong> chose {fault}.</p>");
        }
    }
}

/// What stands in a row of the table of executions.
type Cell = fn(&ExecutionReport) -> String;

/// The rows of the table of executions, which are a column each: so it is as wide as a phone.
const ROWS: [(&str, Cell); 16] = [
    ("worst share of a budget", |e| {
        format!("{:.1}%", worst(e) * 100.0)
    }),
    ("relative error of the logits", |e| {
        let logits = e.measurements.last();
        format!(
            "{:.2e}",
            logits.map_or(f64::NAN, |m| m.distance.relative_rms)
        )
    }),
    ("KL divergence, mean", |e| {
        format!("{:.1e}", e.distribution.mean_divergence)
    }),
    ("KL divergence, 99 of 100 below", |e| {
        format!("{:.1e}", e.distribution.p99_divergence)
    }),
    ("KL divergence, largest", |e| {
        format!("{:.1e}", e.distribution.max_divergence)
    }),
    ("same most likely token", |e| {
        format!("{:.2}%", e.distribution.same_top * 100.0)
    }),
    ("first position with another", |e| {
        let first = e.distribution.divergence;
        first.map_or("none".into(), |first| first.position.to_string())
    }),
    ("overlap of the five most likely", |e| {
        format!("{:.2}%", e.distribution.top5_overlap * 100.0)
    }),
    ("perplexity", |e| {
        format!("{:.5}", e.distribution.perplexity)
    }),
    ("95% of texts like it", |e| {
        let [low, high] = e.distribution.perplexity_interval;
        format!("{low:.2} to {high:.2}")
    }),
    ("perplexity of the interpreter", |e| {
        format!("{:.5}", e.distribution.reference_perplexity)
    }),
    ("their ratio, 1 ±", |e| {
        format!("{:.1e}", e.distribution.ratio_interval)
    }),
    ("tokens chosen", |e| chosen(e, |c| c.tokens.to_string())),
    ("of these near ties", |e| {
        chosen(e, |c| c.near_ties.to_string())
    }),
    ("first that the interpreter would not choose", |e| {
        chosen(e, |c| {
            let first = c.first.as_ref();
            first.map_or("none".into(), |first| first.position.to_string())
        })
    }),
    ("seconds", |e| format!("{:.1}", e.seconds)),
];

fn worst(execution: &ExecutionReport) -> f64 {
    let shares = execution.measurements.iter().map(|m| m.share());
    shares.fold(0.0, f64::max)
}

/// What an execution chose, where it was asked to.
fn chosen(execution: &ExecutionReport, cell: fn(&Choices) -> String) -> String {
    execution.choices.as_ref().map_or(String::new(), cell)
}

fn executions(page: &mut String, report: &Report) {
    page.push_str("<h2>Executions</h2><div class=\"scroll\"><table><tr><th></th>");
    for execution in &report.executions {
        let _ = write!(page, "<th>{}</th>", escaped(&execution.execution));
    }
    page.push_str("</tr>");
    for (index, (name, cell)) in ROWS.iter().enumerate() {
        if report.executions.iter().all(|e| cell(e).is_empty()) {
            continue;
        }
        let _ = write!(page, "<tr><td>{name}</td>");
        for execution in &report.executions {
            let over = index == 0 && worst(execution) > 1.0;
            let class = if over { " class=\"over\"" } else { "" };
            let _ = write!(page, "<td{class}>{}</td>", escaped(&cell(execution)));
        }
        page.push_str("</tr>");
    }
    page.push_str("</table></div>");
}

fn legend(page: &mut String, report: &Report) {
    page.push_str("<p>");
    for (execution, colour) in report.executions.iter().zip(COLOURS.iter().cycle()) {
        let _ = write!(
            page,
            "<span style=\"color:{colour}\">■</span> {} ",
            escaped(&execution.execution)
        );
    }
    page.push_str("</p>");
}

/// A plot's frame, with labels at the given heights from 0 to 1.
fn frame(page: &mut String, title: &str, labels: &[(f64, String)]) {
    let (width, height) = PLOT;
    let _ = write!(
        page,
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">",
        escaped(title)
    );
    for (share, label) in labels {
        let y = place(*share);
        let _ = write!(
            page,
            "<line x1=\"{}\" x2=\"{width}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#8884\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            MARGIN.0,
            MARGIN.0 - 6.0,
            y + 4.0,
            escaped(label)
        );
    }
}

/// The height of a share of the plot.
fn place(share: f64) -> f64 {
    PLOT.1 - MARGIN.1 - share * (PLOT.1 - MARGIN.1 - 10.0)
}

/// Whether layers were measured. Those of an artifact cannot be seen.
fn by_depth(report: &Report) -> bool {
    let measured = report.executions.iter().flat_map(|e| &e.measurements);
    measured.into_iter().any(|m| m.name.starts_with("hidden."))
}

fn depth(page: &mut String, report: &Report) {
    // From a ten-thousandth of the budget to a hundred budgets, by tens.
    let (low, high) = (-4.0, 2.0);
    let height = |share: f64| match share.is_finite() {
        true => ((share.max(1e-9).log10() - low) / (high - low)).clamp(0.0, 1.0),
        false => 1.0,
    };
    let labels: Vec<(f64, String)> = [-4, -3, -2, -1, 0, 1, 2]
        .into_iter()
        .map(|exponent| {
            let label = format!("{}%", 10f64.powi(exponent) * 100.0);
            ((f64::from(exponent) - low) / (high - low), label)
        })
        .collect();
    frame(page, "error by depth, as a share of its budget", &labels);
    let limit = place(height(1.0));
    let _ = write!(
        page,
        "<line x1=\"{}\" x2=\"{}\" y1=\"{limit:.1}\" y2=\"{limit:.1}\" stroke=\"#c00\" stroke-dasharray=\"6 4\"/>",
        MARGIN.0, PLOT.0
    );
    for (execution, colour) in report.executions.iter().zip(COLOURS.iter().cycle()) {
        let count = execution.measurements.len().max(2) as f64 - 1.0;
        let points: Vec<String> = execution
            .measurements
            .iter()
            .enumerate()
            .map(|(index, measurement)| {
                let x = MARGIN.0 + 4.0 + index as f64 / count * (PLOT.0 - MARGIN.0 - 12.0);
                format!("{x:.1},{:.1}", place(height(measurement.share())))
            })
            .collect();
        let _ = write!(
            page,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
            points.join(" ")
        );
    }
    let _ = write!(
        page,
        "<text x=\"{}\" y=\"{}\">first layer</text><text x=\"{}\" y=\"{}\" text-anchor=\"end\">logits</text></svg>",
        MARGIN.0,
        PLOT.1 - 8.0,
        PLOT.0,
        PLOT.1 - 8.0
    );
}

fn histogram(page: &mut String, report: &Report) {
    let bins = report
        .executions
        .first()
        .map_or(0, |e| e.distribution.histogram.len());
    let counts = report
        .executions
        .iter()
        .flat_map(|e| &e.distribution.histogram);
    let most = counts.copied().max().unwrap_or(0).max(1);
    let labels = [(0.0, "0".to_string()), (1.0, most.to_string())];
    frame(page, "positions by divergence", &labels);
    let slot = (PLOT.0 - MARGIN.0) / bins.max(1) as f64;
    let bar = slot * 0.8 / report.executions.len().max(1) as f64;
    for (number, (execution, colour)) in report
        .executions
        .iter()
        .zip(COLOURS.iter().cycle())
        .enumerate()
    {
        for (bin, &count) in execution.distribution.histogram.iter().enumerate() {
            if count == 0 {
                continue;
            }
            let x = MARGIN.0 + bin as f64 * slot + number as f64 * bar;
            let top = place(count as f64 / most as f64);
            let _ = write!(
                page,
                "<rect x=\"{x:.1}\" y=\"{top:.1}\" width=\"{bar:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                place(0.0) - top
            );
        }
    }
    for bin in (0..bins).step_by(4) {
        let label = match bin {
            0 => "≤1e-16".to_string(),
            bin => format!("1e{}", bin as i64 - 16),
        };
        let x = MARGIN.0 + (bin as f64 + 0.4) * slot;
        let _ = write!(
            page,
            "<text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{label}</text>",
            PLOT.1 - 8.0
        );
    }
    page.push_str("</svg>");
}

fn tables(page: &mut String, execution: &ExecutionReport) {
    let name = escaped(&execution.execution);
    let _ = write!(
        page,
        "<details><summary>{name}: outputs</summary><div class=\"scroll\"><table><tr><th>output</th><th>relative error</th>\
         <th>budget</th><th>share</th><th>largest difference</th><th>at element</th></tr>"
    );
    for m in &execution.measurements {
        let _ = write!(
            page,
            "<tr{}><td><code>{}</code></td><td>{:.2e}</td><td>{:.2e}</td><td>{:.1}%</td><td>{:.2e}</td><td>{}</td></tr>",
            if m.within() { "" } else { " class=\"over\"" },
            escaped(&m.name),
            m.distance.relative_rms,
            m.budget,
            m.share() * 100.0,
            m.distance.max_absolute,
            m.distance.worst_index,
        );
    }
    page.push_str("</table></div></details>");
    if execution.nodes.is_empty() {
        return;
    }
    let _ = write!(
        page,
        "<details{}><summary>{name}: every node by itself</summary><div class=\"scroll\"><table><tr><th>node</th><th>op</th>\
         <th>worst element, share of its bound</th></tr>",
        if execution.nodes.iter().any(|n| n.share > 1.0) {
            " open"
        } else {
            ""
        }
    );
    for node in &execution.nodes {
        let _ = write!(
            page,
            "<tr{}><td><code>{}</code></td><td>{}</td><td>{:.1}%</td></tr>",
            if node.share > 1.0 {
                " class=\"over\""
            } else {
                ""
            },
            escaped(&node.name),
            escaped(&node.op),
            node.share * 100.0,
        );
    }
    page.push_str("</table></div></details>");
}

/// Text as HTML shows it.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

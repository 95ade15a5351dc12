//! The page of a report: complete in itself, and shown by a browser as narrow as a phone.

use mlxcel_frontend::Model;
use mlxcel_oracle::{Backend, Fault, Verdict, VerifyOptions, html, verify_model};
use std::process::Command;

/// Names of the browser, and of the variable that gives another.
const BROWSERS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];
const BROWSER: &str = "CHROMIUM";

fn page(fault: Option<Fault>, verdict: Verdict) -> String {
    let model = Model::load(&mlxcel_test_support::golden("llama")).unwrap();
    let options = VerifyOptions {
        tokens: Some((1..17).collect()),
        backends: vec![Backend::Mlx, Backend::Kernels],
        nodes: true,
        fault,
        ..VerifyOptions::default()
    };
    let report = verify_model(&model, &options, &|_| {}).unwrap();
    assert_eq!(report.verdict, verdict, "{report}");
    html::page(&report)
}

fn faulty() -> String {
    let fault = Fault {
        backend: Backend::Kernels,
        weight: "model.layers.1.mlp.up_proj.weight".into(),
    };
    page(Some(fault), Verdict::Mismatch)
}

#[test]
fn the_page_needs_nothing_else() {
    let (good, bad) = (page(None, Verdict::Pass), faulty());
    for page in [&good, &bad] {
        for link in ["http:", "https:", "src=", "url(", "@import", "<script"] {
            assert!(!page.contains(link), "the page has {link}");
        }
        assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
        assert!(page.matches("<svg").count() >= 2 && page.contains("<polyline"));
        assert_eq!(page.matches("<details").count(), 4);
    }
    assert!(good.contains("class=\"pass\"") && !good.contains("class=\"over\""));
    assert!(bad.contains("class=\"mismatch\"") && bad.contains("<code>layers.1.up</code>"));
}

/// The headings of a page, which do not depend on the machine as its numbers do.
fn headings(page: &str) -> Vec<&str> {
    let parts = page.split("<h2>").skip(1);
    parts
        .filter_map(|part| part.split("</h2>").next())
        .collect()
}

/// The book shows a page that passes and one that fails.
#[test]
fn the_book_has_an_example_of_each() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/src/numerics/examples");
    for (name, page, mark) in [
        ("pass", page(None, Verdict::Pass), "class=\"pass\""),
        ("mismatch", faulty(), "class=\"mismatch\""),
    ] {
        let file = std::path::Path::new(folder).join(format!("{name}.html"));
        if std::env::var_os("MLXCEL_BLESS").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&file, &page).unwrap();
        }
        let kept = std::fs::read_to_string(&file).unwrap();
        assert!(
            kept.contains(mark) && headings(&kept) == headings(&page),
            "{} is of another version; MLXCEL_BLESS=1 writes it",
            file.display()
        );
    }
}

/// A browser that runs, or `None`, with a word about it.
fn browser() -> Option<String> {
    let given = std::env::var(BROWSER).ok();
    let names = given.as_deref().into_iter().chain(BROWSERS);
    let runs = |name: &&str| {
        let version = Command::new(name).arg("--version").output();
        version.is_ok_and(|output| output.status.success())
    };
    let found = names.into_iter().find(runs).map(str::to_string);
    if found.is_none() {
        eprintln!("skipped: there is no Chromium; install one, or set {BROWSER} to it");
    }
    found
}

/// Runs a browser on a page; what it prints, and the picture that it takes if it is told to.
fn shown(browser: &str, page: &str, size: [u32; 2], picture: bool) -> (String, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let [file, profile, image] =
        ["page.html", "profile", "page.png"].map(|name| folder.path().join(name));
    std::fs::write(&file, page).unwrap();
    let mut command = Command::new(browser);
    command.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
    ]);
    command.arg(format!("--window-size={},{}", size[0], size[1]));
    command.arg(format!("--user-data-dir={}", profile.display()));
    match picture {
        true => command.arg(format!("--screenshot={}", image.display())),
        false => command.arg("--dump-dom"),
    };
    let output = command
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let taken = std::fs::read(&image).unwrap_or_default();
    if picture && taken.is_empty() {
        panic!("no picture: {}", String::from_utf8_lossy(&output.stderr));
    }
    (String::from_utf8_lossy(&output.stdout).into(), taken)
}

#[test]
fn a_browser_shows_it() {
    let Some(browser) = browser() else { return };
    let page = faulty();
    for size in [[390, 1600], [1200, 1600]] {
        let (_, picture) = shown(&browser, &page, size, true);
        assert_eq!(&picture[..8], b"\x89PNG\r\n\x1a\n");
        let width = u32::from_be_bytes(picture[16..20].try_into().unwrap());
        // A browser's window has a smallest width.
        assert!((size[0]..=size[0].max(500)).contains(&width), "{width}");
        // An empty page of this size compresses to a few kilobytes.
        let bytes = picture.len();
        assert!(bytes > 20_000, "only {bytes} bytes: nothing is shown");
    }
}

/// What stands in the title once a browser has laid out the page in a frame as narrow as a phone: the page's
/// width, and for each plot how much of its own width and height its marks take.
const MEASURE: &str = "
    const page = frame.contentDocument;
    const plots = [...page.querySelectorAll('svg')].map(plot => {
        const whole = plot.getBoundingClientRect();
        const marks = [...plot.querySelectorAll('polyline, rect, circle')]
            .map(mark => mark.getBoundingClientRect()).filter(mark => mark.width * mark.height > 0);
        const span = (low, high) =>
            Math.max(...marks.map(mark => mark[high])) - Math.min(...marks.map(mark => mark[low]));
        const share = (size, whole) => Math.round(100 * size / whole);
        return share(span('left', 'right'), whole.width) + 'x' + share(span('top', 'bottom'), whole.height);
    });
    document.title = ['width', page.documentElement.scrollWidth, ...plots, 'end'].join(' ');
";

/// As narrow as a phone, the page is not wider than its window and its plots are not empty.
#[test]
fn a_phone_shows_it() {
    let Some(browser) = browser() else { return };
    for page in [page(None, Verdict::Pass), faulty()] {
        let quoted = page.replace('&', "&amp;").replace('"', "&quot;");
        let frame = format!(
            "<!doctype html><title>not shown</title><script>const measure = frame => {{{MEASURE}}};</script>\
             <iframe style=\"width:390px;height:900px;border:0\" onload=\"measure(this)\" srcdoc=\"{quoted}\">\
             </iframe>"
        );
        let (dom, _) = shown(&browser, &frame, [800, 1000], false);
        let title = dom
            .split_once("<title>")
            .and_then(|(_, rest)| rest.split_once("</title>"))
            .map_or("", |(title, _)| title);
        let mut words = title.split(' ');
        let start = [words.next(), words.next()];
        assert_eq!(start, [Some("width"), Some("390")], "{title}");
        let plots: Vec<&str> = words.take_while(|&word| word != "end").collect();
        assert!(plots.len() >= 2, "{title}");
        for plot in plots {
            let (width, height) = plot.split_once('x').unwrap_or_default();
            let share = |text: &str| text.parse::<u32>().unwrap_or(0);
            assert!(
                share(width) > 1 && share(height) > 1,
                "an empty plot: {title}"
            );
        }
    }
}

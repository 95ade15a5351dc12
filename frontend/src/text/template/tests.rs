use super::*;
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::path::Path;

fn check(source: &str, expect: Result<&str, &str>) {
    let variables = json!({
        "messages": [{"role": "user", "content": " Hé <b> "}],
        "tool": {"name": "f", "arguments": {"b": [1, 2.5], "a": null}},
    });
    let result = Template::new(source).and_then(|template| {
        template.render(variables).map_err(|failure| match failure {
            Failure::Raised(message) | Failure::Other(message) => message,
        })
    });
    match (result, expect) {
        (Ok(text), Ok(expect)) => assert_eq!(text, expect, "{source}"),
        (Err(error), Err(expect)) => assert!(error.contains(expect), "{source}: {error}"),
        (result, _) => panic!("{source}: {result:?}"),
    }
}

#[test]
fn templates_run_as_in_transformers() {
    check("{{ messages[0].content.strip() }}", Ok("Hé <b>"));
    check("{{ messages[0]['content'].split('<')[0] }}", Ok(" Hé "));
    check("{{ messages | length }}{{ nothing }}", Ok("1"));
    // Blocks take the line's indentation and end with them, as transformers sets Jinja up.
    check("a\n  {% if true %}\nb\n  {% endif %}\nc", Ok("a\nb\nc"));
    check(
        "{{ tool | tojson }}",
        Ok(r#"{"name": "f", "arguments": {"b": [1, 2.5], "a": null}}"#),
    );
    check("{{ messages[0].content | tojson }}", Ok("\" Hé <b> \""));
    check("{{ [1] | tojson(indent=2) }}", Ok("[\n  1\n]"));
    check(
        "{% for m in messages %}{% generation %}x{% endgeneration %}{% endfor %}",
        Ok("x"),
    );
    check(
        "{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}",
        Ok("01"),
    );
    check(
        "{% set ns = namespace(n=0) %}{% set ns.n = 3 %}{{ ns.n }}",
        Ok("3"),
    );
    check("{{ strftime_now('%%') }}", Ok("%"));
    check(
        "{% if strftime_now('%Y-%m-%d %d %b %Y %H:%M:%S %A %B %j')|length > 40 %}y{% endif %}",
        Ok("y"),
    );
    check(
        "{{ raise_exception('roles must alternate') }}",
        Err("roles must alternate"),
    );
    check(
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        Err("fuel"),
    );
    check("\n{% if %}", Err("line 2"));
}

#[test]
fn json_is_that_of_python() {
    let of = |value: &str, expect: &str| {
        let source = format!("{{{{ {value} | tojson(sort_keys=true) }}}}");
        check(&source, Ok(expect));
    };
    of("[true, none, nothing]", "[true, null, null]");
    of("[1, 1.0, -2.5e300, 1e5]", "[1, 1.0, -2.5e+300, 100000.0]");
    of("[1e400, -1e400]", "[Infinity, -Infinity]");
    of("[(1, 2), [], {}, [[]]]", "[[1, 2], [], {}, [[]]]");
    of(
        "{'b': 1, 'a': {'é\\n': range(3)}}",
        r#"{"a": {"é\n": [0, 1, 2]}, "b": 1}"#,
    );
    of("{2: 1, 1: 2}", r#"{"1": 2, "2": 1}"#);
    of("{none: 1}", r#"{"null": 1}"#);
    of("{true: 1}", r#"{"true": 1}"#);
    of("{1.5: 1}", r#"{"1.5": 1}"#);
    of("tool.arguments", r#"{"a": null, "b": [1, 2.5]}"#);
    check("{{ {[1]: 1} | tojson }}", Err("a key may not be"));
}

/// What takes forty steps to make and would take a terabyte to print.
#[test]
fn lists_of_lists_are_printed_no_longer_than_a_rendering_may() {
    let doubled = "{% set a = ['é\\n', 1.5] %}".to_string() + &"{% set a = [a, a] %}".repeat(40);
    let of = |printed: &str| check(&format!("{doubled}{printed}"), Err("fuel"));
    of("{{ (a, {'a': a}) }}");
    of("{{ a | tojson(indent=64) }}");
    of("{{ {'a': a} | tojson(sort_keys=true) }}");
    of("{% set b %}{{ a }}{% endset %}");
}

#[test]
fn texts_in_lists_are_quoted_as_in_python() {
    let check = |text: &str, expect: &str| {
        let template = Template::new("{{ [text] }}").expect("a template");
        let printed = template.render(json!({ "text": text }));
        assert_eq!(printed, Ok(format!("[{expect}]")));
    };
    check("a", "'a'");
    check("it's", "\"it's\"");
    check("it's \"x\"", "'it\\'s \"x\"'");
    check("\n\t\\\u{1}\u{7f}", "'\\n\\t\\\\\\x01\\x7f'");
    check("é 日 😀", "'é 日 😀'");
    check(
        "\u{a0}\u{ad}\u{200b}\u{2028}\u{e000}\u{e0001}",
        "'\\xa0\\xad\\u200b\\u2028\\ue000\\U000e0001'",
    );
    check("e\u{301}", "'e\u{301}'");
}

/// A namespace that holds itself would end the process when it is compared or printed.
#[test]
fn no_namespace_holds_itself() {
    let of = |set: &str, expect: Result<&str, &str>| {
        let source = format!(
            "{{% set ns = namespace(a=0, b='é') %}}{set}{{% set ns.c = {{ns.a: 1}} %}}{{{{ ns.a }}}}"
        );
        check(&source, expect);
    };
    let refused = Err("a namespace cannot be put");
    of("{% set ns.a = ns %}", refused);
    of("{%- set ns.a=[1, {'x': (ns, 2)}] -%}", refused);
    of("{% set ns.a = {ns: 1} %}", refused);
    of("{% set b, ns.a = 1, ns %}", refused);
    of("{% set x = ns %}{% set ns.a = x if x else 1 %}", refused);
    of(
        "{% macro f() %}{{ ns }}{% endmacro %}{% set ns.a = f %}",
        Err("a macro cannot"),
    );
    // What is computed from it is what it is then.
    of("{% set ns.a = ns | items %}", Ok("[['a', 0], ['b', 'é']]"));
    of(
        "{% set ns.a = [ns | items | map('first')] %}",
        Ok("[['a', 'b']]"),
    );
    of("{% set ns.a = dict(ns) %}", Ok("{'a': 0, 'b': 'é'}"));
    of("{% set ns.a = ns | list %}", Ok("['a', 'b']"));
    of(
        "{% set ns.a = '=%}' ~ ns.b %}{# {% set ns.a = ns %} #}",
        Ok("=%}é"),
    );
    of(
        "{% set ns.a %}x{% endset %}{% raw %}{% set ns.a = ns %}{% endraw %}",
        Ok("{% set ns.a = ns %}x"),
    );
    of("{% set ns.a = 1, 2 %}", Ok("(1, 2)"));
    of("{% set ns.a = nothing %}", Ok(""));
    of(
        "{% set ns.a = messages[0].content | trim | upper %}",
        Ok("HÉ <B>"),
    );
}

/// Published templates, conversations, and the start of the sha256 of what transformers renders.
#[derive(serde::Deserialize)]
struct Published {
    variables: serde_json::Map<String, Json>,
    conversations: BTreeMap<String, serde_json::Map<String, Json>>,
    templates: BTreeMap<String, BTreeMap<String, String>>,
}

/// Published templates do not travel with the repository: `MLXCEL_TEMPLATES` names a folder with
/// `NAME.jinja` for each name in `tests/templates/published.json`.
#[test]
#[ignore = "needs MLXCEL_TEMPLATES, see tests/templates/README.md"]
fn published_templates_render_as_in_transformers() {
    let folder = std::env::var_os("MLXCEL_TEMPLATES").expect("MLXCEL_TEMPLATES");
    let published: Published =
        serde_json::from_str(include_str!("../../../tests/templates/published.json"))
            .expect("recorded renderings");
    let mut found = Vec::new();
    for (name, expected) in &published.templates {
        let file = Path::new(&folder).join(format!("{name}.jinja"));
        let source = std::fs::read_to_string(file).expect("a template");
        let template = match Template::at(&source, noon) {
            Ok(template) => template,
            Err(error) => {
                found.push(format!("{name}: {error}"));
                continue;
            }
        };
        for (conversation, expected) in expected {
            let mut variables = published.variables.clone();
            variables.extend(published.conversations[conversation].clone());
            let own = match crate::text::conversation::render(&template, variables) {
                Ok(text) => {
                    if let Some(folder) = std::env::var_os("MLXCEL_RENDERED") {
                        let file = Path::new(&folder).join(format!("{name}@{conversation}"));
                        std::fs::write(file, &text).expect("a folder to write to");
                    }
                    digest(&text)
                }
                Err(Failure::Raised(_)) => "raised".into(),
                Err(Failure::Other(reason)) => format!("failed: {reason}"),
            };
            // Where Python fails on a type, rendering something is no fault.
            if &own != expected && expected != "failed" {
                found.push(format!("{name} {conversation}: {own}, expected {expected}"));
            }
        }
    }
    assert!(found.is_empty(), "{}:\n{}", found.len(), found.join("\n"));
}

fn digest(text: &str) -> String {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The time of the recorded renderings.
fn noon() -> jiff::Zoned {
    let time = jiff::civil::date(2024, 7, 5).at(9, 8, 7, 12_345_000);
    time.to_zoned(jiff::tz::TimeZone::UTC).expect("a time")
}

/// Templates, and what transformers makes of them.
#[derive(serde::Deserialize)]
struct Rendered {
    variables: serde_json::Map<String, Json>,
    cases: Vec<(String, Json)>,
}

#[test]
fn templates_render_as_recorded() {
    let rendered: Rendered =
        serde_json::from_str(include_str!("../../../tests/templates/rendered.json"))
            .expect("recorded renderings");
    let mut found = Vec::new();
    for (source, expect) in &rendered.cases {
        let variables = rendered.variables.clone();
        let own = match Template::new(source) {
            Ok(template) => crate::text::conversation::render(&template, variables),
            Err(error) => Err(Failure::Other(error)),
        };
        let right = match (&own, expect) {
            (Ok(text), Json::String(expect)) => text == expect,
            (Err(Failure::Raised(message)), expect) => expect["raised"] == message.as_str(),
            (Err(Failure::Other(_)), expect) => expect["failed"].is_string(),
            (Ok(_), _) => false,
        };
        if !right {
            found.push(format!("{source}\n  {own:?}\n  {expect}"));
        }
    }
    assert!(
        found.is_empty(),
        "{} differ:\n{}",
        found.len(),
        found.join("\n")
    );
}

/// Conversations through templates, as `tests/template_cases.py` records them.
#[derive(serde::Deserialize)]
struct Matrix {
    variables: serde_json::Map<String, Json>,
    conversations: BTreeMap<String, serde_json::Map<String, Json>>,
    templates: BTreeMap<String, String>,
    rendered: BTreeMap<String, BTreeMap<String, Json>>,
}

#[test]
fn conversations_render_as_recorded() {
    let matrix: Matrix = serde_json::from_str(include_str!("../../../tests/templates/matrix.json"))
        .expect("recorded renderings");
    let mut found = Vec::new();
    for (name, source) in &matrix.templates {
        let template = Template::at(source, noon).unwrap_or_else(|error| panic!("{name}: {error}"));
        for (case, expect) in &matrix.rendered[name] {
            let mut variables = matrix.variables.clone();
            variables.extend(matrix.conversations[case].clone());
            let own = crate::text::conversation::render(&template, variables);
            let right = match (&own, expect) {
                (Ok(text), Json::String(expect)) => text == expect,
                // Where Python fails on a type, rendering something is no fault.
                (_, expect) if expect["failed"].is_string() => true,
                (Err(Failure::Raised(message)), expect) => expect["raised"] == message.as_str(),
                _ => false,
            };
            if !right {
                found.push(format!("{name}, {case}\n  {own:?}\n  {expect}"));
            }
        }
    }
    let count = found.len();
    assert!(found.is_empty(), "{count} differ:\n{}", found.join("\n"));
}

//! Chat templates.

use crate::change::{change, changes};
use crate::fuzzing::{Bound, fuzz};
use crate::texts::fixture;
use mlxcel_frontend::Text;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};
use std::cell::RefCell;

pub(crate) const BOUND: Bound = Bound {
    base: 512 << 20,
    each: 128,
};

const SOURCES: &[&str] = &[
    "{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}{% if not loop.last %},{% endif %}{% endfor %}",
    "{% macro f(x, y=1) %}{{ x }}{{ y }}{% endmacro %}{% set ns = namespace(a=0) %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ f(ns.a) }}{{ messages | tojson(indent=2) }}",
    "{%- if messages[0].role == 'system' -%}{% generation %}{{ raise_exception('x') }}{% endgeneration %}{%- else -%}{{ strftime_now('%d %b %Y') }}{{ 'a' * 3 ~ [1, 2][::-1] }}{%- endif -%}",
];

/// An expression of the template language.
fn expression() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        select(vec![
            "messages",
            "m",
            "x",
            "ns",
            "ns.a",
            "loop",
            "loop.index",
            "tools",
            "nothing",
            "none",
            "true",
            "[]",
            "{}",
            "'a'",
            "'é%d {}'",
            "\"\"",
            "0",
            "-1",
            "3",
            "999999999",
            "9223372036854775807",
            "1e308",
            "range(9)",
            "bos_token",
        ])
        .prop_map(String::from),
        (0..9999u32).prop_map(|number| number.to_string()),
    ];
    leaf.prop_recursive(5, 40, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        let operator = select(vec![
            "+", "-", "*", "/", "//", "%", "**", "~", "==", "<", "in", "not in", "and", "or", "is",
        ]);
        let filter = select(vec![
            "length",
            "trim",
            "upper",
            "list",
            "first",
            "last",
            "join",
            "join(x)",
            "tojson",
            "tojson(indent=4)",
            "tojson(indent=x)",
            "sort",
            "reverse",
            "unique",
            "map('upper')",
            "map(attribute='role')",
            "int",
            "float",
            "string",
            "indent(x)",
            "indent(40)",
            "replace('a', x)",
            "default(x)",
            "items",
            "dictsort",
            "batch(3)",
            "selectattr('role', 'equalto', x)",
            "groupby('role')",
            "format(x)",
            "sum",
            "slice(3)",
            "urlencode",
            "abs",
            "round(x)",
            "center(x)",
            "wordwrap(x)",
            "tojson | safe",
            "min",
            "max",
            "attr('role')",
            "pprint",
            "lines",
        ]);
        let method = select(vec![
            "split",
            "strip",
            "lstrip",
            "rstrip",
            "replace",
            "startswith",
            "endswith",
            "upper",
            "items",
            "keys",
            "get",
            "values",
            "join",
            "format",
            "title",
            "count",
            "append",
            "pop",
            "splitlines",
            "zfill",
            "center",
            "update",
            "find",
        ]);
        let function = select(vec![
            "range",
            "namespace",
            "dict",
            "raise_exception",
            "strftime_now",
            "f",
            "joiner",
            "cycler",
            "lipsum",
            "debug",
        ]);
        let is = select(vec![
            "defined",
            "string",
            "mapping",
            "iterable",
            "sequence",
            "number",
            "none",
            "odd",
            "divisibleby(3)",
            "sameas(x)",
        ]);
        prop_oneof![
            (two.clone(), operator).prop_map(|((a, b), by)| format!("({a} {by} {b})")),
            (inner.clone(), filter).prop_map(|(a, filter)| format!("({a} | {filter})")),
            (inner.clone(), is).prop_map(|(a, test)| format!("({a} is {test})")),
            two.clone().prop_map(|(a, b)| format!("{a}[{b}]")),
            (two.clone(), inner.clone()).prop_map(|((a, b), c)| format!("{a}[{b}:{c}]")),
            (two.clone(), inner.clone()).prop_map(|((a, b), c)| format!("({a} if {b} else {c})")),
            two.clone().prop_map(|(a, b)| format!("[{a}, {b}]")),
            two.clone()
                .prop_map(|(a, b)| format!("{{'a': {a}, {b}: x}}")),
            (two, method).prop_map(|((a, b), name)| format!("({a}).{name}({b})")),
            (inner, function).prop_map(|(a, name)| format!("{name}({a})")),
        ]
    })
}

/// A template made of blocks.
fn template() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        "[a-zé \n]{0,6}",
        expression().prop_map(|e| format!("{{{{ {e} }}}}")),
        expression().prop_map(|e| format!("{{%- set x = {e} -%}}")),
        expression().prop_map(|e| format!("{{% set ns.a = {e} %}}")),
        Just("{% break %}".to_string()),
    ];
    let block = leaf.prop_recursive(4, 30, 3, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            two.clone().prop_map(|(a, b)| a + &b),
            (expression(), two)
                .prop_map(|(e, (a, b))| format!("{{% if {e} %}}{a}{{%- else %}}{b}{{% endif %}}")),
            (expression(), inner.clone())
                .prop_map(|(e, a)| format!("{{% for m in {e} %}}{a}{{% endfor %}}")),
            inner
                .clone()
                .prop_map(|a| format!("{{% for x in range(99) recursive %}}{a}{{% endfor %}}")),
            inner
                .clone()
                .prop_map(|a| format!("{{% generation %}}{a}{{% endgeneration %}}")),
            inner
                .clone()
                .prop_map(|a| format!("{{% macro f(x, y=1) %}}{a}{{% endmacro %}}")),
            inner
                .clone()
                .prop_map(|a| format!("{{% filter upper %}}{a}{{% endfilter %}}")),
            inner.prop_map(|a| format!("{{% set x %}}{a}{{% endset %}}")),
        ]
    });
    block.prop_map(|block| format!("{{% set ns = namespace(a=0) %}}{block}"))
}

pub(crate) fn variables() -> Map<String, Value> {
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a\nb"}]},
        {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"é": [1, 2.5]}}}]},
    ]);
    let mut variables = Map::new();
    variables.insert("messages".into(), messages);
    variables.insert(
        "tools".into(),
        json!([{"type": "function", "function": {"name": "f"}}]),
    );
    variables.insert("add_generation_prompt".into(), true.into());
    variables
}

#[test]
fn templates() {
    let damaged = (select(SOURCES), changes()).prop_map(|(source, list)| {
        let mut bytes = source.as_bytes().to_vec();
        change(&mut bytes, &list);
        String::from_utf8_lossy(&bytes).into_owned()
    });
    let sources = prop_oneof![1 => damaged, 3 => template()];
    let text = RefCell::new(Text::from_folder(&fixture("bytes-qwen2")).expect("a tokenizer"));
    fuzz("template", BOUND, sources, |source, meter| {
        let mut text = text.borrow_mut();
        let given = variables();
        meter.hold(source.len(), || {
            text.set_template(&source).is_ok() && text.render(given.clone()).is_ok()
        })
    });
}

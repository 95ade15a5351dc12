//! Values as Python prints them where the engine does otherwise: large and small numbers, and the texts in
//! lists and mappings.

use super::bounded::Bounded;
use super::json::float;
use super::plain::is_stored;
use minijinja::value::{ObjectRepr, Value, ValueKind};
use minijinja::{Error, Output, State, escape_formatter};
use regex::Regex;
use std::fmt::Write;
use std::sync::LazyLock;

/// What Python does not print as it is.
static HIDDEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{C}\p{Z}--[ ]]$").ok());

/// Writes `value` into `out`.
pub(super) fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match prints_otherwise(value) {
        true => write(&mut Bounded::new(out, state), value),
        false => escape_formatter(out, state, value),
    }
}

fn prints_otherwise(value: &Value) -> bool {
    let stored = |value: &Value| {
        value
            .as_object()
            .is_some_and(|object| is_stored(value, object))
    };
    is_float(value) || stored(value)
}

fn is_float(value: &Value) -> bool {
    value.kind() == ValueKind::Number && !value.is_integer()
}

fn write(to: &mut Bounded<impl Write>, value: &Value) -> Result<(), Error> {
    if let Some(text) = value.as_str() {
        return quote(to, text);
    }
    if is_float(value) {
        let text = f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float);
        return to.push_str(&text);
    }
    let object = value.as_object().filter(|object| is_stored(value, object));
    let Some(object) = object else {
        return to.push_str(&value.to_string());
    };
    let [open, close] = match object.repr() {
        ObjectRepr::Map => ["{", "}"],
        _ if value.is_tuple() => ["(", ")"],
        _ => ["[", "]"],
    };
    let separator = |count: usize| if count > 0 { ", " } else { "" };
    to.push_str(open)?;
    let mut count = 0;
    if object.repr() == ObjectRepr::Map {
        for (name, value) in object.try_iter_pairs().into_iter().flatten() {
            to.push_str(separator(count))?;
            write(to, &name)?;
            to.push_str(": ")?;
            write(to, &value)?;
            count += 1;
        }
    } else {
        for item in object.try_iter().into_iter().flatten() {
            to.push_str(separator(count))?;
            write(to, &item)?;
            count += 1;
        }
    }
    if value.is_tuple() && count == 1 {
        to.push_str(",")?;
    }
    to.push_str(close)
}

/// A text with the quotes and escapes of Python's `repr`.
fn quote(to: &mut Bounded<impl Write>, text: &str) -> Result<(), Error> {
    let mark = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    to.push(mark)?;
    for c in text.chars() {
        match c {
            '\n' => to.push_str("\\n")?,
            '\r' => to.push_str("\\r")?,
            '\t' => to.push_str("\\t")?,
            c if c == mark || c == '\\' => {
                to.push('\\')?;
                to.push(c)?;
            }
            ' '..='~' => to.push(c)?,
            c if is_hidden(c) => to.push_str(&match u32::from(c) {
                code @ 0..=0xff => format!("\\x{code:02x}"),
                code @ 0x100..=0xffff => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            })?,
            c => to.push(c)?,
        }
    }
    to.push(mark)
}

fn is_hidden(c: char) -> bool {
    let hidden = HIDDEN.as_ref();
    hidden.is_some_and(|hidden| hidden.is_match(c.encode_utf8(&mut [0; 4])))
}

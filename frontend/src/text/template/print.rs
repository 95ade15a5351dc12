//! Values as Python prints them where the engine does otherwise: large and small numbers, and the texts in
//! lists and mappings.

use super::json::float;
use super::plain::is_stored;
use minijinja::value::{ObjectRepr, Value, ValueKind};
use minijinja::{Error, ErrorKind, Output, State, escape_formatter};
use regex::Regex;
use std::fmt::Write;
use std::sync::LazyLock;

/// The longest text that a value may make, which would cost all of a rendering's work.
const LONGEST: usize = super::FUEL as usize * 64;

/// What Python does not print as it is.
static HIDDEN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"^[\p{C}\p{Z}--[ ]]$").ok());

/// Writes `value` into `out`.
pub(super) fn format(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match prints_otherwise(value) {
        true => {
            let mut text = String::new();
            write(&mut text, value)?;
            Ok(out.write_str(&text)?)
        }
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

fn write(to: &mut String, value: &Value) -> Result<(), Error> {
    if to.len() > LONGEST {
        return Err(Error::from(ErrorKind::OutOfFuel));
    }
    if let Some(text) = value.as_str() {
        quote(to, text);
    } else if is_float(value) {
        to.push_str(&f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float));
    } else if !prints_otherwise(value) {
        to.push_str(&value.to_string());
    } else if let Some(object) = value.as_object() {
        let [open, close] = match object.repr() {
            ObjectRepr::Map => ["{", "}"],
            _ if value.is_tuple() => ["(", ")"],
            _ => ["[", "]"],
        };
        to.push_str(open);
        if object.repr() == ObjectRepr::Map {
            for (index, (name, value)) in object.try_iter_pairs().into_iter().flatten().enumerate()
            {
                to.push_str(if index > 0 { ", " } else { "" });
                write(to, &name)?;
                to.push_str(": ");
                write(to, &value)?;
            }
        } else {
            let mut count = 0;
            for item in object.try_iter().into_iter().flatten() {
                to.push_str(if count > 0 { ", " } else { "" });
                write(to, &item)?;
                count += 1;
            }
            to.push_str(if value.is_tuple() && count == 1 {
                ","
            } else {
                ""
            });
        }
        to.push_str(close);
    }
    Ok(())
}

/// A text with the quotes and escapes of Python's `repr`.
fn quote(to: &mut String, text: &str) {
    let mark = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    to.push(mark);
    for c in text.chars() {
        match c {
            '\n' => to.push_str("\\n"),
            '\r' => to.push_str("\\r"),
            '\t' => to.push_str("\\t"),
            c if c == mark || c == '\\' => to.extend(['\\', c]),
            ' '..='~' => to.push(c),
            c if is_hidden(c) => {
                let code = u32::from(c);
                // Writing to a text cannot fail.
                let _ = match code {
                    0..=0xff => write!(to, "\\x{code:02x}"),
                    0x100..=0xffff => write!(to, "\\u{code:04x}"),
                    _ => write!(to, "\\U{code:08x}"),
                };
            }
            c => to.push(c),
        }
    }
    to.push(mark);
}

fn is_hidden(c: char) -> bool {
    let hidden = HIDDEN.as_ref();
    hidden.is_some_and(|hidden| hidden.is_match(c.encode_utf8(&mut [0; 4])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_quoted_as_in_python() {
        let check = |text: &str, expect: &str| {
            let mut quoted = String::new();
            quote(&mut quoted, text);
            assert_eq!(quoted, expect);
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
}

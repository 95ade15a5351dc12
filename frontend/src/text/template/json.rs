//! `json.dumps` of Python, as transformers gives it to templates.

use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Error, ErrorKind};
use serde_json::Value as Json;
use std::fmt::Write;

/// The most spaces of an indentation: more would only make a short template print much.
const INDENT: i64 = 64;

/// How Python's `json.dumps` is asked to write.
struct Style {
    /// `None` writes all in one line.
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    ascii: bool,
    sort: bool,
}

/// The filter `tojson(ensure_ascii=false, indent=none, separators=none, sort_keys=false)`: no
/// escaping for HTML, characters beyond ASCII as they are, a space after `,` and `:`.
pub(super) fn to_json(value: Value, given: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let mut places = given.iter().cloned();
    let mut option = |name: &str| -> Result<Option<Value>, Error> {
        let place = places.next();
        let named: Option<Value> = named.get(name)?;
        let value = named.or(place);
        Ok(value.filter(|value| !value.is_none() && !value.is_undefined()))
    };
    let ascii = option("ensure_ascii")?.is_some_and(|flag| flag.is_true());
    let indent = option("indent")?;
    let separators = option("separators")?;
    let sort = option("sort_keys")?.is_some_and(|flag| flag.is_true());
    named.assert_all_used()?;
    let indent = indent.map(|indent| match indent.as_str() {
        Some(text) => text.chars().take(INDENT as usize).collect(),
        None => {
            let count = i64::try_from(indent).unwrap_or(0).clamp(0, INDENT);
            " ".repeat(count as usize)
        }
    });
    let [item, key] = match separators {
        None => [
            if indent.is_some() { "," } else { ", " }.into(),
            ": ".into(),
        ],
        Some(pair) => {
            let texts: Vec<String> = pair.try_iter()?.map(|text| text.to_string()).collect();
            <[String; 2]>::try_from(texts)
                .map_err(|_| invalid("separators must be two texts".into()))?
        }
    };
    let style = Style {
        indent,
        item_separator: item,
        key_separator: key,
        ascii,
        sort,
    };
    let json = serde_json::to_value(&value).map_err(|error| invalid(error.to_string()))?;
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(Value::from_safe_string(text))
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {reason}"))
}

impl Style {
    fn write(&self, value: &Json, depth: usize, to: &mut String) {
        match value {
            Json::Null => to.push_str("null"),
            Json::Bool(true) => to.push_str("true"),
            Json::Bool(false) => to.push_str("false"),
            Json::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
                Some(number) => to.push_str(&float(number)),
                None => to.push_str(&number.to_string()),
            },
            Json::String(text) => self.quote(text, to),
            Json::Array(items) => self.list(['[', ']'], items.iter(), depth, to, |item, to| {
                self.write(item, depth + 1, to);
            }),
            Json::Object(fields) => {
                let mut fields: Vec<_> = fields.iter().collect();
                if self.sort {
                    fields.sort_by_key(|&(name, _)| name);
                }
                self.list(
                    ['{', '}'],
                    fields.into_iter(),
                    depth,
                    to,
                    |(name, value), to| {
                        self.quote(name, to);
                        to.push_str(&self.key_separator);
                        self.write(value, depth + 1, to);
                    },
                );
            }
        }
    }

    fn list<T>(
        &self,
        [open, close]: [char; 2],
        items: impl ExactSizeIterator<Item = T>,
        depth: usize,
        to: &mut String,
        mut write: impl FnMut(T, &mut String),
    ) {
        to.push(open);
        let empty = items.len() == 0;
        for (at, item) in items.enumerate() {
            if at > 0 {
                to.push_str(&self.item_separator);
            }
            self.new_line(depth + 1, to);
            write(item, to);
        }
        if !empty {
            self.new_line(depth, to);
        }
        to.push(close);
    }

    fn new_line(&self, depth: usize, to: &mut String) {
        if let Some(indent) = &self.indent {
            to.push('\n');
            for _ in 0..depth {
                to.push_str(indent);
            }
        }
    }

    fn quote(&self, text: &str, to: &mut String) {
        to.push('"');
        for c in text.chars() {
            match c {
                '"' => to.push_str("\\\""),
                '\\' => to.push_str("\\\\"),
                '\n' => to.push_str("\\n"),
                '\r' => to.push_str("\\r"),
                '\t' => to.push_str("\\t"),
                '\u{8}' => to.push_str("\\b"),
                '\u{c}' => to.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a text cannot fail.
                        let _ = write!(to, "\\u{unit:04x}");
                    }
                }
                c => to.push(c),
            }
        }
        to.push('"');
    }
}

/// A number as Python prints it: the shortest digits that mean it, with an exponent from 1e16 on and
/// below 1e-4.
pub(super) fn float(number: f64) -> String {
    if number.is_nan() {
        return "nan".into();
    }
    let scientific = format!("{number:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    match exponent.parse::<i32>() {
        Ok(-4..=15) => {
            let plain = number.to_string();
            match plain.contains('.') {
                true => plain,
                false => plain + ".0",
            }
        }
        Ok(exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        Err(_) => scientific,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_print_as_in_python() {
        let check = |number: f64, expect: &str| assert_eq!(float(number), expect);
        check(1.0, "1.0");
        check(-0.5, "-0.5");
        check(0.0001, "0.0001");
        check(0.00001, "1e-05");
        check(1e15, "1000000000000000.0");
        check(1e16, "1e+16");
        check(1.5e300, "1.5e+300");
        check(0.1 + 0.2, "0.30000000000000004");
    }
}

//! `json.dumps` of Python, as transformers gives it to templates.

use super::bounded::Bounded;
use minijinja::value::{Kwargs, Rest, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

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
pub(super) fn to_json(
    state: &State,
    value: Value,
    given: Rest<Value>,
    named: Kwargs,
) -> Result<Value, Error> {
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
    let mut text = Bounded::new(String::new(), state);
    style.write(&value, 0, &mut text)?;
    Ok(Value::from_safe_string(text.to))
}

fn invalid(reason: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, format!("tojson: {reason}"))
}

type Text = Bounded<String>;

impl Style {
    fn write(&self, value: &Value, depth: usize, to: &mut Text) -> Result<(), Error> {
        match value.kind() {
            ValueKind::Undefined | ValueKind::None => to.push_str("null"),
            ValueKind::Bool | ValueKind::Number => to.push_str(&scalar(value)),
            ValueKind::Seq | ValueKind::Iterable | ValueKind::Bytes => {
                let items = value.try_iter()?;
                self.list(['[', ']'], items, depth, to, |item, to| {
                    self.write(&item, depth + 1, to)
                })
            }
            ValueKind::Map => {
                let pairs = value.as_object().and_then(|map| map.try_iter_pairs());
                let pairs = pairs.into_iter().flatten();
                let field = |(name, value): (Value, Value), to: &mut Text| {
                    self.quote(&key(&name)?, to)?;
                    to.push_str(&self.key_separator)?;
                    self.write(&value, depth + 1, to)
                };
                match self.sort {
                    false => self.list(['{', '}'], pairs, depth, to, field),
                    true => {
                        let mut pairs: Vec<_> = pairs.collect();
                        pairs.sort_by(|(a, _), (b, _)| a.cmp(b));
                        self.list(['{', '}'], pairs.into_iter(), depth, to, field)
                    }
                }
            }
            // An error that was met where a value was made is told when it is used.
            ValueKind::Invalid => value.try_iter().map(drop),
            _ => match value.as_str() {
                Some(text) => self.quote(text, to),
                None => self.quote(&value.to_string(), to),
            },
        }
    }

    fn list<T>(
        &self,
        [open, close]: [char; 2],
        items: impl Iterator<Item = T>,
        depth: usize,
        to: &mut Text,
        mut write: impl FnMut(T, &mut Text) -> Result<(), Error>,
    ) -> Result<(), Error> {
        to.push(open)?;
        let mut empty = true;
        for item in items {
            if !empty {
                to.push_str(&self.item_separator)?;
            }
            empty = false;
            self.new_line(depth + 1, to)?;
            write(item, to)?;
        }
        if !empty {
            self.new_line(depth, to)?;
        }
        to.push(close)
    }

    fn new_line(&self, depth: usize, to: &mut Text) -> Result<(), Error> {
        if let Some(indent) = &self.indent {
            to.push('\n')?;
            for _ in 0..depth {
                to.push_str(indent)?;
            }
        }
        Ok(())
    }

    fn quote(&self, text: &str, to: &mut Text) -> Result<(), Error> {
        to.push('"')?;
        for c in text.chars() {
            match c {
                '"' => to.push_str("\\\"")?,
                '\\' => to.push_str("\\\\")?,
                '\n' => to.push_str("\\n")?,
                '\r' => to.push_str("\\r")?,
                '\t' => to.push_str("\\t")?,
                '\u{8}' => to.push_str("\\b")?,
                '\u{c}' => to.push_str("\\f")?,
                c if c < ' ' || (self.ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        to.push_str(&format!("\\u{unit:04x}"))?;
                    }
                }
                c => to.push(c)?,
            }
        }
        to.push('"')
    }
}

/// A truth value or number as Python's JSON has it, which has names for what is not finite.
fn scalar(value: &Value) -> String {
    let number = f64::try_from(value.clone()).ok();
    match number.filter(|_| !value.is_integer()) {
        _ if value.kind() == ValueKind::Bool => value.is_true().to_string(),
        Some(number) if number.is_nan() => "NaN".into(),
        Some(f64::INFINITY) => "Infinity".into(),
        Some(f64::NEG_INFINITY) => "-Infinity".into(),
        Some(number) => float(number),
        None => value.to_string(),
    }
}

/// The name of a field, as `json.dumps` makes it from a key.
fn key(name: &Value) -> Result<String, Error> {
    match name.kind() {
        ValueKind::String => Ok(name.to_string()),
        ValueKind::Bool | ValueKind::Number => Ok(scalar(name)),
        ValueKind::None => Ok("null".into()),
        kind => Err(invalid(format!("a key may not be a {kind}"))),
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

//! Chat templates: Jinja as Hugging Face transformers runs it.

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use std::io;

/// Steps that a template may take, so that a hostile one ends.
const FUEL: u64 = 20_000_000;
/// The template's name in the environment.
const NAME: &str = "chat_template";

/// A compiled chat template.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
}

impl Template {
    /// Compiles `source`.
    ///
    /// # Errors
    /// The syntax error, with its line.
    pub(super) fn new(source: &str) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| describe(&error))?;
        environment.set_syntax(syntax);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", to_json);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", strftime_now);
        environment
            .add_template_owned(NAME, without_generation_marks(source))
            .map_err(|error| describe(&error))?;
        Ok(Self { environment })
    }

    /// Renders the template with the given variables.
    ///
    /// # Errors
    /// What the template raised, or where it failed.
    pub(super) fn render(&self, variables: impl Serialize) -> Result<String, String> {
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(Value::from(Serde(variables))))
            .map_err(|error| describe(&error))
    }
}

/// An error with the detail and line that the template engine knows.
fn describe(error: &Error) -> String {
    let what = error
        .detail()
        .map_or_else(|| error.kind().to_string(), str::to_string);
    match error.line() {
        Some(line) => format!("{what} (line {line} of the template)"),
        None => what,
    }
}

/// transformers marks what the assistant says by `{% generation %}` for training; it prints nothing,
/// and the engine does not know it, so that an always-true condition takes its place.
fn without_generation_marks(source: &str) -> String {
    let mut result = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let Some(end) = rest[at..].find("%}").map(|end| at + end + 2) else {
            break;
        };
        let tag = &rest[at..end];
        let word = tag[2..tag.len() - 2].trim_matches(['-', '+', ' ', '\t', '\n', '\r']);
        result.push_str(&rest[..at]);
        match word {
            "generation" => result.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => result.push_str(&tag.replace("endgeneration", "endif")),
            _ => result.push_str(tag),
        }
        rest = &rest[end..];
    }
    result.push_str(rest);
    result
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: String) -> Result<String, Error> {
    jiff::fmt::strtime::format(&format, &jiff::Zoned::now()).map_err(|error| {
        let reason = format!("strftime_now: {error}");
        Error::new(ErrorKind::InvalidOperation, reason)
    })
}

/// `json.dumps` of Python, as transformers gives it to templates: no escaping for HTML, characters
/// beyond ASCII as they are, a space after `,` and `:`.
fn to_json(value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    for ignored in ["ensure_ascii", "sort_keys", "separators"] {
        let _: Option<Value> = options.get(ignored)?;
    }
    options.assert_all_used()?;
    let mut bytes = Vec::new();
    let written = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, Python)),
        Some(indent) => {
            let indent = " ".repeat(indent.min(16));
            let pretty = PrettyFormatter::with_indent(indent.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, pretty))
        }
    };
    let text = written
        .map_err(|error| error.to_string())
        .and_then(|()| String::from_utf8(bytes).map_err(|error| error.to_string()));
    text.map(Value::from_safe_string)
        .map_err(|error| Error::new(ErrorKind::InvalidOperation, format!("tojson: {error}")))
}

/// The separators of Python's `json.dumps`.
struct Python;

impl Formatter for Python {
    fn begin_array_value<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(
        &mut self,
        to: &mut W,
        first: bool,
    ) -> io::Result<()> {
        to.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
        to.write_all(b": ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(source: &str, expect: Result<&str, &str>) {
        let variables = json!({
            "messages": [{"role": "user", "content": " Hé <b> "}],
            "tool": {"name": "f", "arguments": {"b": [1, 2.5], "a": null}},
        });
        let result = Template::new(source).and_then(|template| template.render(variables));
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
}

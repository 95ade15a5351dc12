//! Chat templates: Jinja as Hugging Face transformers runs it.

mod bounded;
mod json;
mod plain;
mod print;
mod source;
mod time;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind};
use serde::Serialize;

/// Work that a template may do, so that a hostile one ends. A unit pays for one step or 64 bytes, so
/// that this bounds the memory of a rendering too, at 128 MiB.
const FUEL: u64 = 2 << 20;
/// The bytes that a unit of it pays for.
const UNIT: usize = 64;
/// The stack for templates, of which only what is used takes memory. What a template may make by all
/// of its work, lists in lists, is printed and dropped level by level.
const STACK: usize = 1 << 30;
/// The longest template; the longest published ones have a tenth of that.
const LONGEST: usize = 1 << 20;
/// The template's name in the environment.
const NAME: &str = "chat_template";

/// A compiled chat template.
#[derive(Debug)]
pub(super) struct Template {
    environment: Environment<'static>,
}

/// Why a template gave no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// It called `raise_exception` with this message.
    Raised(String),
    /// It failed; what and where.
    Other(String),
}

impl Template {
    /// Compiles `source`.
    ///
    /// # Errors
    /// The syntax error, with its line.
    pub(super) fn new(source: &str) -> Result<Self, String> {
        Self::at(source, jiff::Zoned::now)
    }

    /// As [`Template::new`], with a clock.
    fn at(
        source: &str,
        clock: impl Fn() -> jiff::Zoned + Send + Sync + 'static,
    ) -> Result<Self, String> {
        if source.len() > LONGEST {
            return Err(format!("is longer than {LONGEST} bytes"));
        }
        on_large_stack(|| Self::compile(source, clock))?
    }

    fn compile(
        source: &str,
        clock: impl Fn() -> jiff::Zoned + Send + Sync + 'static,
    ) -> Result<Self, String> {
        let mut environment = Environment::new();
        let syntax = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| describe(&error))?;
        environment.set_syntax(syntax.clone());
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        environment.set_fuel(Some(FUEL));
        environment.set_formatter(print::format);
        environment
            .set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        environment.add_filter("tojson", json::to_json);
        environment.add_filter(source::PLAIN, plain::plain);
        environment.add_test("iterable", is_iterable);
        environment.add_test("sequence", is_sequence);
        environment.add_test("number", is_number);
        environment.add_function("raise_exception", raise_exception);
        environment.add_function("strftime_now", move |format: &str| {
            time::format(format, &clock())
        });
        environment.add_function("joiner", minijinja_contrib::globals::joiner);
        environment.add_function("cycler", minijinja_contrib::globals::cycler);
        environment
            .add_template_owned(NAME, source::prepared(source, syntax))
            .map_err(|error| describe(&error))?;
        Ok(Self { environment })
    }

    /// Renders the template with the given variables.
    ///
    /// # Errors
    /// What the template raised, or where it failed.
    pub(super) fn render(&self, variables: impl Serialize + Send) -> Result<String, Failure> {
        on_large_stack(|| self.run(variables)).unwrap_or_else(|reason| Err(Failure::Other(reason)))
    }

    fn run(&self, variables: impl Serialize) -> Result<String, Failure> {
        self.environment
            .get_template(NAME)
            .and_then(|template| template.render(Value::from(Serde(variables))))
            .map_err(|error| match raised(&error) {
                Some(message) => Failure::Raised(message),
                None => Failure::Other(describe(&error)),
            })
    }
}

/// Runs `work` on a thread with a stack of [`STACK`]; a panic in it becomes an error.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("template".into())
            .stack_size(STACK)
            .spawn_scoped(scope, work)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
        let failed = |_| "the template engine failed on it (a panic inside)".to_string();
        thread.join().map_err(failed)
    })
}

/// As Python tells what a loop can run over: texts and what is not defined, but not none.
fn is_iterable(value: &Value) -> bool {
    is_sequence(value) || value.kind() == ValueKind::Iterable
}

/// As Python tells what has a length and places: texts and mappings too.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::{Bytes, Map, Seq, String, Undefined};
    matches!(value.kind(), String | Bytes | Seq | Map | Undefined)
}

/// In Python the truth values are numbers.
fn is_number(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Number | ValueKind::Bool)
}

/// What `raise_exception` was called with, if `error` comes from it.
fn raised(error: &Error) -> Option<String> {
    let mut at: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = at {
        if let Some(Raised(message)) = error.downcast_ref() {
            return Some(message.clone());
        }
        at = error.source();
    }
    None
}

/// An error with the detail and line that the template engine knows.
fn describe(error: &Error) -> String {
    let what = match error.detail() {
        Some(detail) => detail.to_string(),
        None => error.kind().to_string(),
    };
    match error.line() {
        Some(line) => format!("{what} (line {line} of the template)"),
        None => what,
    }
}

/// The mark of an error that the template raised itself.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn raise_exception(message: Value) -> Result<Value, Error> {
    let message = message.to_string();
    let error = Error::new(ErrorKind::InvalidOperation, message.clone());
    Err(error.with_source(Raised(message)))
}

#[cfg(test)]
mod tests;

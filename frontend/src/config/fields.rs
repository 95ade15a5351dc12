//! Reading typed, bounded fields out of a JSON object.

use crate::LoadError;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;
use std::path::Path;

/// A JSON object of a file, with the path to it for messages.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    file: &'a Path,
    prefix: String,
    object: &'a Map<String, Value>,
}

impl<'a> Fields<'a> {
    /// The outermost object of `file`.
    pub(crate) fn root(file: &'a Path, value: &'a Value) -> Result<Self, LoadError> {
        match value {
            Value::Object(object) => Ok(Self {
                file,
                prefix: String::new(),
                object,
            }),
            _ => Err(LoadError::format(file, "must hold a JSON object")),
        }
    }

    /// An error about the field `name`.
    pub(crate) fn error(&self, name: &str, reason: impl Into<String>) -> LoadError {
        LoadError::Field {
            file: self.file.to_path_buf(),
            field: format!("{}{name}", self.prefix),
            reason: reason.into(),
        }
    }

    /// The value of `name`; null counts as absent.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// Whether `name` is there as null, which for some fields is not the same as absent.
    pub(crate) fn is_null(&self, name: &str) -> bool {
        self.object.get(name).is_some_and(Value::is_null)
    }

    /// The first of `names` that is there, else the first of them.
    pub(crate) fn any<'n>(&self, names: &[&'n str]) -> &'n str {
        let found = names.iter().find(|name| self.get(name).is_some());
        found.or(names.first()).copied().unwrap_or_default()
    }

    /// Names and values, in the order of the file.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (&'a str, &'a Value)> + use<'a> {
        self.object
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// The object at `name`.
    pub(crate) fn object(&self, name: &str) -> Result<Option<Fields<'a>>, LoadError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(Fields {
                file: self.file,
                prefix: format!("{}{name}.", self.prefix),
                object,
            })),
            Some(other) => Err(self.expected(name, "an object", other)),
        }
    }

    /// The text at `name`.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&'a str>, LoadError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(self.expected(name, "a string", other)),
        }
    }

    /// The truth value at `name`.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>, LoadError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.expected(name, "true or false", other)),
        }
    }

    /// The whole number at `name`, which must lie in `range`.
    pub(crate) fn size(
        &self,
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<Option<usize>, LoadError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let expected = || {
            let what = format!("a whole number from {} to {}", range.start(), range.end());
            self.expected(name, &what, value)
        };
        // Some writers print whole numbers as 64.0.
        let number = value
            .as_u64()
            .or_else(|| {
                let number = value.as_f64()?;
                (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
            })
            .ok_or_else(expected)?;
        let size = usize::try_from(number).map_err(|_| expected())?;
        if range.contains(&size) {
            Ok(Some(size))
        } else {
            Err(expected())
        }
    }

    /// The whole number at `name`, which must be there.
    pub(crate) fn required(
        &self,
        name: &str,
        range: RangeInclusive<usize>,
    ) -> Result<usize, LoadError> {
        self.size(name, range)?.ok_or_else(|| self.missing(name))
    }

    /// The finite number at `name`.
    pub(crate) fn number(&self, name: &str) -> Result<Option<f64>, LoadError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.expected(name, "a number", value)),
        }
    }

    /// The number greater than zero at `name`.
    pub(crate) fn positive(&self, name: &str) -> Result<Option<f64>, LoadError> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value.as_f64() {
            Some(number) if number.is_finite() && number > 0.0 => Ok(Some(number)),
            _ => Err(self.expected(name, "a number greater than zero", value)),
        }
    }

    /// An error that says that `name` is missing.
    pub(crate) fn missing(&self, name: &str) -> LoadError {
        self.error(name, "is missing")
    }

    /// An error that says what `name` should have been.
    pub(crate) fn expected(&self, name: &str, what: &str, found: &Value) -> LoadError {
        let mut found = found.to_string();
        if found.len() > 60 {
            let end = (0..=60).rev().find(|&end| found.is_char_boundary(end));
            found.truncate(end.unwrap_or(0));
            found.push('…');
        }
        self.error(name, format!("must be {what}, is {found}"))
    }
}

//! What a kernel refuses.

/// Why a kernel did not run. Outputs are unspecified after an error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A slice does not have the length that the other arguments imply.
    #[error("{what} holds {found} elements, but {expected} are needed; pass slices of one shape")]
    Length {
        /// The argument.
        what: &'static str,
        /// Elements it has.
        found: usize,
        /// Elements it must have.
        expected: usize,
    },
    /// A parameter is outside what the kernel supports.
    #[error("{what} is {found}, but must be {expected}")]
    Parameter {
        /// The parameter.
        what: &'static str,
        /// Its value.
        found: String,
        /// The values that are allowed.
        expected: &'static str,
    },
    /// A row index points outside of a matrix.
    #[error("index {index} is outside of the {rows} rows of the matrix")]
    Index {
        /// The index.
        index: i64,
        /// Rows of the matrix.
        rows: usize,
    },
    /// A weight's declaration and its bytes disagree.
    #[error("weight {name}: {detail}")]
    Weight {
        /// The weight's name.
        name: String,
        /// What is wrong and what would be right.
        detail: String,
    },
    /// A task panicked on a thread of the pool; the pool stays usable.
    #[error("a kernel task panicked: {message}; this is a bug in mlxcel, please report it")]
    Panic {
        /// The panic's message.
        message: String,
    },
    /// The form of the kernels asked for is unknown or not supported by this processor.
    #[error("kernel form {found} is not available here; available: {available}")]
    Form {
        /// What was asked for.
        found: String,
        /// The forms that this processor can run.
        available: String,
    },
    /// The threads of a pool could not be started.
    #[error("cannot start the threads of the kernel pool: {message}")]
    Threads {
        /// The operating system's reason.
        message: String,
    },
}

/// `Ok` if `found` is `expected`.
pub(crate) fn length(what: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found == expected {
        return Ok(());
    }
    Err(Error::Length {
        what,
        found,
        expected,
    })
}

/// `Ok` if `holds`, else an error on the parameter.
pub(crate) fn parameter(
    holds: bool,
    what: &'static str,
    found: impl std::fmt::Display,
    expected: &'static str,
) -> Result<(), Error> {
    if holds {
        return Ok(());
    }
    Err(Error::Parameter {
        what,
        found: found.to_string(),
        expected,
    })
}

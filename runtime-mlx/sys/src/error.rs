//! What MLX reports.

/// What MLX, or a kernel run by it, says went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Error(pub String);

impl From<cxx::Exception> for Error {
    fn from(exception: cxx::Exception) -> Self {
        Self(exception.what().to_owned())
    }
}

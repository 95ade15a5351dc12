//! Why an operation of a node failed, before the node's name is added.

use mlxcel_mlx_sys as mlx;

/// A reason in words.
#[derive(Debug)]
pub(crate) struct Fail(pub(crate) String);

impl From<mlx::Error> for Fail {
    fn from(error: mlx::Error) -> Self {
        Self(error.0)
    }
}

impl From<String> for Fail {
    fn from(reason: String) -> Self {
        Self(reason)
    }
}

impl From<&str> for Fail {
    fn from(reason: &str) -> Self {
        Self(reason.into())
    }
}

impl From<mlxcel_kernels::Error> for Fail {
    fn from(error: mlxcel_kernels::Error) -> Self {
        Self(error.to_string())
    }
}

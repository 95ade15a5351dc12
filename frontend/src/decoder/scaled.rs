//! A block whose input and output are multiplied.

use super::{Block, Work};
use crate::LoadError;
use mlxcel_ir::ValueId;

/// `after * body(before * x)`.
#[derive(Debug)]
pub(crate) struct Scaled<B> {
    pub(crate) before: f64,
    pub(crate) body: B,
    pub(crate) after: f64,
}

impl<B: Block> Block for Scaled<B> {
    fn build(&self, work: &mut Work<'_>, x: ValueId) -> Result<ValueId, LoadError> {
        let x = work.scaled(x, self.before)?;
        let y = self.body.build(work, x)?;
        work.scaled(y, self.after)
    }
}

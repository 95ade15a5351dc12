//! A text that a rendering may make only as long as the work that is left to it pays for.

use super::UNIT;
use minijinja::{Error, ErrorKind, State};
use std::fmt::Write;

/// What is written goes to `to`, until as many bytes are written as the rendering has left. The engine
/// charges for them once they are made, which for a value of lists in lists would be too late.
pub(super) struct Bounded<W> {
    pub(super) to: W,
    left: usize,
}

impl<W: Write> Bounded<W> {
    pub(super) fn new(to: W, state: &State) -> Self {
        let left = state.fuel_levels().map_or(0, |(_, remaining)| remaining);
        let left = usize::try_from(left).unwrap_or(usize::MAX);
        Self {
            to,
            left: left.saturating_mul(UNIT),
        }
    }

    pub(super) fn push_str(&mut self, text: &str) -> Result<(), Error> {
        match self.left.checked_sub(text.len()) {
            Some(left) => self.left = left,
            None => return Err(Error::from(ErrorKind::OutOfFuel)),
        }
        Ok(self.to.write_str(text)?)
    }

    pub(super) fn push(&mut self, c: char) -> Result<(), Error> {
        self.push_str(c.encode_utf8(&mut [0; 4]))
    }
}

//! How the states of a text become one vector.

use crate::LoadError;
use crate::config::fields::Fields;

/// Which states of a text count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// That of the first token.
    First,
    /// The mean of all.
    Mean,
    /// That of the last token.
    Last,
}

/// How the states of a text become one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pooling {
    /// Which states count.
    pub reduce: Reduce,
    /// Whether the vector gets length 1.
    pub normalize: bool,
}

impl Default for Pooling {
    /// What holds where no file says anything.
    fn default() -> Self {
        Self {
            reduce: Reduce::Mean,
            normalize: false,
        }
    }
}

/// Which states count by the configuration `fields` of a pooling.
pub(super) fn reduce(fields: &Fields<'_>) -> Result<Reduce, LoadError> {
    if fields.flag("include_prompt")? == Some(false) {
        let reason = "leaves the tokens of prompts out of the mean, which is not supported";
        return Err(fields.error("include_prompt", reason));
    }
    let mut found = None;
    let modes = [
        ("cls_token", "cls", Some(Reduce::First)),
        ("mean_tokens", "mean", Some(Reduce::Mean)),
        ("lasttoken", "lasttoken", Some(Reduce::Last)),
        ("max_tokens", "max", None),
        ("mean_sqrt_len_tokens", "mean_sqrt_len_tokens", None),
        ("weightedmean_tokens", "weightedmean", None),
    ];
    let named = fields.text("pooling_mode")?;
    for (flag, name, reduce) in modes {
        let flag = format!("pooling_mode_{flag}");
        if named != Some(name) && !fields.flag(&flag)?.unwrap_or(false) {
            continue;
        }
        let Some(reduce) = reduce else {
            return Err(fields.error(&flag, "is not supported; cls, mean and lasttoken are"));
        };
        if found.is_some_and(|found| found != reduce) {
            return Err(fields.error(&flag, "is one of several modes, and one is supported"));
        }
        found = Some(reduce);
    }
    found.ok_or_else(|| fields.error("pooling_mode", "names no mode"))
}

//! Adapters as mlx-lm saves them: `M.lora_a` `[K, r]` and `M.lora_b` `[r, N]`, one scale for all.

use super::{Change, Halves, Tensors};
use crate::LoadError;
use crate::config::fields::Fields;
use std::collections::BTreeMap;

pub(super) const FILE: &str = "adapters.safetensors";

pub(super) fn read(
    fields: &Fields<'_>,
    tensors: &Tensors,
) -> Result<BTreeMap<String, Change>, LoadError> {
    match fields.text("fine_tune_type")? {
        None | Some("lora") => {}
        Some(other) => {
            let reason = format!("`{other}` is not supported; supported is lora");
            return Err(fields.error("fine_tune_type", reason));
        }
    }
    let parameters = fields
        .object("lora_parameters")?
        .ok_or_else(|| fields.missing("lora_parameters"))?;
    if parameters.get("alpha").is_some() {
        let reason = "is of an older mlx-lm, in which the scale depends on it and the rank in a way \
                      that changed between versions; set `scale` to what the layers are scaled by and \
                      remove it";
        return Err(parameters.error("alpha", reason));
    }
    let scale = parameters
        .number("scale")?
        .ok_or_else(|| parameters.missing("scale"))?;
    let mut halves: BTreeMap<String, Halves> = BTreeMap::new();
    for entry in &tensors.entries {
        let name = entry.name.clone();
        if let Some(module) = name.strip_suffix(".lora_a") {
            let matrix = tensors.matrix(entry)?.transposed();
            halves.entry(module.into()).or_default().a = Some((name.clone(), matrix));
        } else if let Some(module) = name.strip_suffix(".lora_b") {
            let matrix = tensors.matrix(entry)?.transposed();
            halves.entry(module.into()).or_default().b = Some(matrix);
        } else {
            return Err(tensors.fail(entry, "is neither a lora_a nor a lora_b, and not supported"));
        }
    }
    let join = |(module, halves): (String, Halves)| {
        let change = halves.join(tensors.file(), &module, |_| Ok(scale))?;
        Ok((module, change))
    };
    halves.into_iter().map(join).collect()
}

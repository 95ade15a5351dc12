//! Adapters as PEFT saves them: `base_model.model.M.lora_A.weight` `[r, K]` and `.lora_B.weight`
//! `[N, r]`, of embeddings `.lora_embedding_A` `[r, V]` and `.lora_embedding_B` `[H, r]`. The scale is
//! `alpha / r`, or `alpha / sqrt(r)`, with exceptions by patterns of module names.

use super::{Change, Halves, Matrix, Tensors};
use crate::LoadError;
use crate::config::fields::Fields;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;

pub(super) const FILE: &str = "adapter_model.safetensors";

/// What the names of all tensors start with.
const PREFIX: &str = "base_model.model.";

/// Fields that change the numbers in a way that is not supported, unless null, false, empty or the
/// value given here.
const REFUSED: &[(&str, &str)] = &[
    ("use_dora", "false"),
    ("use_qalora", "false"),
    ("lora_bias", "false"),
    ("bias", "none"),
    ("modules_to_save", ""),
    ("target_parameters", ""),
    ("trainable_token_indices", ""),
    ("layer_replication", ""),
    ("alora_invocation_tokens", ""),
    ("arrow_config", ""),
];

/// Ways to begin training that change the model's own weights too.
const CHANGING_STARTS: &[&str] = &["pissa", "olora", "corda", "loftq"];

pub(super) fn read(
    fields: &Fields<'_>,
    tensors: &Tensors,
) -> Result<BTreeMap<String, Change>, LoadError> {
    let scales = Scales::parse(fields)?;
    let mut halves: BTreeMap<String, Halves> = BTreeMap::new();
    for entry in &tensors.entries {
        let name = entry.name.strip_prefix(PREFIX).unwrap_or(&entry.name);
        // Written by hand, names may keep that of the adapter.
        let name = name.strip_suffix(".weight").unwrap_or(name);
        let name = name.strip_suffix(".default").unwrap_or(name);
        let matrix = || tensors.matrix(entry);
        let tensor = entry.name.clone();
        let of = |module: &str, a: Option<Matrix>, b: Option<Matrix>| {
            let halves = halves.entry(module.into()).or_default();
            halves.a = a.map(|a| (tensor, a)).or(halves.a.take());
            halves.b = b.or(halves.b.take());
        };
        match name.rsplit_once('.') {
            Some((module, "lora_A")) => of(module, Some(matrix()?), None),
            Some((module, "lora_B")) => of(module, None, Some(matrix()?)),
            // The change of an embedding [V, H] is that of a linear layer, transposed.
            Some((module, "lora_embedding_A")) => of(module, None, Some(matrix()?.transposed())),
            Some((module, "lora_embedding_B")) => of(module, Some(matrix()?.transposed()), None),
            _ => {
                let reason = "is neither a lora_A nor a lora_B; whole modules, biases and magnitudes \
                              in adapters are not supported: merge it into the model with PEFT";
                return Err(tensors.fail(entry, reason));
            }
        }
    }
    let join = |(module, halves): (String, Halves)| {
        let change = halves.join(tensors.file(), &module, |rank| {
            scales.of(fields, &module, rank)
        })?;
        Ok((module, change))
    };
    halves.into_iter().map(join).collect()
}

/// How the scale of each module follows from the configuration.
struct Scales {
    rank: usize,
    alpha: f64,
    root: bool,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
}

impl Scales {
    fn parse(fields: &Fields<'_>) -> Result<Self, LoadError> {
        match fields.text("peft_type")? {
            None | Some("LORA") => {}
            Some(other) => {
                let reason = format!("`{other}` is not supported; supported is LORA");
                return Err(fields.error("peft_type", reason));
            }
        }
        for (name, harmless) in REFUSED {
            let harmless = match fields.get(name) {
                None => true,
                Some(Value::Bool(flag)) => flag.to_string() == *harmless,
                Some(Value::String(text)) => text == harmless,
                Some(Value::Array(items)) => items.is_empty(),
                Some(Value::Object(items)) => items.is_empty(),
                Some(Value::Number(_)) => false,
                Some(Value::Null) => true,
            };
            if !harmless {
                let reason = "is not supported; merge the adapter into the model with PEFT";
                return Err(fields.error(name, reason));
            }
        }
        if let Some(Value::String(start)) = fields.get("init_lora_weights")
            && CHANGING_STARTS.iter().any(|name| start.starts_with(name))
        {
            let reason = format!(
                "`{start}` changes the model's own weights when training begins, so that the adapter \
                 alone is not enough; convert it to a plain one with PEFT"
            );
            return Err(fields.error("init_lora_weights", reason));
        }
        let rank = fields.required("r", 1..=RANK)?;
        let patterns = |name: &str| -> Result<Vec<(Regex, &Value)>, LoadError> {
            let Some(inner) = fields.object(name)? else {
                return Ok(Vec::new());
            };
            let compile =
                |(key, value): (&str, _)| match Regex::new(&format!(r"^(?:.*\.)?(?:{key})$")) {
                    Ok(pattern) => Ok((pattern, value)),
                    Err(error) => Err(inner.error(key, format!("is no pattern: {error}"))),
                };
            inner.entries().map(compile).collect()
        };
        let mut ranks = Vec::new();
        for (pattern, value) in patterns("rank_pattern")? {
            let rank = value
                .as_u64()
                .filter(|rank| (1..=RANK as u64).contains(rank));
            let rank = rank.ok_or_else(|| fields.expected("rank_pattern", "ranks", value))?;
            ranks.push((pattern, rank as usize));
        }
        let mut alphas = Vec::new();
        for (pattern, value) in patterns("alpha_pattern")? {
            let alpha = value.as_f64().filter(|alpha| alpha.is_finite());
            let alpha = alpha.ok_or_else(|| fields.expected("alpha_pattern", "numbers", value))?;
            alphas.push((pattern, alpha));
        }
        Ok(Self {
            rank,
            // PEFT's own default.
            alpha: fields.number("lora_alpha")?.unwrap_or(8.0),
            root: fields.flag("use_rslora")?.unwrap_or(false),
            ranks,
            alphas,
        })
    }

    /// The scale of `module`, whose matrices are of rank `rank`.
    fn of(&self, fields: &Fields<'_>, module: &str, rank: usize) -> Result<f64, LoadError> {
        let matching = |pattern: &Regex| pattern.is_match(module);
        let of_module = self.ranks.iter().find(|(pattern, _)| matching(pattern));
        let wanted = of_module.map_or(self.rank, |(_, rank)| *rank);
        if wanted != rank {
            let field = of_module.map_or("r", |_| "rank_pattern");
            let reason = format!(
                "says that `{module}` is of rank {wanted}, but its tensors are of rank {rank}"
            );
            return Err(fields.error(field, reason));
        }
        let of_module = self.alphas.iter().find(|(pattern, _)| matching(pattern));
        let alpha = of_module.map_or(self.alpha, |(_, alpha)| *alpha);
        let rank = rank as f64;
        Ok(alpha / if self.root { rank.sqrt() } else { rank })
    }
}

/// The largest rank of an adapter.
const RANK: usize = 1 << 16;

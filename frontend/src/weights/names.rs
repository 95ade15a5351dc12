//! One spelling for tensors that checkpoints spell in several ways.
//!
//! Rules, in this order; each is applied to the whole name of a tensor:
//! 1. A language model inside of a larger model: `model.language_model.X`, `language_model.model.X`
//!    and `language_model.X` become `R.X`, where `R` is the family's root (`model` for most), and
//!    `language_model.lm_head.X` becomes `lm_head.X`. In such a checkpoint other names stay.
//! 2. A model saved without its head has no root: if no tensor's name starts with `R.`, all get it
//!    but those of a head.
//! 3. `P.switch_mlp.S` (the experts of MLX, stacked) becomes `P.experts.S`.
//! 4. Experts' projections called `w1`, `w2`, `w3` are `gate_proj`, `down_proj`, `up_proj`. They may
//!    also be asked for under the former.
//!
//! Names in the configuration's list of quantised modules follow the same rules.

/// How a family names its tensors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// The first part of the names of all tensors but the head's: `model`, `transformer`, `bert`.
    pub(crate) root: &'static str,
    /// Ends of the names of tensors that the checkpoint has as `[.., inputs, outputs]`, the reverse
    /// of a linear layer's: asking for one gives it transposed.
    pub(crate) transposed: &'static [&'static str],
}

impl Names {
    /// Names that start with `model.`, none of them transposed.
    pub(crate) const MODEL: Names = Names {
        root: "model",
        transposed: &[],
    };
}

/// What a language model's tensors start with inside of a larger model; longer ones first.
const WRAPPERS: &[&str] = &[
    "model.language_model.",
    "language_model.model.",
    "language_model.",
];
/// What the tensors of heads start with, which stand beside the root.
const HEADS: &[&str] = &[
    "lm_head.",
    "head.",
    "embed_out.",
    "score.",
    "classifier.",
    "pre_classifier.",
    "qa_outputs.",
    "cls.",
    "generator_lm_head.",
    "discriminator_predictions.",
    "mlm_head.",
    crate::encoder::PREFIX,
];
/// Names of experts' projections, and what they stand for.
const PROJECTIONS: &[(&str, &str)] = &[("w1", "gate_proj"), ("w2", "down_proj"), ("w3", "up_proj")];

/// The rules as they hold for one checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    root: &'static str,
    wrapped: bool,
    rootless: bool,
}

impl Rules {
    /// The rules for a checkpoint with the tensors `names` of a family that names its own so.
    pub(crate) fn new<'a>(names: impl Iterator<Item = &'a str> + Clone, family: Names) -> Self {
        let root = family.root;
        let wrapped = names.clone().any(|name| unwrap(name).is_some());
        let rooted = |name: &str| {
            name.strip_prefix(root)
                .is_some_and(|rest| rest.starts_with('.'))
        };
        Self {
            root,
            wrapped,
            rootless: !wrapped && !names.clone().any(rooted),
        }
    }

    /// The one spelling of `name`.
    pub(crate) fn apply(&self, name: &str) -> String {
        let root = self.root;
        let placed = match unwrap(name) {
            Some(rest) if self.wrapped && is_head(rest) => rest.to_string(),
            Some(rest) if self.wrapped => format!("{root}.{rest}"),
            _ if self.rootless && !is_head(name) => format!("{root}.{name}"),
            _ => name.to_string(),
        };
        let stacked = placed.replace(".switch_mlp.", EXPERTS);
        projection(&stacked).unwrap_or(stacked)
    }

    /// How the family names its tensors, transposed or not.
    pub(crate) fn family(&self) -> Names {
        Names {
            root: self.root,
            transposed: &[],
        }
    }

    /// `name` below the family's root.
    pub(crate) fn rooted(&self, name: &str) -> String {
        format!("{}.{name}", self.root)
    }

    /// The one spelling of the module `name` of a configuration, which may spell it otherwise than
    /// the checkpoint does.
    pub(crate) fn module(&self, name: &str) -> String {
        let (placed, root) = (format!("{name}."), self.root);
        let rules = Self {
            wrapped: true,
            rootless: self.rootless && !placed.starts_with(&format!("{root}.")),
            ..*self
        };
        let mut name = rules.apply(&placed);
        name.pop();
        name
    }
}

/// The name inside of the language model, if it starts as one of those does.
fn unwrap(name: &str) -> Option<&str> {
    WRAPPERS
        .iter()
        .find_map(|wrapper| name.strip_prefix(wrapper))
}

/// Whether `name` is that of a tensor of a head.
pub(crate) fn is_head(name: &str) -> bool {
    HEADS.iter().any(|head| name.starts_with(head))
}

/// What stands around experts.
pub(crate) const EXPERTS: &str = ".experts.";
/// What stands around everything that is stacked: experts, and norms of single heads.
pub(crate) const STACKED: &[&str] = &[EXPERTS, ".norms."];

/// Rule 4: `name` in its one spelling, if that differs.
pub(crate) fn projection(name: &str) -> Option<String> {
    let (before, after) = name.rsplit_once(EXPERTS)?;
    let digits = after.len() - after.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let at = match after[digits..].strip_prefix('.') {
        Some(_) if digits > 0 => digits + 1,
        _ => 0,
    };
    let (number, rest) = after.split_at(at);
    PROJECTIONS.iter().find_map(|(from, to)| {
        let rest = rest
            .strip_prefix(from)
            .filter(|rest| rest.starts_with(['.', '^', '[', '(']))?;
        Some(format!("{before}{EXPERTS}{number}{to}{rest}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_spell_names_in_several_ways() {
        let check = |root, names: &[(&str, &str)]| {
            let family = Names {
                root,
                transposed: &[],
            };
            let rules = Rules::new(names.iter().map(|(from, _)| *from), family);
            for (from, to) in names {
                assert_eq!(rules.apply(from), *to, "{from} beside {names:?}");
            }
        };
        let plain = [
            ("model.norm.weight", "model.norm.weight"),
            ("lm_head.weight", "lm_head.weight"),
        ];
        check("model", &plain);
        check(
            "model",
            &[
                ("model.language_model.norm.weight", "model.norm.weight"),
                ("model.visual.norm.weight", "model.visual.norm.weight"),
                ("lm_head.weight", "lm_head.weight"),
            ],
        );
        check(
            "model",
            &[
                ("language_model.model.norm.weight", "model.norm.weight"),
                ("language_model.lm_head.weight", "lm_head.weight"),
                ("vision_tower.norm.weight", "vision_tower.norm.weight"),
            ],
        );
        check(
            "model",
            &[("language_model.layers.0.a", "model.layers.0.a")],
        );
        check(
            "model",
            &[
                ("layers.0.a", "model.layers.0.a"),
                ("norm.weight", "model.norm.weight"),
            ],
        );
        check(
            "model",
            &[
                ("layers.0.a", "model.layers.0.a"),
                ("lm_head.weight", "lm_head.weight"),
            ],
        );
        check(
            "transformer",
            &[
                ("h.0.a", "transformer.h.0.a"),
                ("wte.weight", "transformer.wte.weight"),
            ],
        );
        check(
            "bert",
            &[
                ("bert.encoder.a", "bert.encoder.a"),
                ("classifier.bias", "classifier.bias"),
            ],
        );
        check(
            "model",
            &[
                (
                    "model.layers.0.mlp.switch_mlp.up_proj.weight",
                    "model.layers.0.mlp.experts.up_proj.weight",
                ),
                (
                    "model.layers.0.m.experts.11.w2.weight",
                    "model.layers.0.m.experts.11.down_proj.weight",
                ),
                (
                    "model.layers.0.m.experts.w3.weight",
                    "model.layers.0.m.experts.up_proj.weight",
                ),
                (
                    "model.layers.0.ffn.experts.mlp.w1",
                    "model.layers.0.ffn.experts.mlp.w1",
                ),
                (
                    "model.layers.0.ffn.w1.weight",
                    "model.layers.0.ffn.w1.weight",
                ),
            ],
        );
    }

    #[test]
    fn modules_of_a_configuration_may_be_spelled_otherwise() {
        let check = |tensor: &str, module: &str, expect: &str| {
            let rules = Rules::new(std::iter::once(tensor), Names::MODEL);
            assert_eq!(rules.module(module), expect, "{module} beside {tensor}");
        };
        check("model.a.weight", "model.a", "model.a");
        check("model.a.weight", "language_model.model.a", "model.a");
        check(
            "model.language_model.a.weight",
            "language_model.a",
            "model.a",
        );
        check("model.language_model.a.weight", "model.a", "model.a");
        check("a.weight", "model.a", "model.a");
        check("a.weight", "a", "model.a");
        check("model.a.weight", "lm_head", "lm_head");
        check(
            "model.a.weight",
            "model.m.switch_mlp.w1",
            "model.m.experts.gate_proj",
        );
    }
}

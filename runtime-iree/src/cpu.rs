//! Whether this processor has the instructions that an artifact uses.
//!
//! Code for the processor carries no record of them, and running one that is missing kills the
//! process. The chip in the manifest says which they are: the name of a processor, or of a level of
//! the x86-64 psABI (section 3.1.1), and after it features by LLVM's names, as in
//! `x86-64-v3+avx512f+avx512bw`.

/// What a chip's code may use and this processor lacks: its architecture, or else features.
pub(crate) fn missing_features(chip: &str) -> Vec<&str> {
    let level = chip.split('+').next().unwrap_or(chip);
    match architecture(level) {
        Some(architecture) if architecture != std::env::consts::ARCH => vec![architecture],
        _ => missing(chip, has_feature),
    }
}

fn missing(chip: &str, has_feature: impl Fn(&str) -> Option<bool>) -> Vec<&str> {
    let mut parts = chip.split('+');
    let level = parts.next().map_or(&[][..], features_of_processor);
    level
        .iter()
        .copied()
        .chain(parts)
        .filter(|feature| has_feature(feature) == Some(false))
        .collect()
}

/// The architecture of the processor called `name`, where the name tells it.
fn architecture(name: &str) -> Option<&'static str> {
    if name.starts_with("x86-64") || !features_of_processor(name).is_empty() {
        Some("x86_64")
    } else if name.starts_with("aarch64") || name.starts_with("apple-") {
        Some("aarch64")
    } else {
        None
    }
}

const V2: &[&str] = &["sse3", "ssse3", "sse4.1", "sse4.2", "popcnt"];
const V3: &[&str] = &[
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "bmi", "bmi2", "f16c", "fma",
    "lzcnt", "movbe",
];
const V4: &[&str] = &[
    "sse3", "ssse3", "sse4.1", "sse4.2", "popcnt", "avx", "avx2", "bmi", "bmi2", "f16c", "fma",
    "lzcnt", "movbe", "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl",
];

/// The features that tell processors of one name apart from older ones. A name that is not here
/// promises nothing beyond its architecture's baseline.
fn features_of_processor(name: &str) -> &'static [&'static str] {
    match name {
        "x86-64-v2" => V2,
        "x86-64-v3" | "haswell" | "znver2" | "znver3" => V3,
        "x86-64-v4" | "skylake-avx512" | "cascadelake" | "icelake-server" | "znver4" | "znver5"
        | "sapphirerapids" | "graniterapids" => V4,
        _ => &[],
    }
}

/// Whether this processor has a feature, where that can be told. The compiler emits AMX only where a
/// program asks for it, which none of ours does, so that it need not be told.
#[cfg(target_arch = "x86_64")]
fn has_feature(name: &str) -> Option<bool> {
    use std::arch::is_x86_feature_detected as detected;
    Some(match name {
        "sse3" => detected!("sse3"),
        "ssse3" => detected!("ssse3"),
        "sse4.1" => detected!("sse4.1"),
        "sse4.2" => detected!("sse4.2"),
        "popcnt" => detected!("popcnt"),
        "avx" => detected!("avx"),
        "avx2" => detected!("avx2"),
        "bmi" => detected!("bmi1"),
        "bmi2" => detected!("bmi2"),
        "f16c" => detected!("f16c"),
        "fma" => detected!("fma"),
        "lzcnt" => detected!("lzcnt"),
        "movbe" => detected!("movbe"),
        "avx512f" => detected!("avx512f"),
        "avx512bw" => detected!("avx512bw"),
        "avx512cd" => detected!("avx512cd"),
        "avx512dq" => detected!("avx512dq"),
        "avx512vl" => detected!("avx512vl"),
        "avx512vnni" => detected!("avx512vnni"),
        "avx512bf16" => detected!("avx512bf16"),
        "avx512fp16" => detected!("avx512fp16"),
        "avxvnni" => detected!("avxvnni"),
        _ => return None,
    })
}

/// Whether this processor has a feature, where that can be told.
#[cfg(target_arch = "aarch64")]
fn has_feature(name: &str) -> Option<bool> {
    use std::arch::is_aarch64_feature_detected as detected;
    Some(match name {
        "neon" => detected!("neon"),
        "dotprod" => detected!("dotprod"),
        "fullfp16" => detected!("fp16"),
        "bf16" => detected!("bf16"),
        "i8mm" => detected!("i8mm"),
        "sve" => detected!("sve"),
        "sve2" => detected!("sve2"),
        _ => return None,
    })
}

/// Whether this processor has a feature, where that can be told.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn has_feature(_name: &str) -> Option<bool> {
    None
}

#[cfg(test)]
mod tests {
    use super::{architecture, missing};

    #[test]
    fn reads_chips() {
        // A processor that has AVX2 and no AVX-512, and does not know of AMX.
        let has = |feature: &str| match feature {
            "amx-tile" => None,
            other => Some(!other.starts_with("avx512")),
        };
        let check = |chip, expect: &[&str]| assert_eq!(missing(chip, has), expect, "{chip}");
        check("generic", &[]);
        check("x86-64-v3", &[]);
        check("haswell+avx512vnni", &["avx512vnni"]);
        check("generic+fma+amx-tile", &[]);
        check(
            "sapphirerapids",
            &["avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"],
        );
    }

    #[test]
    fn tells_architectures_apart() {
        let check = |name, expect| assert_eq!(architecture(name), expect, "{name}");
        check("x86-64", Some("x86_64"));
        check("x86-64-v3", Some("x86_64"));
        check("znver3", Some("x86_64"));
        check("aarch64", Some("aarch64"));
        check("generic", None);
    }
}

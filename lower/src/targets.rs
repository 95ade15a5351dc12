//! The targets that can be compiled for, and the flags of each.
//!
//! A chip that the compiler does not know ends its process with no message, so only those listed
//! here ever reach it. Each was compiled for with the version of the compiler in use.

use crate::CompileError;
use serde::{Deserialize, Serialize};

/// Who has the kernels for the pieces that are not left to the compiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KernelOwner {
    /// The program that runs a module: the module calls them by name.
    Runtime,
    /// The module itself: they are written with it and compiled for its GPU, whose subgroups have so
    /// many threads.
    Module { subgroup: usize },
}

impl KernelOwner {
    pub(crate) fn is_module(self) -> bool {
        matches!(self, KernelOwner::Module { .. })
    }
}

/// Chips of CDNA, whose subgroups have 64 threads. The compiler refuses to link kernels for others.
const WIDE: [&str; 2] = ["gfx90a", "gfx942"];

/// A family of devices.
#[derive(Debug, PartialEq, Eq)]
struct Family {
    name: &'static str,
    /// What is known by having run it.
    state: &'static str,
    /// Flags for every chip.
    flags: &'static [&'static str],
    /// Who has kernels, if not all code is the compiler's.
    kernels: Option<KernelOwner>,
    /// The chips, the default first.
    chips: &'static [Chip],
}

#[derive(Debug, PartialEq, Eq)]
struct Chip {
    name: &'static str,
    flags: &'static [&'static str],
}

macro_rules! chips {
    ($($name:literal: [$($flag:expr),*]),* $(,)?) => {
        &[$(Chip { name: $name, flags: &[$($flag),*] }),*]
    };
}

/// The chip that stands for the machine that compiles.
const HOST: &str = "host";

/// Flags for every target.
const COMMON: [&str; 2] = ["--iree-input-type=stablehlo", "--iree-opt-level=O3"];

/// What does not depend on inputs is computed when a module is loaded, not when it is compiled: the
/// compiler has no kernels, and its own threads have stacks smaller than some machines allow.
const CONSTANTS_AT_LOAD: &str = "--iree-opt-const-eval=false";

static FAMILIES: [Family; 5] = [
    Family {
        name: "iree-cpu",
        state: "runs in every test",
        flags: &[
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            // Reductions in attention over a long cache need more than the default of 32 KiB.
            "--iree-llvmcpu-stack-allocation-limit=262144",
        ],
        kernels: Some(KernelOwner::Runtime),
        chips: chips! {
            "host": ["--iree-llvmcpu-target-cpu=host"],
            "x86-64-v3": [
                "--iree-llvmcpu-target-triple=x86_64-unknown-linux-gnu",
                "--iree-llvmcpu-target-cpu=x86-64-v3"
            ],
            "x86-64-v4": [
                "--iree-llvmcpu-target-triple=x86_64-unknown-linux-gnu",
                "--iree-llvmcpu-target-cpu=x86-64-v4"
            ],
            "aarch64": [
                "--iree-llvmcpu-target-triple=aarch64-unknown-linux-gnu",
                "--iree-llvmcpu-target-cpu=generic"
            ],
        },
    },
    Family {
        name: "iree-cuda",
        state: "compiled in every test; models of 0.6B and 8B ran on an H200",
        flags: &["--iree-hal-target-device=cuda"],
        kernels: Some(KernelOwner::Module { subgroup: 32 }),
        // The driver compiles for newer chips from the code of sm_89.
        chips: chips! {
            "sm_89": ["--iree-cuda-target=sm_89"],
            "sm_86": ["--iree-cuda-target=sm_86"],
            "sm_80": ["--iree-cuda-target=sm_80"],
        },
    },
    Family {
        name: "iree-rocm",
        state: "compiled in every test, never run: no such GPU was at hand",
        flags: &["--iree-hal-target-device=hip"],
        kernels: Some(KernelOwner::Module { subgroup: 32 }),
        chips: chips! {
            "gfx1100": ["--iree-rocm-target=gfx1100"],
            "gfx90a": ["--iree-rocm-target=gfx90a"],
            "gfx942": ["--iree-rocm-target=gfx942"],
            "gfx1101": ["--iree-rocm-target=gfx1101"],
            "gfx1151": ["--iree-rocm-target=gfx1151"],
            "gfx1200": ["--iree-rocm-target=gfx1200"],
            "gfx1201": ["--iree-rocm-target=gfx1201"],
        },
    },
    Family {
        name: "iree-vulkan",
        state: "compiled in every test, never run: no such GPU was at hand",
        flags: &["--iree-hal-target-device=vulkan"],
        kernels: None,
        chips: chips! {
            "rdna3": ["--iree-vulkan-target=rdna3"],
            "rdna2": ["--iree-vulkan-target=rdna2"],
            "rdna4": ["--iree-vulkan-target=rdna4"],
            "turing": ["--iree-vulkan-target=turing"],
            "ampere": ["--iree-vulkan-target=ampere"],
            "ada": ["--iree-vulkan-target=ada"],
            "valhall4": ["--iree-vulkan-target=valhall4"],
        },
    },
    Family {
        name: "iree-metal",
        state: "compiled in every test; this build cannot run it",
        flags: &["--iree-hal-target-device=metal"],
        kernels: None,
        chips: chips! {
            "apple": [],
        },
    },
];

/// What to compile for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    family: &'static Family,
    chip: &'static Chip,
    kernels: Option<KernelOwner>,
}

impl Target {
    /// The target of this name and its chip, or its default chip.
    ///
    /// # Errors
    /// [`CompileError::UnknownTarget`] and [`CompileError::UnknownChip`], which list what is known.
    pub fn new(name: &str, chip: Option<&str>) -> Result<Self, CompileError> {
        let family = FAMILIES
            .iter()
            .find(|family| family.name == name)
            .ok_or_else(|| CompileError::UnknownTarget {
                target: name.to_string(),
                known: Self::names().collect(),
            })?;
        let wanted = chip.unwrap_or(family.chips[0].name);
        let chip = family
            .chips
            .iter()
            .find(|chip| chip.name == wanted)
            .ok_or_else(|| CompileError::UnknownChip {
                target: family.name,
                chip: wanted.to_string(),
                known: family.chips.iter().map(|chip| chip.name).collect(),
            })?;
        Ok(Self::of(family, chip))
    }

    /// The machine that compiles, or the chip of `iree-cpu` that the environment variable
    /// `MLXCEL_HOST_CHIP` names: so tests try what is compiled for older processors than theirs. A
    /// name that is no chip's is passed over.
    pub fn host() -> Self {
        let family = &FAMILIES[0];
        let wanted = std::env::var("MLXCEL_HOST_CHIP").unwrap_or_default();
        let named = family.chips.iter().find(|chip| chip.name == wanted);
        Self::of(family, named.unwrap_or(&family.chips[0]))
    }

    fn of(family: &'static Family, chip: &'static Chip) -> Self {
        let kernels = match family.kernels {
            Some(KernelOwner::Module { .. }) if WIDE.contains(&chip.name) => {
                Some(KernelOwner::Module { subgroup: 64 })
            }
            kernels => kernels,
        };
        Self {
            family,
            chip,
            kernels,
        }
    }

    /// The same target with all code made by the compiler: there are no kernels.
    pub fn without_kernels(self) -> Self {
        Self {
            kernels: None,
            ..self
        }
    }

    /// Who has the kernels.
    pub(crate) fn kernels(&self) -> Option<KernelOwner> {
        self.kernels
    }

    /// The names of all targets.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FAMILIES.iter().map(|family| family.name)
    }

    /// The chips of a target, the default first. None for an unknown target.
    pub fn chips(target: &str) -> Vec<&'static str> {
        let family = FAMILIES.iter().find(|family| family.name == target);
        let chips = family.map_or(&[][..], |family| family.chips);
        chips.iter().map(|chip| chip.name).collect()
    }

    /// What is known of a target by having run it, in words. None for an unknown target.
    pub fn state(target: &str) -> Option<&'static str> {
        let family = FAMILIES.iter().find(|family| family.name == target)?;
        Some(family.state)
    }

    /// The name as a user gives it, for instance `iree-cpu`.
    pub fn name(&self) -> &'static str {
        self.family.name
    }

    /// The chip as an artifact records it. The machine that compiles is spelled out, so that another
    /// machine can tell whether it has the same instructions.
    pub fn chip(&self) -> String {
        match self.chip.name {
            HOST => crate::host::chip(),
            name => name.to_string(),
        }
    }

    /// The compiler's flags.
    pub fn flags(&self) -> Vec<String> {
        COMMON
            .iter()
            .chain(self.family.flags)
            .chain(self.chip.flags)
            .chain(self.kernels.map(|_| &CONSTANTS_AT_LOAD))
            .map(|flag| flag.to_string())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_list_the_known_ones() {
        let check = |target, chip, expect: &[&str]| {
            let message = Target::new(target, chip).unwrap_err().to_string();
            for part in expect {
                assert!(message.contains(part), "{message}");
            }
        };
        check("iree-tpu", None, &["`iree-tpu`", "iree-cpu", "iree-metal"]);
        check(
            "iree-cuda",
            Some("nonsense"),
            &["`nonsense`", "iree-cuda", "sm_80", "sm_86", "sm_89"],
        );
        check("iree-rocm", Some("sm_80"), &["gfx1151", "gfx942"]);
    }

    #[test]
    fn the_first_chip_is_the_default() {
        for name in Target::names() {
            let target = Target::new(name, None).unwrap();
            let same = Target::new(name, Some(Target::chips(name)[0])).unwrap();
            assert_eq!(target, same);
            assert!(
                target
                    .flags()
                    .contains(&"--iree-input-type=stablehlo".to_string())
            );
        }
    }
}

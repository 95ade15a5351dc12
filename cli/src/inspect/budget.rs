//! The memory that a model needs, estimated before it is run.

use crate::output;
use mlxcel_frontend::StateInfo;
use serde::Serialize;

/// Caches grow by this many tokens at a time.
const CHUNK: u64 = 256;
/// Tokens of a prompt that are computed at a time at most.
const PREFILL: u64 = 512;
/// Bytes of an activation: this program computes in f32 on CPUs.
const ACTIVATION: u64 = 4;
/// What is added to the sum, for what cannot be known: this share of it.
const HEADROOM: f64 = 0.20;

/// What the estimate is made from.
pub(crate) struct Needs {
    /// Bytes of the weights.
    pub(crate) weights: u64,
    pub(crate) states: StateInfo,
    pub(crate) hidden: u64,
    /// Numbers of the largest value of a token.
    pub(crate) widest: u64,
    pub(crate) vocabulary: u64,
    /// Tokens of a sequence.
    pub(crate) context: u64,
    /// Whether the states are of one size, as those of an artifact are.
    pub(crate) is_fixed: bool,
    /// Sequences at a time.
    pub(crate) batch: u64,
}

/// An estimate of memory, in bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Budget {
    /// The weights as they are stored. They are mapped: the system may drop and read them again.
    weights_bytes: u64,
    weights_source: &'static str,
    kv_cache_bytes: u64,
    kv_cache_source: &'static str,
    kv_detail: String,
    /// Largest values inside of a step.
    activation_bytes: u64,
    runtime_headroom_bytes: u64,
    /// Bytes in flight on a device's queues; there are none on CPUs.
    backend_inflight_bytes: u64,
    total_bytes: u64,
    /// What this machine can give, where the system tells.
    available_bytes: Option<u64>,
    available_source: &'static str,
    fits: Option<bool>,
    headroom_factor: f64,
    ctx_len: u64,
    batch: u64,
    quant: &'static str,
    kv_dtype_int8: bool,
}

impl Budget {
    pub(crate) fn new(needs: &Needs) -> Self {
        let (available, source) = available();
        Self::within(needs, available, source)
    }

    fn within(needs: &Needs, available: Option<u64>, available_source: &'static str) -> Self {
        let Needs {
            weights,
            states,
            context,
            batch,
            ..
        } = *needs;
        let ctx_len = match needs.is_fixed {
            true => context,
            false => context.next_multiple_of(CHUNK),
        };
        let each = states
            .bytes_per_token
            .saturating_mul(ctx_len)
            .saturating_add(states.bytes_per_sequence);
        let kv_cache_bytes = each.saturating_mul(batch);
        let tokens = batch.saturating_mul(context.min(PREFILL));
        let wide = needs.hidden.saturating_add(needs.widest);
        let activation_bytes = tokens
            .saturating_mul(wide)
            .saturating_mul(2 * ACTIVATION)
            .saturating_add(
                batch
                    .saturating_mul(needs.vocabulary)
                    .saturating_mul(ACTIVATION),
            );
        let sum = weights
            .saturating_add(kv_cache_bytes)
            .saturating_add(activation_bytes);
        let runtime_headroom_bytes = (sum as f64 * HEADROOM) as u64;
        let total_bytes = sum.saturating_add(runtime_headroom_bytes);
        let kv_detail = match needs.is_fixed {
            true => format!("{} buffers of fixed size", states.caches),
            false => format!(
                "{} caches, {} a token; {} memories, {} a sequence",
                states.caches,
                output::bytes(states.bytes_per_token),
                states.memories,
                output::bytes(states.bytes_per_sequence)
            ),
        };
        Self {
            weights_bytes: weights,
            weights_source: if needs.is_fixed { "artifact" } else { "graph" },
            kv_cache_bytes,
            kv_cache_source: if needs.is_fixed { "manifest" } else { "graph" },
            kv_detail,
            activation_bytes,
            runtime_headroom_bytes,
            backend_inflight_bytes: 0,
            total_bytes,
            available_bytes: available,
            available_source,
            fits: available.map(|available| total_bytes <= available),
            headroom_factor: 1.0 + HEADROOM,
            ctx_len,
            batch,
            quant: "default",
            kv_dtype_int8: false,
        }
    }

    /// The estimate as lines of a name and a value.
    pub(crate) fn lines(&self) -> Vec<(&'static str, String)> {
        let bytes = output::bytes;
        let sequences = if self.batch == 1 {
            "sequence"
        } else {
            "sequences"
        };
        let mut lines = vec![
            ("weights", bytes(self.weights_bytes)),
            (
                "cache",
                format!("{} ({})", bytes(self.kv_cache_bytes), self.kv_detail),
            ),
            ("activations", bytes(self.activation_bytes)),
            ("headroom", bytes(self.runtime_headroom_bytes)),
            (
                "total",
                format!(
                    "{} for {} {sequences} of {} tokens",
                    bytes(self.total_bytes),
                    self.batch,
                    self.ctx_len
                ),
            ),
        ];
        if let Some(available) = self.available_bytes {
            lines.push((
                "available",
                format!("{} ({})", bytes(available), self.available_source),
            ));
        }
        lines.push((
            "fits",
            match self.fits {
                Some(true) => "yes".into(),
                Some(false) => "no: weights are mapped, so that it may run, but slowly".into(),
                None => "unknown: the system does not tell what memory there is".into(),
            },
        ));
        lines
    }
}

/// The memory that this machine can give, and who says so.
fn available() -> (Option<u64>, &'static str) {
    if let Some(limit) = std::env::var("MLXCEL_MEMORY_LIMIT")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        return (Some(limit), "MLXCEL_MEMORY_LIMIT");
    }
    let system = std::fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| mem_available(&text));
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let group = group.and_then(|text| text.trim().parse().ok());
    match (system, group) {
        (Some(system), Some(group)) if group < system => {
            (Some(group), "limit of the control group")
        }
        (Some(system), _) => (Some(system), "MemAvailable"),
        (None, group) => (group, "limit of the control group"),
    }
}

fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_definition() {
        let needs = Needs {
            weights: 1000,
            states: StateInfo {
                caches: 2,
                memories: 1,
                bytes_per_token: 10,
                bytes_per_sequence: 7,
            },
            hidden: 3,
            widest: 5,
            vocabulary: 11,
            context: 300,
            is_fixed: false,
            batch: 2,
        };
        let budget = Budget::within(&needs, Some(u64::MAX), "test");
        assert_eq!(budget.ctx_len, 512);
        assert_eq!(budget.kv_cache_bytes, 2 * (10 * 512 + 7));
        assert_eq!(budget.activation_bytes, 2 * 2 * 300 * 8 * 4 + 2 * 11 * 4);
        let sum = 1000 + budget.kv_cache_bytes + budget.activation_bytes;
        assert_eq!(budget.runtime_headroom_bytes, sum / 5);
        assert_eq!(budget.total_bytes, sum + sum / 5);
        assert_eq!(budget.fits, Some(true));
        assert_eq!(Budget::within(&needs, Some(1), "test").fits, Some(false));
        let huge = Needs {
            weights: u64::MAX,
            batch: u64::MAX,
            ..needs
        };
        assert_eq!(Budget::within(&huge, None, "test").total_bytes, u64::MAX);
    }

    #[test]
    fn the_system_s_report_is_read() {
        assert_eq!(
            mem_available("MemTotal: 9 kB\nMemAvailable:   2 kB\n"),
            Some(2048)
        );
        assert_eq!(mem_available("MemTotal: 9 kB\n"), None);
    }
}

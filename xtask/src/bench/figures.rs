//! What the rounds gave, as a table and as JSON.

use serde_json::{Value, json};

use super::Phase;
use super::traffic::Traffic;
use crate::mlxcel::Reply;
use crate::table;

/// One side of the comparison: a name, and its measurements of all rounds.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) name: String,
    /// Tokens per second.
    pub(super) speeds: Vec<f64>,
    /// Bytes; 0 where it is not known.
    peak_memory: u64,
    /// Tokens of the last round.
    pub(super) tokens: usize,
}

impl Side {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            speeds: Vec::new(),
            peak_memory: 0,
            tokens: 0,
        }
    }

    pub(super) fn add(&mut self, phase: Phase, reply: &Reply) {
        let (speed, tokens) = match phase {
            Phase::Decode => (reply.decode_speed, reply.tokens),
            Phase::Prefill => (reply.prefill_speed, reply.prompt_tokens),
        };
        self.speeds.push(speed);
        self.tokens = tokens;
        self.peak_memory = self.peak_memory.max(reply.peak_memory);
    }

    fn median(&self) -> f64 {
        let mut speeds = self.speeds.clone();
        speeds.sort_by(f64::total_cmp);
        let middle = speeds.len() / 2;
        match speeds.len() % 2 {
            0 if speeds.is_empty() => 0.0,
            0 => (speeds[middle - 1] + speeds[middle]) / 2.0,
            _ => speeds[middle],
        }
    }

    /// The slowest and the fastest round.
    fn range(&self) -> (f64, f64) {
        let speeds = || self.speeds.iter().copied();
        (
            speeds().fold(f64::INFINITY, f64::min),
            speeds().fold(0.0, f64::max),
        )
    }
}

/// All that a run has to tell.
#[derive(Debug)]
pub(super) struct Figures {
    pub(super) phase: Phase,
    pub(super) rounds: usize,
    pub(super) traffic: Traffic,
    /// Bytes per second.
    pub(super) bandwidth: f64,
    pub(super) sides: Vec<Side>,
}

impl Figures {
    /// Bytes that one token must move, the cache half full of what is generated.
    fn bytes_per_token(&self) -> u64 {
        let tokens = self.sides.first().map_or(1, |side| side.tokens).max(1);
        match self.phase {
            Phase::Decode => self.traffic.per_token(1, tokens / 2),
            Phase::Prefill => self.traffic.per_token(tokens, 0),
        }
    }

    /// The share of the memory's bandwidth that `speed` uses at least.
    fn share(&self, speed: f64) -> f64 {
        speed * self.bytes_per_token() as f64 / self.bandwidth
    }

    pub(super) fn table(&self) -> String {
        let bytes = self.bytes_per_token() as f64;
        let mut rows = vec![
            [
                "side",
                "tok/s",
                "lowest",
                "highest",
                "of bandwidth",
                "memory MB",
            ]
            .map(str::to_owned)
            .to_vec(),
        ];
        for side in &self.sides {
            let (lowest, highest) = side.range();
            let memory = match side.peak_memory {
                0 => String::new(),
                bytes => format!("{}", bytes / 1_000_000),
            };
            rows.push(vec![
                side.name.clone(),
                format!("{:.1}", side.median()),
                format!("{lowest:.1}"),
                format!("{highest:.1}"),
                format!("{:.0}%", 100.0 * self.share(side.median())),
                memory,
            ]);
        }
        format!(
            "{}\nmedians of {} rounds; a token moves {:.1} MB at least; memory reads {:.1} GB/s, so {:.0} tok/s at most\n",
            table::layout(&rows),
            self.rounds,
            bytes / 1e6,
            self.bandwidth / 1e9,
            self.bandwidth / bytes,
        )
    }

    pub(super) fn json(&self) -> Value {
        let sides = self.sides.iter().map(|side| {
            let (lowest, highest) = side.range();
            json!({
                "name": side.name,
                "tokens": side.tokens,
                "tokens_per_second": side.median(),
                "lowest": lowest,
                "highest": highest,
                "rounds": side.speeds,
                "share_of_bandwidth": self.share(side.median()),
                "peak_memory": side.peak_memory,
            })
        });
        json!({
            "phase": match self.phase { Phase::Decode => "decode", Phase::Prefill => "prefill" },
            "bytes_per_token": self.bytes_per_token(),
            "bandwidth": self.bandwidth,
            "sides": sides.collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(name: &str, speeds: &[f64]) -> Side {
        Side {
            speeds: speeds.to_vec(),
            tokens: 64,
            ..Side::new(name)
        }
    }

    #[test]
    fn the_middle_counts() {
        let check = |speeds: &[f64], expect: f64| assert_eq!(side("", speeds).median(), expect);
        check(&[], 0.0);
        check(&[3.0, 1.0, 2.0], 2.0);
        check(&[4.0, 1.0, 2.0, 3.0], 2.5);
    }

    #[test]
    fn speeds_are_held_against_the_bandwidth() {
        let figures = Figures {
            phase: Phase::Decode,
            rounds: 3,
            traffic: Traffic {
                weights: 100_000_000,
                cache_per_token: 0,
            },
            bandwidth: 20e9,
            sides: vec![side("eager", &[50.0, 100.0, 150.0]), side("peer", &[20.0])],
        };
        let table = figures.table();
        for part in [
            "eager  100.0    50.0    150.0           50%",
            "100.0 MB",
            "200 tok/s at most",
        ] {
            assert!(table.contains(part), "{part:?} is not in\n{table}");
        }
        let json = figures.json();
        assert_eq!(json["sides"][0]["share_of_bandwidth"], 0.5);
        assert_eq!(json["bytes_per_token"], 100_000_000);
    }
}

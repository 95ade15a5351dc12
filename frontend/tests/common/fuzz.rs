//! A property held for as long as the environment says, and the memory that each input takes.

#![allow(dead_code, reason = "each test file uses a part")]

use peak_alloc::PeakAlloc;
use proptest::prelude::*;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Held by whoever measures: what other threads allocate would count too.
static ALONE: Mutex<()> = Mutex::new(());

/// Keeps the other tests of this file waiting.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bytes that may be allocated at a time for an input: `base`, and `each` for each byte of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bound {
    pub(crate) base: usize,
    pub(crate) each: usize,
}

/// What was seen of a bound.
#[derive(Debug)]
pub(crate) struct Meter {
    bound: Bound,
    inputs: Cell<u64>,
    accepted: Cell<u64>,
    peak: Cell<usize>,
    /// The largest part of the bound that an input took.
    share: Cell<f64>,
}

impl Meter {
    pub(crate) fn new(bound: Bound) -> Self {
        Self {
            bound,
            inputs: Cell::new(0),
            accepted: Cell::new(0),
            peak: Cell::new(0),
            share: Cell::new(0.0),
        }
    }

    /// Does `work`, which tells whether it took an input of `length` bytes, within the bound. A test
    /// that calls this holds [`alone`].
    pub(crate) fn hold(
        &self,
        length: usize,
        mut work: impl FnMut() -> bool,
    ) -> Result<(), TestCaseError> {
        let mut measured = || {
            MEMORY.reset_peak_usage();
            let before = MEMORY.current_usage();
            let accepted = work();
            (accepted, MEMORY.peak_usage().saturating_sub(before))
        };
        let most = self.bound.base + self.bound.each * length;
        let (accepted, mut peak) = measured();
        if peak > most {
            // The thread that collects what tests print may have allocated; not twice.
            peak = peak.min(measured().1);
        }
        self.inputs.set(self.inputs.get() + 1);
        self.accepted.set(self.accepted.get() + u64::from(accepted));
        self.peak.set(self.peak.get().max(peak));
        self.share
            .set(self.share.get().max(peak as f64 / most as f64));
        prop_assert!(
            peak <= most,
            "{peak} bytes for an input of {length}, more than {most}"
        );
        Ok(())
    }

    pub(crate) fn report(&self, name: &str) {
        let inputs = self.inputs.get();
        println!(
            "{name}: {inputs} inputs, {:.1}% accepted, {:.1} MiB at most, {:.1}% of the bound",
            100.0 * self.accepted.get() as f64 / inputs as f64,
            self.peak.get() as f64 / f64::from(1 << 20),
            100.0 * self.share.get()
        );
    }
}

/// Runs `test` on values of `strategy` for a second, or as long as `MLXCEL_FUZZ_SECONDS` says, and
/// prints what was seen. `MLXCEL_FUZZ_LAST` names a file to keep each value in before it is tried, for
/// those that end the process.
pub(crate) fn fuzz<S: Strategy>(
    name: &str,
    bound: Bound,
    strategy: S,
    test: impl Fn(S::Value, &Meter) -> Result<(), TestCaseError>,
) {
    let _alone = alone();
    let seconds = std::env::var("MLXCEL_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::default()
    });
    // Traces of panics that are contained would be most of the memory.
    std::panic::set_hook(Box::new(|panic| eprintln!("{panic}")));
    let meter = Meter::new(bound);
    let last = std::env::var_os("MLXCEL_FUZZ_LAST");
    while Instant::now() < end {
        let tree = strategy.new_tree(&mut runner);
        let tree = tree.unwrap_or_else(|reason| panic!("{name}: no input: {reason}"));
        if let Some(file) = &last {
            std::fs::write(file, format!("{:?}", tree.current())).expect("written");
        }
        // Not `run`, which counts what passed over all of its calls and stops at so many.
        if let Err(error) = runner.run_one(tree, |value| test(value, &meter)) {
            panic!("{name}: {error}");
        }
    }
    meter.report(name);
}

//! A property held for as long as the environment says.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::time::{Duration, Instant};

/// Runs `test` on values of `strategy` for a second, or as long as the environment says.
pub(crate) fn fuzz<S: Strategy>(strategy: S, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let seconds = std::env::var("MLXCEL_FUZZ_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut runner = TestRunner::new(Config {
        cases: 10,
        failure_persistence: None,
        ..Config::default()
    });
    while Instant::now() < end {
        if let Err(error) = runner.run(&strategy, &test) {
            panic!("{error}");
        }
    }
}

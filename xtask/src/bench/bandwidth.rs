//! The bandwidth that the memory has for reading, measured.

use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Bytes read in one pass: many times what caches hold.
const BYTES: usize = 1 << 30;

/// Reads one after the other, of which the fastest counts: other programs only ever slow one down.
const PASSES: usize = 5;

/// Bytes per second that all cores together read from memory.
pub(super) fn measure() -> f64 {
    let words = vec![1_u64; BYTES / size_of::<u64>()];
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let pass = || {
        let start = Instant::now();
        let total = read(&words, threads);
        black_box(total);
        BYTES as f64 / start.elapsed().as_secs_f64()
    };
    (0..PASSES).map(|_| pass()).fold(0.0, f64::max)
}

/// Sums `words`, each thread an equal share.
fn read(words: &[u64], threads: usize) -> u64 {
    thread::scope(|scope| {
        let share = words.len().div_ceil(threads);
        let workers: Vec<_> = words
            .chunks(share.max(1))
            .map(|part| scope.spawn(move || sum(part)))
            .collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or(0))
            .sum()
    })
}

/// Several independent sums keep more loads in flight than one chain of additions would.
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 32];
    let (blocks, rest) = words.as_chunks::<32>();
    for block in blocks {
        for (sum, word) in sums.iter_mut().zip(block) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter()
        .chain(rest)
        .fold(0, |sum, word| sum.wrapping_add(*word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_once() {
        let words: Vec<u64> = (0..1000).collect();
        for threads in [1, 2, 7] {
            assert_eq!(read(&words, threads), 499_500, "{threads} threads");
        }
        assert_eq!(read(&[], 2), 0);
    }
}

//! The pool: every index once, nested and concurrent runs, panics as errors, forced forms.

use mlxcel_kernels::{Error, Form, Pool};
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn every_index_runs_once() {
    for threads in [1, 2, 5] {
        let pool = Pool::new(threads).expect("a few threads");
        for _ in 0..2000 {
            let counts: Vec<_> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            let count = |index: usize, all: usize| {
                assert_eq!(all, threads);
                counts[index].fetch_add(1, Ordering::Relaxed);
            };
            pool.run(count).expect("no panic");
            assert!(
                counts
                    .iter()
                    .all(|count| count.load(Ordering::Relaxed) == 1)
            );
        }
    }
}

#[test]
fn ranges_cover_the_items() {
    let pool = Pool::new(3).expect("a few threads");
    for (items, grain) in [(0, 1), (1, 1), (100, 7), (100, 1000), (5, 0)] {
        let seen: Vec<_> = (0..items).map(|_| AtomicUsize::new(0)).collect();
        pool.ranges(items, grain, |range| {
            for item in range {
                seen[item].fetch_add(1, Ordering::Relaxed);
            }
        })
        .expect("no panic");
        assert!(seen.iter().all(|count| count.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn workers_wake_from_sleep() {
    let pool = Pool::new(2).expect("two threads");
    for _ in 0..20 {
        std::thread::sleep(std::time::Duration::from_millis(2));
        let count = AtomicUsize::new(0);
        pool.run(|_, _| {
            count.fetch_add(1, Ordering::Relaxed);
        })
        .expect("no panic");
        assert_eq!(count.into_inner(), 2);
    }
}

#[test]
fn nested_and_concurrent_runs() {
    let pool = Pool::new(2).expect("two threads");
    let count = AtomicUsize::new(0);
    let nested = || {
        pool.run(|_, _| {
            let inner = pool.run(|_, _| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert!(inner.is_ok());
        })
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..200).for_each(|_| nested().expect("no panic")));
        }
    });
    assert_eq!(count.into_inner(), 3 * 200 * 4);
}

#[test]
fn panics_become_errors() {
    for threads in [1, 3] {
        let pool = Pool::new(threads).expect("a few threads");
        for bad in 0..threads {
            let result = pool.run(|index, _| assert!(index != bad, "index {index} fails"));
            let Err(Error::Panic { message }) = result else {
                panic!("{result:?}")
            };
            assert!(message.contains("fails"), "{message}");
            pool.run(|_, _| ()).expect("the pool stays usable");
        }
    }
}

#[test]
fn forms_and_sizes_are_checked() {
    assert!(Pool::new(0).is_err());
    assert!(Pool::new(1000).is_err());
    assert!("sse9".parse::<Form>().is_err());
    for form in Form::ALL {
        assert_eq!(form.name().parse(), Ok(form));
        assert_eq!(Pool::with_form(1, form).is_ok(), form.is_available());
    }
    assert!(Form::available().any(|form| form == Form::best()));
}

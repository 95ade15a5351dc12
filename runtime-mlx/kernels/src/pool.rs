//! Threads that share the work of a kernel.
//!
//! A run publishes one job of as many indices as the pool has threads. The caller and the workers
//! claim indices until none is left, so a worker that wakes late costs no waiting: the caller does
//! its share. Idle workers spin for a few microseconds, since the next kernel of a step follows at
//! once, and then sleep.

use crate::{Error, Form, error};
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

/// Turns of an idle worker's loop before it sleeps (some tens of microseconds).
const SPINS: u32 = 1500;
/// The largest number of threads in a pool.
const LIMIT: usize = 256;
/// Bits of the ticket that count claimed indices; the bits above number the job.
const INDEX_BITS: u32 = 16;

type Task<'a> = dyn Fn(usize, usize) + Sync + 'a;

/// Persistent threads and the kernel form that they run.
pub struct Pool {
    shared: Arc<Shared>,
    form: Form,
    /// Held during a run: jobs of several callers take turns.
    gate: Mutex<()>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    threads: usize,
    /// Number of the job and how many of its indices are claimed.
    ticket: AtomicU64,
    /// Indices of the job that have not finished.
    pending: AtomicUsize,
    /// Workers that sleep on `wake`, counted under `lock`.
    sleepers: AtomicUsize,
    stop: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
    panic: Mutex<Option<String>>,
    /// The job's task; valid while `pending` is not zero.
    task: UnsafeCell<Option<*const Task<'static>>>,
}

// SAFETY: `task` is written by the holder of `Pool::gate` while no index is claimable and read only
// after an index was claimed, which the ticket's release and acquire order; the rest is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is to a `Sync` task.
unsafe impl Send for Shared {}

thread_local! {
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool of `threads` threads (the caller of a run is one of them) with the best form.
    ///
    /// # Errors
    /// If `threads` is not in `1..=256` or the threads cannot be started.
    pub fn new(threads: usize) -> Result<Pool, Error> {
        Pool::with_form(threads, Form::best())
    }

    /// A pool whose kernels run in `form`.
    ///
    /// # Errors
    /// As [`Pool::new`], and if this processor cannot run the form.
    pub fn with_form(threads: usize, form: Form) -> Result<Pool, Error> {
        let form = form.checked()?;
        error::parameter(
            (1..=LIMIT).contains(&threads),
            "the number of threads",
            threads,
            "1 to 256",
        )?;
        let shared = Arc::new(Shared {
            threads,
            ticket: AtomicU64::new(threads as u64),
            pending: AtomicUsize::new(0),
            sleepers: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            lock: Mutex::new(()),
            wake: Condvar::new(),
            panic: Mutex::new(None),
            task: UnsafeCell::new(None),
        });
        let mut pool = Pool {
            shared,
            form,
            gate: Mutex::new(()),
            workers: Vec::with_capacity(threads - 1),
        };
        for index in 1..threads {
            let shared = pool.shared.clone();
            let worker = std::thread::Builder::new()
                .name(format!("kernels-{index}"))
                .spawn(move || shared.work())
                .map_err(|error| Error::Threads {
                    message: error.to_string(),
                })?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// The pool of the process: as many threads as the environment's `MLXCEL_THREADS` says, else
    /// as there are available cores; the form that `MLXCEL_KERNELS` names, else the best.
    ///
    /// # Errors
    /// If a variable holds something else, or as [`Pool::with_form`].
    pub fn global() -> Result<&'static Pool, Error> {
        static GLOBAL: OnceLock<Result<Pool, Error>> = OnceLock::new();
        let made = GLOBAL.get_or_init(|| {
            let threads = match std::env::var("MLXCEL_THREADS") {
                Ok(text) => text.parse().map_err(|_| Error::Parameter {
                    what: "MLXCEL_THREADS",
                    found: text,
                    expected: "a number from 1 to 256",
                })?,
                Err(_) => std::thread::available_parallelism().map_or(1, |n| n.get().min(LIMIT)),
            };
            let form = match std::env::var("MLXCEL_KERNELS") {
                Ok(text) => text.parse()?,
                Err(_) => Form::best(),
            };
            Pool::with_form(threads, form)
        });
        made.as_ref().map_err(Error::clone)
    }

    /// Threads that share a run.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// The form that kernels run in on this pool.
    pub fn form(&self) -> Form {
        self.form
    }

    /// Calls `task(index, threads)` once for each index below `threads`, on any of the pool's
    /// threads, and returns when all have finished. A run inside of a task runs on its own thread.
    ///
    /// # Errors
    /// [`Error::Panic`] if a task panicked; the others still ran.
    pub fn run(&self, task: impl Fn(usize, usize) + Sync) -> Result<(), Error> {
        let threads = self.threads();
        if threads == 1 || IN_TASK.get() {
            let run = || (0..threads).for_each(|index| task(index, threads));
            return catch_unwind(AssertUnwindSafe(run)).map_err(|payload| Error::Panic {
                message: message(payload),
            });
        }
        let _turn = lock(&self.gate);
        let shared = &*self.shared;
        let task: *const Task<'_> = &task;
        // SAFETY: only the lifetime changes; the task outlives its use, since this function returns
        // only after every claimed index has finished and none is left to claim. No worker reads
        // the cell now: all indices of the former job are claimed and finished.
        unsafe {
            *shared.task.get() =
                Some(std::mem::transmute::<*const Task<'_>, *const Task<'static>>(task))
        };
        shared.pending.store(threads, Ordering::Relaxed);
        let job = (shared.ticket.load(Ordering::Relaxed) >> INDEX_BITS).wrapping_add(1);
        shared.ticket.store(job << INDEX_BITS, Ordering::SeqCst);
        if shared.sleepers.load(Ordering::SeqCst) > 0 {
            drop(lock(&shared.lock));
            shared.wake.notify_all();
        }
        while shared.claim() {}
        let mut turns = 0u32;
        while shared.pending.load(Ordering::Acquire) != 0 {
            turns += 1;
            if turns < SPINS {
                std::hint::spin_loop();
            } else {
                std::thread::yield_now();
            }
        }
        match lock(&shared.panic).take() {
            Some(message) => Err(Error::Panic { message }),
            None => Ok(()),
        }
    }

    /// Calls `task` for ranges of at most `grain` items that cover `0..items` without overlap;
    /// threads take the next range when they have finished one.
    ///
    /// # Errors
    /// As [`Pool::run`].
    pub fn ranges(
        &self,
        items: usize,
        grain: usize,
        task: impl Fn(Range<usize>) + Sync,
    ) -> Result<(), Error> {
        let grain = grain.max(1);
        if items <= grain || self.threads() == 1 {
            let run = || {
                (0..items)
                    .step_by(grain)
                    .for_each(|start| task(start..items.min(start + grain)));
            };
            return catch_unwind(AssertUnwindSafe(run)).map_err(|payload| Error::Panic {
                message: message(payload),
            });
        }
        let next = AtomicUsize::new(0);
        self.run(|_, _| {
            loop {
                let start = next.fetch_add(grain, Ordering::Relaxed);
                if start >= items {
                    return;
                }
                task(start..items.min(start + grain));
            }
        })
    }
}

impl Shared {
    /// Claims an index of the current job and runs it; false if none was left.
    fn claim(&self) -> bool {
        let mut ticket = self.ticket.load(Ordering::Acquire);
        let index = loop {
            let index = (ticket & ((1 << INDEX_BITS) - 1)) as usize;
            if index >= self.threads {
                return false;
            }
            match self.ticket.compare_exchange_weak(
                ticket,
                ticket + 1,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break index,
                Err(now) => ticket = now,
            }
        };
        IN_TASK.set(true);
        // SAFETY: this index was claimed, so the job is live: its task was stored before the ticket
        // was published and stays valid until `pending`, which counts this index, is zero.
        let task = unsafe { (*self.task.get()).map(|task| &*task) };
        if let Some(task) = task
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| task(index, self.threads)))
        {
            *lock(&self.panic) = Some(message(payload));
        }
        IN_TASK.set(false);
        self.pending.fetch_sub(1, Ordering::Release);
        true
    }

    fn idle(&self) -> bool {
        let claimed = self.ticket.load(Ordering::SeqCst) & ((1 << INDEX_BITS) - 1);
        claimed as usize >= self.threads && !self.stop.load(Ordering::SeqCst)
    }

    fn work(&self) {
        loop {
            while self.claim() {}
            let mut turns = 0;
            while self.idle() && turns < SPINS {
                std::hint::spin_loop();
                turns += 1;
            }
            if self.idle() {
                let mut guard = lock(&self.lock);
                self.sleepers.fetch_add(1, Ordering::SeqCst);
                while self.idle() {
                    guard = self
                        .wake
                        .wait(guard)
                        .unwrap_or_else(PoisonError::into_inner);
                }
                self.sleepers.fetch_sub(1, Ordering::SeqCst);
            }
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.lock));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // A worker catches its tasks' panics, so it has none of its own to report.
            let _ = worker.join();
        }
    }
}

fn message(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast_ref::<&str>() {
            Some(text) => (*text).into(),
            None => "no message".into(),
        },
    }
}

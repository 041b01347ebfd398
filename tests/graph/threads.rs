//! The thread pool under contention, panics and forks, with more threads than cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kinnor::kernels::threads::{Shared, num_threads, parallel, ranges, set_num_threads};

/// Sets the number of threads and returns the lock of the tests, since that number is global.
fn with_threads(n: usize) -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let guard = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    set_num_threads(n);
    assert_eq!(num_threads(), n);
    guard
}

/// Returns `n` zero counts.
fn counts(n: usize) -> Vec<AtomicUsize> {
    (0..n).map(|_| AtomicUsize::new(0)).collect()
}

/// True if every count is one.
fn all_once(counts: &[AtomicUsize]) -> bool {
    counts.iter().all(|c| c.load(Ordering::Relaxed) == 1)
}

#[test]
fn every_chunk_runs_once() {
    for threads in [1, 2, 3, 16] {
        let _alone = with_threads(threads);
        for round in 0..2000 {
            let counts = counts(round % 40);
            parallel(counts.len(), |i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(all_once(&counts), "{threads} threads, round {round}");
        }
    }
}

#[test]
fn chunks_read_and_write_shared_memory() {
    let _alone = with_threads(4);
    let mut x = vec![0_u64; 10_000];
    for round in 0..500 {
        let p = Shared::new(x.as_mut_ptr());
        ranges(x.len(), 700, |range| {
            for i in range {
                // SAFETY: each index is in exactly one range.
                unsafe { *p.get().add(i) += i as u64 };
            }
        });
        assert!(x.iter().enumerate().all(|(i, &v)| v == i as u64 * (round + 1)));
    }
}

/// Two slow chunks run at the same time, one on the calling thread and one on the other.
#[test]
fn more_threads_than_chunks_help_when_the_caller_is_slow() {
    let _alone = with_threads(2);
    let start = Instant::now();
    parallel(2, |_| std::thread::sleep(Duration::from_millis(60)));
    assert!(start.elapsed() < Duration::from_millis(110), "{:?}", start.elapsed());
}

#[test]
fn nested_loops_run() {
    let _alone = with_threads(4);
    let counts = counts(30 * 20);
    parallel(30, |i| {
        parallel(20, |j| {
            counts[i * 20 + j].fetch_add(1, Ordering::Relaxed);
        });
    });
    assert!(all_once(&counts));
}

#[test]
fn concurrent_callers_make_progress() {
    let _alone = with_threads(3);
    let blocked = AtomicBool::new(true);
    std::thread::scope(|s| {
        // One loop occupies the pool while the other callers work.
        s.spawn(|| {
            parallel(3, |_| {
                while blocked.load(Ordering::Relaxed) {
                    std::thread::yield_now();
                }
            });
        });
        let callers: Vec<_> = (0..4)
            .map(|_| {
                s.spawn(|| {
                    for _ in 0..200 {
                        let counts = counts(17);
                        parallel(17, |i| {
                            counts[i].fetch_add(1, Ordering::Relaxed);
                        });
                        assert!(all_once(&counts));
                    }
                })
            })
            .collect();
        let ends: Vec<_> = callers.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        blocked.store(false, Ordering::Relaxed); // before a panic, as the first loop would run for ever
        for end in ends {
            end.expect("no panic");
        }
    });
}

#[test]
fn a_panic_is_raised_and_the_pool_continues() {
    let _alone = with_threads(3);
    for bad in [0, 5, 63] {
        let ran = AtomicU64::new(0);
        let result = catch_unwind(AssertUnwindSafe(|| {
            parallel(64, |i| {
                assert!(i != bad, "chunk {i} fails");
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }));
        let message = result.expect_err("the panic is raised again");
        assert_eq!(message.downcast_ref::<String>(), Some(&format!("chunk {bad} fails")));
        assert!(ran.load(Ordering::Relaxed) < 64);
        let counts = counts(64);
        parallel(64, |i| {
            counts[i].fetch_add(1, Ordering::Relaxed);
        });
        assert!(all_once(&counts));
    }
}

#[test]
fn sleeping_threads_wake_up() {
    let _alone = with_threads(4);
    for pause in [0, 10, 40, 100, 2000] {
        for _ in 0..20 {
            std::thread::sleep(Duration::from_micros(pause));
            let counts = counts(8);
            parallel(8, |i| {
                std::thread::sleep(Duration::from_micros(100));
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(all_once(&counts));
        }
    }
}

#[test]
fn busy_neighbours_do_not_stop_the_pool() {
    let _alone = with_threads(8);
    std::thread::scope(|s| {
        let test = Arc::new(()); // dropped at the end and by a panic, so that the threads stop in either case
        for _ in 0..4 {
            let runs = Arc::downgrade(&test);
            s.spawn(move || {
                while runs.strong_count() > 0 {
                    std::hint::black_box(1);
                }
            });
        }
        for _ in 0..300 {
            let counts = counts(64);
            parallel(64, |i| {
                counts[i].fetch_add(1, Ordering::Relaxed);
            });
            assert!(all_once(&counts));
        }
        drop(test);
    });
}

#[cfg(unix)]
#[test]
fn forked_children_run_loops() {
    let _alone = with_threads(3);
    let sum = |n: usize| {
        let sum = AtomicUsize::new(0);
        parallel(n, |i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        sum.into_inner()
    };
    assert_eq!(sum(100), 4950);
    std::thread::scope(|s| {
        let test = Arc::new(()); // dropped at the end and by a panic, so that the thread stops in either case
        let runs = Arc::downgrade(&test);
        // At most forks, another thread is inside the pool.
        s.spawn(move || {
            while runs.strong_count() > 0 {
                sum(1000);
            }
        });
        for _ in 0..30 {
            // SAFETY: the child only runs loops and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let right = (0..50).all(|_| sum(100) == 4950);
                // SAFETY: exits immediately, and runs no code of the parent.
                unsafe { libc::_exit(i32::from(!right)) };
            }
            let mut status = -1;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
        drop(test);
    });
    assert_eq!(sum(100), 4950);
}

#[cfg(feature = "rayon")]
#[test]
fn loops_run_on_rayon_threads_on_request() {
    use std::collections::HashSet;
    use std::thread::{ThreadId, current, sleep};

    use kinnor::threads::{ThreadPool, set_thread_pool};

    let _alone = with_threads(3);
    set_thread_pool(ThreadPool::Rayon);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads");
    let own: HashSet<ThreadId> = pool.broadcast(|_| current().id()).into_iter().collect();
    let used = Mutex::new(HashSet::new());
    pool.install(|| {
        for round in 0..50 {
            let counts = counts(round);
            parallel(counts.len(), |i| {
                used.lock().unwrap_or_else(PoisonError::into_inner).insert(current().id());
                counts[i].fetch_add(1, Ordering::Relaxed);
                parallel(2, |_| sleep(Duration::from_micros(10))); // a loop within a chunk
            });
            assert!(all_once(&counts), "round {round}");
        }
    });
    assert_eq!(used.into_inner().unwrap_or_else(PoisonError::into_inner), own);
    // A panic ends the loop, is raised in the caller, and leaves the pool intact, also outside of any pool.
    let panics = || parallel(1000, |i| assert!(i < 500, "chunk {i}"));
    assert!(catch_unwind(AssertUnwindSafe(|| pool.install(panics))).is_err());
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    let counts = counts(100);
    parallel(100, |i| {
        counts[i].fetch_add(1, Ordering::Relaxed);
    });
    assert!(all_once(&counts));
    set_thread_pool(ThreadPool::Own);
}

//! Loops on the threads of the crate `rayon`, for programs that use it anyway, so that two pools do not compete for
//! the cores.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::pool::{ENDED, lock};
use crate::kernels::stop;

/// True while a loop runs. As in the own pool, there is one at a time.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Runs a loop on this thread and up to `threads - 1` threads of its pool. Returns `false` and does nothing if
/// another loop is running.
pub(super) fn run(threads: usize, count: usize, chunk: &(dyn Fn(usize) + Sync)) -> bool {
    if TAKEN.swap(true, Ordering::Acquire) {
        return false;
    }
    ENDED.store(false, Ordering::Relaxed);
    let next = AtomicUsize::new(0);
    let panic: Mutex<Option<Box<dyn Any + Send>>> = Mutex::new(None);
    // The first panic ends the loop: no further chunk is claimed.
    let claim = || {
        let chunks = || {
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= count {
                    break;
                }
                chunk(i);
                stop::poll();
            }
        };
        if let Err(of_chunk) = catch_unwind(AssertUnwindSafe(chunks)) {
            lock(&panic).get_or_insert(of_chunk);
            ENDED.store(true, Ordering::Relaxed);
            next.store(count, Ordering::Relaxed);
        }
    };
    rayon::in_place_scope(|scope| {
        for _ in 1..threads.min(rayon::current_num_threads() + 1) {
            scope.spawn(|_| stop::helping(claim));
        }
        claim();
    });
    TAKEN.store(false, Ordering::Release);
    let panic = lock(&panic).take();
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
    true
}

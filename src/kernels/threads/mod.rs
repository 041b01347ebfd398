//! Parallel loops over chunks. Knows chunks and threads, not what a chunk computes.
//!
//! Callers divide work by its shape, never by the number of threads, so results do not depend on that number.

mod cells;
mod columns;
#[cfg(feature = "rayon")]
mod of_rayon;
mod pool;

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::stop;
pub use cells::SharedCells;
pub use columns::{Columns, columns_mut};
use pool::Pool;
pub(super) use pool::is_ended;

use crate::environment::{self, WrongSetting};

/// The largest number of threads that may be requested.
pub const MOST_THREADS: usize = 1024;

/// The number of threads that share a loop. Zero until it is set or first read.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The number of threads that share a loop, including the caller.
pub fn num_threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => {
            let default = default_threads();
            // A number set concurrently takes precedence.
            match THREADS.compare_exchange(0, default, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => default,
                Err(set) => set,
            }
        }
        n => n,
    }
}

/// Sets the number of threads for later loops, at least one.
pub fn set_num_threads(n: usize) {
    THREADS.store(n.max(1), Ordering::Relaxed);
    Pool::end_surplus(n.max(1) - 1);
}

/// The number of threads requested by the environment.
pub(crate) fn threads_of_environment() -> Result<Option<usize>, WrongSetting> {
    let number = |text: &str| text.parse().ok().filter(|n| (1..=MOST_THREADS).contains(n));
    environment::setting("KINNOR_NUM_THREADS", &format!("a number from 1 to {MOST_THREADS}"), number)
}

/// The number of threads: of the environment, or else of available processors.
fn default_threads() -> usize {
    let of_others = || std::env::var("RAYON_NUM_THREADS").ok()?.trim().parse().ok().filter(|&n| n > 0);
    threads_of_environment()
        .ok()
        .flatten()
        .or_else(of_others)
        .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
        .unwrap_or(1)
}

/// The thread pool that loops run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPool {
    /// This crate's own threads, which spin briefly between loops. The fastest for many small kernels.
    Own,
    /// Threads of the crate `rayon`: the pool of the calling thread, or the global one.
    #[cfg(feature = "rayon")]
    Rayon,
}

/// True if loops run on the threads of the crate `rayon`.
#[cfg(feature = "rayon")]
static ON_RAYON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Sets the thread pool for later loops.
///
/// ```
/// use kinnor::threads::{ThreadPool, set_thread_pool};
/// # #[cfg(feature = "rayon")]
/// set_thread_pool(ThreadPool::Rayon);
/// # set_thread_pool(ThreadPool::Own);
/// ```
pub fn set_thread_pool(pool: ThreadPool) {
    #[cfg(feature = "rayon")]
    ON_RAYON.store(pool == ThreadPool::Rayon, Ordering::Relaxed);
    #[cfg(not(feature = "rayon"))]
    let ThreadPool::Own = pool;
}

/// Runs a loop on the pool. Returns `false` and does nothing if another loop is running.
fn on_pool(threads: usize, count: usize, chunk: &(dyn Fn(usize) + Sync)) -> bool {
    #[cfg(feature = "rayon")]
    if ON_RAYON.load(Ordering::Relaxed) {
        return of_rayon::run(threads, count, chunk);
    }
    Pool::run(threads, count, chunk)
}

/// Calls `chunk(i)` once for each `i` below `count`, on several threads and in any order.
///
/// A loop inside a chunk, or concurrent with another loop, runs on the calling thread only. Starting a parallel loop
/// costs about a microsecond, so smaller work should be one chunk. A panic in a chunk is propagated after all threads
/// have left. The loop may be interrupted between chunks, see [`stop`]. Long chunks should [poll](stop::poll).
#[inline]
pub fn parallel(count: usize, chunk: impl Fn(usize) + Sync) {
    chunks(count, &chunk);
}

/// As [`parallel`], compiled once instead of for each way to run.
#[inline(never)]
fn chunks(count: usize, chunk: &(dyn Fn(usize) + Sync)) {
    let threads = num_threads().min(count);
    if threads > 1 && on_pool(threads, count, chunk) {
        return;
    }
    for i in 0..count {
        chunk(i);
        stop::poll();
    }
}

/// Calls `work` on consecutive ranges of `grain` elements that cover `0..len`.
#[inline]
pub fn ranges(len: usize, grain: usize, work: impl Fn(Range<usize>) + Sync) {
    pieces(len, grain, &work);
}

/// As [`ranges`], compiled once like [`chunks`].
#[inline(never)]
fn pieces(len: usize, grain: usize, work: &(dyn Fn(Range<usize>) + Sync)) {
    let grain = grain.max(1);
    if len <= grain {
        if len > 0 {
            work(0..len);
        }
        return;
    }
    chunks(len.div_ceil(grain), &|i| work(i * grain..len.min((i + 1) * grain)));
}

/// Calls `work` on each row of `all`, `row` elements long, with the number of the row. A task has `grain` rows. An
/// incomplete last row is not touched.
#[inline]
pub fn rows_mut<T: Send>(all: &mut [T], row: usize, grain: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    row_ranges_mut(all, row, grain, |some, rows| {
        some.zip(rows.chunks_exact_mut(row)).for_each(|(i, row)| work(i, row));
    });
}

/// As [`rows_mut`], with all rows of a task together and their numbers.
#[inline]
pub fn row_ranges_mut<T: Send>(
    all: &mut [T],
    row: usize,
    grain: usize,
    work: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    let (rows, to) = (all.len().checked_div(row).unwrap_or(0), Shared::new(all.as_mut_ptr()));
    ranges(rows, grain, |some| {
        // SAFETY: each row is used once, and the rows are consecutive within the slice.
        let rows =
            unsafe { std::slice::from_raw_parts_mut(to.get().add(some.start * row), some.len() * row) };
        work(some, rows);
    });
}

/// Calls `work` on consecutive ranges that cover `0..len`, sequentially. The loop may be interrupted in between, see
/// [`stop`].
#[inline]
pub fn in_turn(len: usize, grain: usize, mut work: impl FnMut(Range<usize>)) {
    for start in (0..len).step_by(grain.max(1)) {
        work(start..len.min(start.saturating_add(grain.max(1))));
        stop::poll();
    }
}

/// A pointer shared by the chunks of a loop. The loop must ensure that no two chunks write the same element.
pub struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: this is only an address. Each use of it is an unsafe operation with its own reason.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Shares a pointer to memory that is written.
    #[inline(always)]
    pub fn new(p: *mut T) -> Self {
        Self(p)
    }

    /// Shares a pointer to memory that is only read.
    #[inline(always)]
    pub fn read_only(p: *const T) -> Self {
        Self(p.cast_mut())
    }

    /// The pointer.
    #[inline(always)]
    pub fn get(self) -> *mut T {
        self.0
    }
}

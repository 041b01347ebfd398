//! Loops over chunks on all cores. Knows chunks and threads; knows nothing of what a chunk computes.
//!
//! Callers divide work by its shape, never by the number of threads, so that results do not depend on it.

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

/// More than this are not asked for.
pub const MOST_THREADS: usize = 1024;

/// Zero until it is set or asked for.
static THREADS: AtomicUsize = AtomicUsize::new(0);

/// How many threads share the work, the caller among them.
pub fn num_threads() -> usize {
    match THREADS.load(Ordering::Relaxed) {
        0 => {
            let default = default_threads();
            // Whoever set a number in the meantime is right.
            match THREADS.compare_exchange(0, default, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => default,
                Err(set) => set,
            }
        }
        n => n,
    }
}

/// Sets how many threads share the work, from the next loop on; one at least.
pub fn set_num_threads(n: usize) {
    THREADS.store(n.max(1), Ordering::Relaxed);
    Pool::end_surplus(n.max(1) - 1);
}

/// How many threads there are to be, if the environment says so.
pub(crate) fn threads_of_environment() -> Result<Option<usize>, WrongSetting> {
    let number = |text: &str| text.parse().ok().filter(|n| (1..=MOST_THREADS).contains(n));
    environment::setting("KINNOR_NUM_THREADS", &format!("a number from 1 to {MOST_THREADS}"), number)
}

fn default_threads() -> usize {
    let of_others = || std::env::var("RAYON_NUM_THREADS").ok()?.trim().parse().ok().filter(|&n| n > 0);
    threads_of_environment()
        .ok()
        .flatten()
        .or_else(of_others)
        .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
        .unwrap_or(1)
}

/// Whose threads share the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadPool {
    /// Threads of this crate's own, which wait awake for a moment: the quickest for many small kernels.
    Own,
    /// Those of the crate `rayon`: of the pool that the calling thread belongs to, or of the global one.
    #[cfg(feature = "rayon")]
    Rayon,
}

#[cfg(feature = "rayon")]
static ON_RAYON: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// Sets whose threads share the work, from the next loop on.
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

/// Runs a loop on the pool. `false`, with nothing done: another loop is under way.
fn on_pool(threads: usize, count: usize, chunk: &(dyn Fn(usize) + Sync)) -> bool {
    #[cfg(feature = "rayon")]
    if ON_RAYON.load(Ordering::Relaxed) {
        return of_rayon::run(threads, count, chunk);
    }
    Pool::run(threads, count, chunk)
}

/// Runs `chunk(i)` once for each `i` below `count`, on several threads and in no particular order.
///
/// A loop inside a chunk, or beside another loop, runs on its own thread alone. Handing work over costs about a
/// microsecond: smaller work should be one chunk. A panic in a chunk is raised again here once all threads are out. Between
/// chunks the loop may end, see [`stop`]: those that take long [poll](stop::poll) on their own.
#[inline]
pub fn parallel(count: usize, chunk: impl Fn(usize) + Sync) {
    chunks(count, &chunk);
}

/// As [`parallel`]. What a chunk does is compiled once, not once more for each way to run it.
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

/// Runs `work` on ranges that together are `0..len`, each of `grain` elements but the last.
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

/// Runs `work` on the rows of `all`, `row` elements each, with the number of the row; so many rows are one piece of work.
/// What is left over of a last row is not touched.
#[inline]
pub fn rows_mut<T: Send>(all: &mut [T], row: usize, grain: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    row_ranges_mut(all, row, grain, |some, rows| {
        some.zip(rows.chunks_exact_mut(row)).for_each(|(i, row)| work(i, row));
    });
}

/// As [`rows_mut`], with all rows of a piece of work at once, and their numbers.
#[inline]
pub fn row_ranges_mut<T: Send>(
    all: &mut [T],
    row: usize,
    grain: usize,
    work: impl Fn(Range<usize>, &mut [T]) + Sync,
) {
    let (rows, to) = (all.len().checked_div(row).unwrap_or(0), Shared::new(all.as_mut_ptr()));
    ranges(rows, grain, |some| {
        // SAFETY: each row comes once, and they lie within the slice one after the other.
        let rows =
            unsafe { std::slice::from_raw_parts_mut(to.get().add(some.start * row), some.len() * row) };
        work(some, rows);
    });
}

/// Runs `work` on ranges that together are `0..len`, one after the other: the loop may end in between, see [`stop`].
#[inline]
pub fn in_turn(len: usize, grain: usize, mut work: impl FnMut(Range<usize>)) {
    for start in (0..len).step_by(grain.max(1)) {
        work(start..len.min(start.saturating_add(grain.max(1))));
        stop::poll();
    }
}

/// A pointer that the chunks of a loop share. That no two of them write the same element is up to the loop.
pub struct Shared<T>(*mut T);

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Shared<T> {}

// SAFETY: only an address; each use of it is an unsafe operation with its own reason.
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

//! Keeps freed memory alive while a run of a graph may still use it.
//!
//! A run holds pointers, not references: counting every buffer of every function costs more than a small kernel.
//! Instead, a buffer that is freed during runs waits until these have ended. Each run belongs to the epoch in which
//! it began. The epoch advances when no run of the previous one is left, and buffers freed in that one are released.
//!
//! Under a memory budget a run counts what it uses instead ([`StepPins`]), so that freed memory is available
//! immediately.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst, fence};

use parking_lot::{Mutex, MutexGuard};

use super::kernel_flag::is_amid_kernel;
use super::{Buffer, barrier, fork};

/// The current epoch. A buffer freed in it waits until no run of this or an earlier epoch is active.
static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Active runs of even and of odd epochs.
static RUNS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// Buffers freed in even and in odd epochs.
static FREED: Mutex<[Vec<Buffer>; 2]> = Mutex::new([Vec::new(), Vec::new()]);
/// Number of buffers in [`FREED`].
static WAITING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Active runs on this thread, of even and of odd epochs.
    static OWN: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
    /// Buffers pinned by counted steps on this thread.
    static HELD: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// Registers the thread-local with a destructor.
pub(super) fn begin_thread() {
    let _ = HELD.try_with(|_| ());
}

/// While it lives, what [`pin_for_step`] is given stays allocated. It belongs to its thread.
pub(crate) struct StepPins {
    /// The number of buffers held by the outer steps of this thread.
    outer: usize,
    /// Makes the type `!Send`: a value is dropped on the thread that made it.
    thread: PhantomData<*const ()>,
}

impl StepPins {
    /// Begins a step that counts the buffers it uses.
    pub(crate) fn new() -> Self {
        Self { outer: HELD.with_borrow(Vec::len), thread: PhantomData }
    }
}

impl Drop for StepPins {
    fn drop(&mut self) {
        // Dropping may release a view and call back into Python.
        let held = HELD.with_borrow_mut(|held| held.split_off(self.outer));
        drop(held);
    }
}

/// Keeps a buffer until the innermost [`StepPins`] of this thread ends.
pub(crate) fn pin_for_step(buffer: Buffer) {
    HELD.with_borrow_mut(|held| held.push(buffer));
}

/// Keeps memory that was readable at its creation allocated while it lives. Bound to its thread.
pub struct RunGuard {
    /// The parity of the epoch in which the run was counted.
    side: Cell<usize>,
    /// Makes the type `!Send`: a value is dropped on the thread that made it.
    thread: PhantomData<*const ()>,
}

impl RunGuard {
    /// Begins a run.
    pub fn new() -> Self {
        Self { side: Cell::new(enter()), thread: PhantomData }
    }

    /// Marks that the run is between two steps and holds no pointer, so that memory freed by other threads need not
    /// wait for its end.
    pub(crate) fn renew(&self) {
        if WAITING.load(SeqCst) > 0 {
            leave(self.side.replace(enter()));
            advance();
        }
    }
}

/// Counts a run in the current epoch, and returns the parity of the epoch.
fn enter() -> usize {
    loop {
        let epoch = EPOCH.load(SeqCst);
        let side = (epoch & 1) as usize;
        RUNS[side].fetch_add(1, SeqCst);
        // Before this run looks up addresses. Model: `freed_memory_waits_for_runs`.
        barrier::after_exchange();
        if EPOCH.load(SeqCst) == epoch {
            let mut own = OWN.get();
            own[side] += 1;
            OWN.set(own);
            return side;
        }
        RUNS[side].fetch_sub(1, SeqCst);
    }
}

/// Ends a run that was counted under that parity.
fn leave(side: usize) {
    let mut own = OWN.get();
    own[side] -= 1;
    OWN.set(own);
    RUNS[side].fetch_sub(1, SeqCst);
}

impl Default for RunGuard {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        leave(self.side.get());
        if WAITING.load(SeqCst) > 0 {
            advance();
        }
    }
}

/// Advances the epoch as far as runs allow, and frees the buffers that waited.
#[cold]
fn advance() {
    for _ in 0..2 {
        let mut freed = FREED.lock();
        let epoch = EPOCH.load(SeqCst);
        let before = (epoch.wrapping_add(1) & 1) as usize;
        if RUNS[before].load(SeqCst) > 0 {
            return;
        }
        let old = std::mem::take(&mut freed[before]);
        WAITING.fetch_sub(old.len(), SeqCst);
        EPOCH.store(epoch.wrapping_add(1), SeqCst);
        drop(freed);
        drop(old);
    }
}

/// Frees an unreachable buffer. Must not be called inside a kernel: the runs of this thread are between two steps and
/// hold no pointer, so only runs of other threads delay it.
pub(crate) fn release_between_steps(buffer: Buffer) {
    // A run that begins after the count cannot find the buffer.
    if is_anyone_in_a_kernel() {
        release(buffer);
    }
}

/// As [`release_between_steps`], for a buffer of a storage whose last reference was dropped.
pub(super) fn release_of_dropped(buffer: Buffer) {
    barrier::after_exchange(); // the subtraction from the count of references
    if may_be_in_use() {
        release(buffer);
    }
}

/// True if a run may hold pointers that it found before: one of another thread, or one of this thread inside a
/// kernel.
pub(super) fn is_anyone_in_a_kernel() -> bool {
    fence(SeqCst); // publish earlier writes before runs are counted
    may_be_in_use()
}

/// As [`is_anyone_in_a_kernel`], after a barrier.
#[inline]
fn may_be_in_use() -> bool {
    let runs: usize = RUNS.iter().map(|runs| runs.load(SeqCst)).sum();
    if runs == 0 {
        return false;
    }
    let own = match is_amid_kernel() {
        Some(false) => OWN.try_with(Cell::get).unwrap_or([0; 2]),
        _ => [0; 2],
    };
    runs > own.iter().sum::<usize>()
}

/// Frees a buffer once no run that could have seen it is active.
pub(crate) fn release(mut buffer: Buffer) {
    fence(SeqCst); // as above. Model: `freed_memory_waits_for_runs`.
    if RUNS.iter().all(|runs| runs.load(SeqCst) == 0) {
        return;
    }
    let mut freed = FREED.lock();
    let side = (EPOCH.load(SeqCst) & 1) as usize;
    buffer.write_off();
    freed[side].push(buffer);
    WAITING.fetch_add(1, SeqCst);
}

/// Registers fork handlers: a child counts only runs of its own thread. Buffers that wait are freed at the end of the
/// next run, when calling back is safe.
pub(super) fn guard_forks() {
    thread_local! {
        static LOCKED: Cell<fork::HeldGuard<MutexGuard<'static, [Vec<Buffer>; 2]>>> = const { Cell::new(None) };
    }
    /// Before a fork: locks the list of freed memory.
    extern "C" fn before() {
        fork::hold(&LOCKED, FREED.lock());
    }
    /// After a fork, in the parent: unlocks the list.
    extern "C" fn parent() {
        drop(fork::release(&LOCKED));
    }
    /// After a fork, in the child: unlocks the list, and keeps the runs of this thread only.
    extern "C" fn child() {
        let own = OWN.try_with(Cell::get).unwrap_or([0; 2]);
        RUNS.iter().zip(own).for_each(|(runs, own)| runs.store(own, SeqCst));
        if let Some(freed) = fork::release(&LOCKED) {
            fork::unlock_in_child(freed);
        }
    }
    fork::around(before, parent, child);
}

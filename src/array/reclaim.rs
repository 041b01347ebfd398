//! Keeps freed memory alive while a run of a graph may still use it.
//!
//! A run takes pointers, not counts: counting every buffer of every function costs more than a small kernel. Instead a
//! buffer that is freed while runs are under way waits until those have ended. Runs belong to the epoch in which they
//! began; the epoch moves on once no run of the one before is left, and what was freed in that one goes then.
//!
//! Under a budget of memory it is the other way round: there a run counts what it uses ([`StepPins`]), and has nobody wait.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst, fence};

use parking_lot::{Mutex, MutexGuard};

use super::{Buffer, fork};

static EPOCH: AtomicU64 = AtomicU64::new(0);
/// Runs under way of even and of odd epochs.
static RUNS: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];
/// Buffers freed in even and in odd epochs.
static FREED: Mutex<[Vec<Buffer>; 2]> = Mutex::new([Vec::new(), Vec::new()]);
static WAITING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Runs under way on this thread, of even and of odd epochs.
    static OWN: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
    /// Whether this thread is in the middle of a kernel, which asks whether to go on.
    static AMID_KERNEL: Cell<bool> = const { Cell::new(false) };
    /// What the runs on this thread use that count it.
    static HELD: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// Registers the thread-local with a destructor.
pub(super) fn begin_thread() {
    let _ = HELD.try_with(|_| ());
}

/// While it lives, what [`pin_for_step`] is given stays allocated. It belongs to its thread.
pub(crate) struct StepPins {
    outer: usize,
    thread: PhantomData<*const ()>,
}

impl StepPins {
    /// Says that a step begins which counts what it uses.
    pub(crate) fn new() -> Self {
        Self { outer: HELD.with_borrow(Vec::len), thread: PhantomData }
    }
}

impl Drop for StepPins {
    fn drop(&mut self) {
        // What is dropped may be a view's, and may call back.
        let held = HELD.with_borrow_mut(|held| held.split_off(self.outer));
        drop(held);
    }
}

/// Keeps a buffer until the innermost [`StepPins`] of this thread ends.
pub(crate) fn pin_for_step(buffer: Buffer) {
    HELD.with_borrow_mut(|held| held.push(buffer));
}

/// While it lives, memory that was readable when it was made stays allocated. It belongs to its thread.
pub struct RunGuard {
    side: Cell<usize>,
    thread: PhantomData<*const ()>,
}

impl RunGuard {
    /// Says that a run begins.
    pub fn new() -> Self {
        Self { side: Cell::new(enter()), thread: PhantomData }
    }

    /// Says that the run is between two steps and follows no pointer: what others have freed need not wait for its end.
    pub(crate) fn renew(&self) {
        if WAITING.load(SeqCst) > 0 {
            leave(self.side.replace(enter()));
            advance();
        }
    }
}

/// Calls `f` in the middle of a kernel: until it returns, the runs of this thread follow pointers as those of others may.
pub(crate) fn amid_kernel<R>(f: impl FnOnce() -> R) -> R {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            AMID_KERNEL.set(self.0);
        }
    }
    let _back = Back(AMID_KERNEL.replace(true));
    f()
}

/// Counts a run of the epoch that it is, and says of which side that is.
fn enter() -> usize {
    loop {
        let epoch = EPOCH.load(SeqCst);
        let side = (epoch & 1) as usize;
        RUNS[side].fetch_add(1, SeqCst);
        if EPOCH.load(SeqCst) == epoch {
            let mut own = OWN.get();
            own[side] += 1;
            OWN.set(own);
            return side;
        }
        RUNS[side].fetch_sub(1, SeqCst);
    }
}

/// Says that a run that was counted on that side is counted there no more.
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

/// Moves the epoch on as far as runs allow, and frees what waited for that.
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

/// Frees a buffer that nobody can find any more, not being called from within a kernel: the runs of this thread are
/// between two steps, where they follow no pointer, and only those of other threads are waited for.
pub(crate) fn release_between_steps(buffer: Buffer) {
    // A run that begins after the count cannot find the buffer.
    if is_anyone_in_a_kernel() {
        release(buffer);
    }
}

/// Whether a run may follow pointers that it found before now: one of another thread, or one of this thread that is in the
/// middle of a kernel.
pub(super) fn is_anyone_in_a_kernel() -> bool {
    fence(SeqCst); // what was published before is seen before runs are counted
    let runs: usize = RUNS.iter().map(|runs| runs.load(SeqCst)).sum();
    let own = match AMID_KERNEL.try_with(Cell::get) {
        Ok(false) => OWN.try_with(Cell::get).unwrap_or([0; 2]),
        _ => [0; 2],
    };
    runs > own.iter().sum::<usize>()
}

/// Frees a buffer once no run that could have seen it is under way.
pub(crate) fn release(mut buffer: Buffer) {
    fence(SeqCst); // as above
    if RUNS.iter().all(|runs| runs.load(SeqCst) == 0) {
        return;
    }
    let mut freed = FREED.lock();
    let side = (EPOCH.load(SeqCst) & 1) as usize;
    buffer.write_off();
    freed[side].push(buffer);
    WAITING.fetch_add(1, SeqCst);
}

/// Has a child count the runs of its own thread alone: those of the others are not there to end. What waits for them goes with
/// the end of the next run, when it is safe to call back.
pub(super) fn guard_forks() {
    thread_local! {
        static LOCKED: Cell<fork::HeldGuard<MutexGuard<'static, [Vec<Buffer>; 2]>>> = const { Cell::new(None) };
    }
    extern "C" fn before() {
        fork::hold(&LOCKED, FREED.lock());
    }
    extern "C" fn parent() {
        drop(fork::release(&LOCKED));
    }
    extern "C" fn child() {
        let own = OWN.try_with(Cell::get).unwrap_or([0; 2]);
        RUNS.iter().zip(own).for_each(|(runs, own)| runs.store(own, SeqCst));
        parent();
    }
    fork::around(before, parent, child);
}

//! The thread pool: threads that spin briefly for the next loop, then sleep.
//!
//! There is one loop at a time. Each thread has the same share of the chunks in every loop, so that a core reads the
//! data that it wrote from its cache. A thread that is done helps others.
//!
//! Models in `tests/memory/orderings.rs`: `the_gate_publishes_a_loop_and_its_results`,
//! `a_thread_that_goes_to_sleep_hears_of_a_loop` and `a_caller_that_goes_to_sleep_hears_of_the_last_thread`.

use std::any::Any;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::array::has_addresses;
use crate::kernels::begin_thread;
use crate::kernels::stop;

/// How long a thread spins before it sleeps: longer than most gaps between kernels, including those where Python
/// runs, and short enough not to disturb other programs.
const SPIN: Duration = Duration::from_micros(100);

/// Addresses that a thread takes when it begins: a stack of 2 MiB, and what the C library allocates for it.
const THREAD_NEEDS: usize = 4 << 20;

/// Flag of the gate: threads may enter. The gate has, from the lowest bit, the number of threads inside, two flags, and
/// the number of the loop.
const OPEN: u64 = 1 << 31;
/// Flag of the gate: the thread that began the loop sleeps until the last one leaves.
const CALLER_SLEEPS: u64 = 1 << 30;
/// Mask of the number of threads inside.
const INSIDE: u64 = CALLER_SLEEPS - 1;
/// One loop in the number of the loop.
const LOOP: u64 = 1 << 32;

/// A value alone on its cache lines, so that writes to others do not slow it down.
#[repr(align(128))]
struct Line<T>(T);

/// A loop: `body(i)` for each `i` below `count`. The caller waits for every thread inside, so the body outlives the
/// loop.
#[derive(Clone, Copy)]
struct LoopWork {
    /// Runs one chunk.
    body: *const (dyn Fn(usize) + Sync),
    /// The number of chunks.
    count: usize,
    /// The number of threads besides the caller.
    helpers: usize,
}

impl LoopWork {
    /// The chunks that a thread owns. The caller is the first thread.
    fn share(&self, of: usize) -> Range<usize> {
        let threads = self.helpers + 1;
        of * self.count / threads..(of + 1) * self.count / threads
    }
}

/// A thread of the pool.
struct Worker {
    /// The handle, to join the thread.
    thread: JoinHandle<()>,
    /// Flags that the thread and the callers share.
    signals: Arc<Signals>,
}

impl Worker {
    /// Wakes the thread up if it is asleep.
    fn wake(&self) {
        let asleep = &self.signals.asleep;
        if asleep.load(Ordering::SeqCst) && asleep.swap(false, Ordering::SeqCst) {
            self.thread.thread().unpark();
        }
    }
}

/// The state that a thread and the caller share.
#[derive(Default)]
struct Signals {
    /// The thread has its thread-locals.
    starts: AtomicBool,
    /// The thread sleeps, or is about to.
    asleep: AtomicBool,
    /// The thread is not wanted any more.
    ends: AtomicBool,
}

/// The threads of the process, and the loop that they run.
pub(super) struct Pool {
    /// The number of the loop, its flags and the number of threads inside, see [`OPEN`].
    gate: Line<AtomicU64>,
    /// Number of claimed chunks in each thread's share, for the widest loop so far.
    claimed: UnsafeCell<Vec<Line<AtomicUsize>>>,
    /// The current or last loop.
    work: UnsafeCell<LoopWork>,
    /// True while a caller uses the pool.
    taken: AtomicBool,
    /// The threads, without the callers.
    workers: UnsafeCell<Vec<Worker>>,
    /// The first panic of the current loop.
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    /// Locked by a caller that sleeps, and by the last thread that leaves.
    sleep: Mutex<()>,
    /// Notified by the last thread that leaves.
    last_out: Condvar,
}

// SAFETY: only the thread that has `taken` the pool writes `work` and the list `claimed`, while the gate is closed and
// no thread is inside. They are read only by threads inside. `workers` is accessed only by the thread that
// has taken the pool.
unsafe impl Sync for Pool {}

/// The pool of the process. Null until the first parallel loop.
static POOL: AtomicPtr<Pool> = AtomicPtr::new(std::ptr::null_mut());
/// True if the current loop was ended by a panic.
pub(super) static ENDED: AtomicBool = AtomicBool::new(false);

/// True if the current loop was ended, so helpers need not finish their chunks.
pub(in crate::kernels) fn is_ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

/// Locks a mutex, also after a panic of its holder.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Spins until `done`, or until the time is over and then returns `false`.
fn spin(done: impl Fn() -> bool) -> bool {
    let mut start = None;
    loop {
        for _ in 0..16 {
            if done() {
                return true;
            }
            std::hint::spin_loop();
        }
        // Reading the clock costs as much as a short wait.
        if start.get_or_insert_with(Instant::now).elapsed() > SPIN {
            return done();
        }
    }
}

impl Pool {
    /// Runs a loop on up to `threads` threads. Returns `false` and does nothing if another loop is running.
    pub(super) fn run(threads: usize, count: usize, body: &(dyn Fn(usize) + Sync)) -> bool {
        let pool = Self::global();
        if pool.taken.load(Ordering::Relaxed) || pool.taken.swap(true, Ordering::Acquire) {
            return false;
        }
        // SAFETY: only the lifetime is erased, and the loop ends before `body` does.
        let body: &'static (dyn Fn(usize) + Sync) = unsafe { std::mem::transmute(body) };
        let work = LoopWork { body, count, helpers: threads - 1 };
        let caught = pool.share(work);
        // SAFETY: the pool is taken by this thread.
        let workers = unsafe { &*pool.workers.get() }.len();
        pool.taken.store(false, Ordering::Release);
        if workers >= super::num_threads() {
            Self::end_surplus(super::num_threads() - 1); // fewer are wanted since the loop began
        }
        if let Some(panic) = caught {
            resume_unwind(panic);
        }
        true
    }

    /// The pool of this process, created if needed.
    fn global() -> &'static Self {
        let pool = POOL.load(Ordering::Acquire);
        // SAFETY: pools are leaked, so the pointer stays valid.
        if let Some(pool) = unsafe { pool.as_ref() } {
            return pool;
        }
        Self::create()
    }

    /// Creates the pool, unless another thread is faster.
    #[cold]
    fn create() -> &'static Self {
        static FORKS: Once = Once::new();
        FORKS.call_once(forget_pool_in_children);
        let pool = Box::into_raw(Box::new(Self {
            gate: Line(AtomicU64::new(0)),
            claimed: UnsafeCell::new(Vec::new()),
            work: UnsafeCell::new(LoopWork { body: &|_| {}, count: 0, helpers: 0 }),
            taken: AtomicBool::new(false),
            workers: UnsafeCell::new(Vec::new()),
            panic: Mutex::new(None),
            sleep: Mutex::new(()),
            last_out: Condvar::new(),
        }));
        match POOL.compare_exchange(std::ptr::null_mut(), pool, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just created, and leaked.
            Ok(_) => unsafe { &*pool },
            Err(first) => {
                // SAFETY: no other thread has seen this pool, and the other one is leaked.
                unsafe {
                    drop(Box::from_raw(pool));
                    &*first
                }
            }
        }
    }

    /// Opens the gate, works, closes the gate, and waits for the threads inside. The caller has taken the pool.
    fn share(&'static self, work: LoopWork) -> Option<Box<dyn Any + Send>> {
        // SAFETY: this thread has taken the pool, the gate is closed, and no thread is inside.
        let (workers, claimed) = unsafe {
            *self.work.get() = work;
            (&mut *self.workers.get(), &mut *self.claimed.get())
        };
        claimed.resize_with(claimed.len().max(work.helpers + 1), || Line(AtomicUsize::new(0)));
        for claimed in claimed {
            *claimed.0.get_mut() = 0;
        }
        ENDED.store(false, Ordering::Relaxed);
        self.gate.0.fetch_add(LOOP | OPEN, Ordering::SeqCst);
        while workers.len() < work.helpers {
            let Some(worker) = self.spawn(workers.len()) else { break };
            workers.push(worker);
        }
        workers.iter().take(work.helpers).for_each(Worker::wake);
        self.claim(&work, 0);
        self.gate.0.fetch_and(!OPEN, Ordering::AcqRel);
        self.wait(&work);
        lock(&self.panic).take()
    }

    /// Runs chunks until all are claimed, the own share of thread `me` first. After a panic no chunk is claimed.
    fn claim(&self, work: &LoopWork, me: usize) {
        // SAFETY: this thread is inside, so the list is not being written.
        let claimed = unsafe { &*self.claimed.get() };
        let chunks = || {
            for of in (me..=work.helpers).chain(0..me) {
                let share = work.share(of);
                loop {
                    let i = share.start + claimed[of].0.fetch_add(1, Ordering::Relaxed);
                    if i >= share.end {
                        break;
                    }
                    // SAFETY: this thread is inside, so the loop is not over.
                    unsafe { (*work.body)(i) };
                    stop::poll();
                }
            }
        };
        self.run_or_end(work, chunks);
    }

    /// Runs a part of the loop. A panic in it ends the loop.
    fn run_or_end(&self, work: &LoopWork, part: impl FnOnce()) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(part)) {
            lock(&self.panic).get_or_insert(panic);
            ENDED.store(true, Ordering::Relaxed);
            // SAFETY: this thread is inside or started the loop, so the list is not being written.
            for claimed in unsafe { &*self.claimed.get() } {
                claimed.0.store(work.count, Ordering::Relaxed);
            }
        }
    }

    /// Waits until no thread is inside, spinning first because most chunks are short. The loop may be interrupted
    /// meanwhile.
    fn wait(&self, work: &LoopWork) {
        let empty = || self.gate.0.load(Ordering::Acquire) & INSIDE == 0;
        if spin(empty) {
            return;
        }
        let mut guard = lock(&self.sleep);
        while self.gate.0.fetch_or(CALLER_SLEEPS, Ordering::AcqRel) & INSIDE != 0 {
            if !stop::asks() || is_ended() {
                guard = self.last_out.wait(guard).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            drop(self.last_out.wait_timeout(guard, stop::EVERY).unwrap_or_else(PoisonError::into_inner));
            self.run_or_end(work, stop::poll);
            guard = lock(&self.sleep);
        }
        self.gate.0.fetch_and(!CALLER_SLEEPS, Ordering::AcqRel);
    }

    /// Starts a thread of the pool. None if the system has no resources for it.
    fn spawn(&'static self, index: usize) -> Option<Worker> {
        // If memory for the thread-locals of a new thread runs out, the C library aborts.
        if !has_addresses(THREAD_NEEDS) {
            return None;
        }
        let signals = Arc::<Signals>::default();
        let own = Arc::clone(&signals);
        let thread = std::thread::Builder::new()
            .name(format!("kinnor-{}", index + 1))
            .spawn(move || self.serve(index, &own))
            .ok()?;
        // Allocates only what was requested, unless another thread allocates meanwhile.
        while !signals.starts.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Some(Worker { thread, signals })
    }

    /// Ends the threads beyond `helpers`, and waits until they have ended. Where a loop is under way, they end
    /// after it.
    pub(super) fn end_surplus(helpers: usize) {
        // SAFETY: pools are leaked, so a pointer to one stays good.
        let Some(pool) = (unsafe { POOL.load(Ordering::Acquire).as_ref() }) else { return };
        if pool.taken.swap(true, Ordering::Acquire) {
            return;
        }
        // SAFETY: the pool is taken by this thread.
        let workers = unsafe { &mut *pool.workers.get() };
        let surplus = workers.split_off(helpers.min(workers.len()));
        pool.taken.store(false, Ordering::Release);
        for worker in &surplus {
            worker.signals.ends.store(true, Ordering::SeqCst);
            worker.wake();
        }
        for worker in surplus {
            drop(worker.thread.join()); // panics were caught within
        }
    }

    /// The loop of a thread of the pool: waits for work and helps with it.
    fn serve(&self, index: usize, Signals { starts, asleep, ends }: &Signals) {
        let mut seen = 0;
        stop::help();
        begin_thread();
        starts.store(true, Ordering::Release);
        while !ends.load(Ordering::Relaxed) {
            let waiting = |order| {
                let gate = self.gate.0.load(order);
                gate & OPEN != 0 && gate / LOOP != seen || ends.load(order)
            };
            if !spin(|| waiting(Ordering::Relaxed)) {
                asleep.store(true, Ordering::SeqCst);
                // Either this thread sees the open gate, or the caller sees the flag after opening it.
                while asleep.load(Ordering::SeqCst) && !waiting(Ordering::SeqCst) {
                    std::thread::park();
                }
                asleep.store(false, Ordering::SeqCst);
                continue;
            }
            let gate = self.gate.0.fetch_add(1, Ordering::AcqRel);
            if gate & OPEN != 0 && gate / LOOP != seen {
                seen = gate / LOOP;
                // SAFETY: this thread is inside an open gate: the caller wrote the loop before and waits for this
                // thread.
                let work = unsafe { *self.work.get() };
                if index < work.helpers {
                    self.claim(&work, index + 1);
                }
            }
            let before = self.gate.0.fetch_sub(1, Ordering::AcqRel);
            if before & CALLER_SLEEPS != 0 && before & INSIDE == 1 {
                drop(lock(&self.sleep));
                self.last_out.notify_one();
            }
        }
    }
}

/// Threads do not survive in a forked child: it forgets the pool and creates another on demand.
#[cfg(unix)]
fn forget_pool_in_children() {
    /// After a fork, in the child: forgets the pool, whose threads it does not have.
    extern "C" fn child() {
        POOL.store(std::ptr::null_mut(), Ordering::Release);
    }
    // SAFETY: the handler only stores to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(child)) };
}

/// Registers a handler, so that a forked child forgets the pool.
#[cfg(not(unix))]
fn forget_pool_in_children() {}

//! Models of the protocols between threads, run in every order that the language's memory model allows. On x86-64
//! wrong orderings hide, since its read-modify-writes are full barriers.
//!
//! Each model also runs with an ordering or a barrier left out, and has to fail then: so the ordering is needed. The
//! code that follows a protocol names its model. The checker takes sequentially consistent accesses for acquiring and
//! releasing ones, so where the code relies on more, a model has a fence.

use std::panic::{AssertUnwindSafe, catch_unwind};

use loom::cell::UnsafeCell;
use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use loom::sync::{Arc, Mutex};
use loom::thread;

/// Runs a model in every order.
fn holds(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Asserts that a model fails in some order, since an ordering or barrier is left out.
fn fails(model: impl Fn() + Sync + Send + 'static) {
    assert!(catch_unwind(AssertUnwindSafe(|| holds(model))).is_err(), "the ordering left out is not needed");
}

/// A barrier between all accesses before and after it, if true.
fn barrier(is_there: bool) {
    if is_there {
        fence(SeqCst);
    }
}

/// The address of the modelled memory, in the word `Storage::place`.
const ADDRESS: usize = 4096;
/// Flag in that word: the memory is set aside.
const ASIDE: usize = 32;

mod array {
    use super::*;

    /// `Storage::at` finds initialized elements: `Storage::publish` releases the address, and readers acquire it. The
    /// orderings are of the store and of the load of the address.
    fn address(publish: Ordering, look: Ordering) {
        let place = Arc::new(AtomicUsize::new(0));
        let memory = Arc::new(UnsafeCell::new(0));
        let (p, m) = (Arc::clone(&place), Arc::clone(&memory));
        let writer = thread::spawn(move || {
            // SAFETY: the checker reports races. Same below.
            m.with_mut(|m| unsafe { *m = 7 });
            p.store(ADDRESS, publish);
        });
        if place.load(look) != 0 {
            // SAFETY: as above.
            memory.with(|m| assert_eq!(unsafe { *m }, 7));
        }
        writer.join().expect("no panic");
    }

    #[test]
    fn an_address_is_published_after_the_elements() {
        holds(|| address(Release, Acquire));
        fails(|| address(Relaxed, Acquire));
        fails(|| address(Release, Relaxed));
    }

    /// The last owner frees a buffer after all uses: `Buffer::drop`, with its shortcut for a single owner. The
    /// orderings are of the load and of the decrement of the count.
    fn last_owner(look: Ordering, drop: Ordering) {
        let count = Arc::new(AtomicUsize::new(2));
        let memory = Arc::new(UnsafeCell::new(0));
        let owner = move |count: &AtomicUsize, memory: &UnsafeCell<i32>| {
            // SAFETY: as above.
            memory.with(|m| unsafe { std::hint::black_box(*m) });
            if count.load(look) != 1 {
                if count.fetch_sub(1, drop) != 1 {
                    return;
                }
                fence(Acquire);
            }
            // SAFETY: as above.
            memory.with_mut(|m| unsafe { *m = -1 });
        };
        let (c, m) = (Arc::clone(&count), Arc::clone(&memory));
        let other = thread::spawn(move || owner(&c, &m));
        owner(&count, &memory);
        other.join().expect("no panic");
    }

    #[test]
    fn a_buffer_is_freed_after_its_last_use() {
        holds(|| last_owner(Acquire, Release));
        fails(|| last_owner(Relaxed, Release));
        fails(|| last_owner(Acquire, Relaxed));
    }

    /// A write to a watched storage is noticed: `Storage::watch` on one thread, `Storage::take_back` and
    /// `Storage::touch` on the other. A thread whose argument is false leaves out its barrier.
    fn watched(watcher: bool, writer: bool) {
        /// Flag: a `Gone` watches the storage.
        const WATCHED: u8 = 1;
        let place = Arc::new(AtomicUsize::new(ADDRESS | ASIDE));
        let watched = Arc::new(AtomicU8::new(0));
        let disturbed = Arc::new(AtomicU64::new(1));
        let (p, w, d) = (Arc::clone(&place), Arc::clone(&watched), Arc::clone(&disturbed));
        let other = thread::spawn(move || {
            if p.compare_exchange(ADDRESS | ASIDE, ADDRESS, AcqRel, Relaxed).is_ok() {
                barrier(writer);
                if w.load(Relaxed) & WATCHED != 0 {
                    d.fetch_add(1, AcqRel);
                }
            }
        });
        let since = disturbed.load(Acquire);
        watched.store(WATCHED, Relaxed);
        barrier(watcher);
        let is_gone = place.load(Acquire) & ASIDE != 0;
        other.join().expect("no panic");
        if is_gone {
            assert_ne!(disturbed.load(Acquire), since, "written, and taken for freed for ever");
        }
    }

    #[test]
    fn a_write_to_watched_memory_is_noticed() {
        holds(|| watched(true, true));
        fails(|| watched(true, false));
        fails(|| watched(false, true));
    }

    /// A storage is not set aside while a view shows it: `Storage::set_aside` on one thread, `Storage::buffer` on the
    /// other. A thread whose argument is false leaves out its barrier.
    fn view(clearing: bool, viewing: bool) {
        let place = Arc::new(AtomicUsize::new(ADDRESS));
        let shown = Arc::new(AtomicU32::new(0));
        let (p, s) = (Arc::clone(&place), Arc::clone(&shown));
        let viewer = thread::spawn(move || {
            if p.load(Acquire) & ASIDE != 0 {
                return false; // cleared before
            }
            s.fetch_add(1, Relaxed);
            barrier(viewing);
            p.load(Acquire) & ASIDE == 0
        });
        if shown.load(Relaxed) == 0
            && place.compare_exchange(ADDRESS, ADDRESS | ASIDE, AcqRel, Relaxed).is_ok()
        {
            barrier(clearing);
            if shown.load(Relaxed) > 0 {
                let _ = place.compare_exchange(ADDRESS | ASIDE, ADDRESS, AcqRel, Relaxed);
            }
        }
        let has_view = viewer.join().expect("no panic");
        let is_aside = place.load(Acquire) & ASIDE != 0;
        assert!(!(has_view && is_aside), "the next run writes to memory that a view shows");
    }

    #[test]
    fn memory_set_aside_has_no_view() {
        holds(|| view(true, true));
        fails(|| view(false, true));
        fails(|| view(true, false));
    }

    /// Freed memory waits for runs that may read it: `reclaim::enter`, `leave`, `release` and `advance`.
    struct Reclaim {
        /// The number of the current epoch.
        epoch: AtomicU64,
        /// Active runs of even and of odd epochs.
        runs: [AtomicUsize; 2],
        /// True for each parity of epochs in which the memory was freed.
        freed: Mutex<[bool; 2]>,
        /// The number of freed blocks that wait for runs.
        waiting: AtomicUsize,
        /// The address of the memory, zero once it is freed.
        place: AtomicUsize,
        /// The memory.
        memory: UnsafeCell<i32>,
    }

    impl Reclaim {
        /// Counts a run, as `reclaim::enter` does. Returns the parity of its epoch. `fenced` is false to leave out the
        /// barrier.
        fn enter(&self, fenced: bool) -> usize {
            loop {
                let epoch = self.epoch.load(SeqCst);
                let side = (epoch & 1) as usize;
                self.runs[side].fetch_add(1, SeqCst);
                barrier(fenced);
                if self.epoch.load(SeqCst) == epoch {
                    return side;
                }
                self.runs[side].fetch_sub(1, SeqCst);
            }
        }

        /// Ends a run of this parity, and frees the memory that waited for it.
        fn leave(&self, side: usize) {
            self.runs[side].fetch_sub(1, SeqCst);
            if self.waiting.load(SeqCst) > 0 {
                self.advance();
            }
        }

        /// Begins the next epochs, and frees the memory that no run of an older epoch can read, as `reclaim::advance`
        /// does.
        fn advance(&self) {
            for _ in 0..2 {
                let mut freed = self.freed.lock().expect("no panic");
                let epoch = self.epoch.load(SeqCst);
                let before = (epoch.wrapping_add(1) & 1) as usize;
                if self.runs[before].load(SeqCst) > 0 {
                    return;
                }
                let is_there = std::mem::take(&mut freed[before]);
                self.waiting.fetch_sub(usize::from(is_there), SeqCst);
                self.epoch.store(epoch.wrapping_add(1), SeqCst);
                drop(freed);
                if is_there {
                    self.free();
                }
            }
        }

        /// Frees the memory, whose address was taken away before, or lets it wait for runs, as `reclaim::release` does.
        /// `fenced` is false to leave out the barrier.
        fn release(&self, fenced: bool) {
            barrier(fenced);
            if self.runs.iter().all(|runs| runs.load(SeqCst) == 0) {
                return self.free();
            }
            let mut freed = self.freed.lock().expect("no panic");
            freed[(self.epoch.load(SeqCst) & 1) as usize] = true;
            self.waiting.fetch_add(1, SeqCst);
        }

        /// Overwrites the memory. The checker reports a reader meanwhile.
        fn free(&self) {
            // SAFETY: as above.
            self.memory.with_mut(|m| unsafe { *m = -1 });
        }

        /// A run that reads the memory if it finds the address.
        fn run(&self, fenced: bool) {
            let side = self.enter(fenced);
            if self.place.load(Acquire) != 0 {
                // SAFETY: as above.
                self.memory.with(|m| assert_eq!(unsafe { *m }, 7));
            }
            self.leave(side);
        }
    }

    /// One thread runs while another releases the memory. An argument is false to leave out the barrier of `enter` or
    /// of `release`.
    fn freed(entering: bool, releasing: bool) {
        let shared = Arc::new(Reclaim {
            epoch: AtomicU64::new(0),
            runs: [AtomicUsize::new(0), AtomicUsize::new(0)],
            freed: Mutex::new([false; 2]),
            waiting: AtomicUsize::new(0),
            place: AtomicUsize::new(ADDRESS),
            memory: UnsafeCell::new(7),
        });
        let own = Arc::clone(&shared);
        let run = thread::spawn(move || own.run(entering));
        shared.place.store(0, Release);
        shared.release(releasing);
        run.join().expect("no panic");
    }

    #[test]
    fn freed_memory_waits_for_runs() {
        holds(|| freed(true, true));
        fails(|| freed(false, true));
        fails(|| freed(true, false));
    }

    /// Fingerprints, see `src/array/versions.rs`: data derived from half-written values is not found again.
    fn fingerprint(wrote: Option<Ordering>, take: Ordering) {
        /// No fingerprint, as `Fingerprint::NONE`.
        const NONE: u64 = 0;
        /// A storage of one element.
        struct Named {
            /// The fingerprint of the element.
            fingerprint: AtomicU64,
            /// The element.
            element: AtomicUsize,
        }
        /// `Storage::fingerprint`. The checker runs it once in each thread, with another new number.
        fn take_fingerprint(named: &Named, new: u64, order: Ordering) -> u64 {
            let own = named.fingerprint.load(order);
            if own != NONE {
                return own;
            }
            let both = if order == Relaxed { Relaxed } else { AcqRel };
            named.fingerprint.compare_exchange(NONE, new, both, order).map_or_else(|other| other, |_| new)
        }
        let named = Arc::new(Named { fingerprint: AtomicU64::new(1), element: AtomicUsize::new(0) });
        let own = Arc::clone(&named);
        let writer = thread::spawn(move || {
            own.fingerprint.store(NONE, Relaxed); // `touch`
            own.element.store(1, Relaxed);
            if let Some(order) = wrote {
                // `wrote`. A store in the code: the checker lets one come before an exchange that it follows.
                own.fingerprint.swap(NONE, order);
            }
        });
        let before = take_fingerprint(&named, 2, take);
        let derived = named.element.load(Relaxed);
        writer.join().expect("no panic");
        let is_found = take_fingerprint(&named, 3, take) == before;
        assert!(!is_found || derived == named.element.load(Relaxed), "derived from values that changed");
    }

    #[test]
    fn a_fingerprint_taken_during_a_write_does_not_last() {
        holds(|| fingerprint(Some(Release), Acquire));
        fails(|| fingerprint(None, Acquire));
        fails(|| fingerprint(Some(Relaxed), Acquire));
        fails(|| fingerprint(Some(Release), Relaxed));
    }

    /// Shelves of scratch memory: `workspace::Own`. Each of two threads adds a shelf, or finds the other one free.
    fn shelves(append: Ordering, claim: Ordering, leave: Ordering) {
        /// The cached block of one thread.
        struct Shelf {
            /// 1 while a thread owns the shelf, else 0.
            owned: AtomicUsize,
            /// The block.
            block: UnsafeCell<i32>,
            /// The number of the next shelf in the list, 0 at the end.
            next: UnsafeCell<usize>,
        }
        /// The list of shelves, which are numbered from 1.
        struct All {
            /// The number of the first shelf, 0 for an empty list.
            first: AtomicUsize,
            /// The shelves, in the list or not.
            shelves: [Shelf; 2],
        }
        /// `Own::new`, use of a block, and `drop`. Shelf `spare` is the one that the thread adds if it finds none.
        fn own(all: &All, spare: usize, [append, claim, leave]: [Ordering; 3]) {
            let read = if append == Relaxed { Relaxed } else { Acquire };
            let mut at = all.first.load(read);
            while at != 0 && all.shelves[at - 1].owned.swap(1, claim) != 0 {
                // SAFETY: as above.
                at = all.shelves[at - 1].next.with(|next| unsafe { *next });
            }
            if at == 0 {
                at = spare;
                all.shelves[at - 1].owned.store(1, Relaxed);
                let mut first = all.first.load(read);
                loop {
                    // SAFETY: as above.
                    all.shelves[at - 1].next.with_mut(|next| unsafe { *next = first });
                    match all.first.compare_exchange(first, at, append, read) {
                        Ok(_) => break,
                        Err(now) => first = now,
                    }
                }
            }
            // SAFETY: as above.
            all.shelves[at - 1].block.with_mut(|block| unsafe { *block += 1 });
            all.shelves[at - 1].owned.store(0, leave);
        }
        let shelf =
            || Shelf { owned: AtomicUsize::new(0), block: UnsafeCell::new(0), next: UnsafeCell::new(0) };
        let all = Arc::new(All { first: AtomicUsize::new(0), shelves: [shelf(), shelf()] });
        let orders = [append, claim, leave];
        let threads = [1, 2].map(|spare| {
            let all = Arc::clone(&all);
            thread::spawn(move || own(&all, spare, orders))
        });
        for thread in threads {
            thread.join().expect("no panic");
        }
    }

    #[test]
    fn a_shelf_has_one_owner() {
        holds(|| shelves(AcqRel, Acquire, Release));
        fails(|| shelves(Relaxed, Acquire, Release));
        fails(|| shelves(AcqRel, Relaxed, Release));
        fails(|| shelves(AcqRel, Acquire, Relaxed));
    }
}

mod pool {
    use super::*;

    /// Bit of the gate: helpers may take chunks of the loop.
    const OPEN: u64 = 1 << 31;
    /// Bit of the gate: the caller sleeps until the last helper leaves.
    const CALLER_SLEEPS: u64 = 1 << 30;
    /// Mask of the number of helpers inside.
    const INSIDE: u64 = CALLER_SLEEPS - 1;
    /// One loop in the number of the loop, which the high bits of the gate count.
    const LOOP: u64 = 1 << 32;

    /// A pool with one helper, whose loops have two chunks.
    struct Pool {
        /// The number of the loop, the bits `OPEN` and `CALLER_SLEEPS`, and the number of helpers inside.
        gate: AtomicU64,
        /// The current loop: a number that each chunk stores.
        work: UnsafeCell<u64>,
        /// The number of chunks that threads have claimed.
        claimed: AtomicUsize,
        /// The result of each chunk.
        chunks: [UnsafeCell<u64>; 2],
    }

    impl Pool {
        /// Runs chunks until all are claimed.
        fn claim(&self) {
            // SAFETY: the checker reports races. Same below.
            let work = self.work.with(|work| unsafe { *work });
            loop {
                let i = self.claimed.fetch_add(1, Relaxed);
                let Some(chunk) = self.chunks.get(i) else { return };
                // SAFETY: as above.
                chunk.with_mut(|chunk| unsafe { *chunk = work });
            }
        }

        /// Runs one loop as the caller, as `Pool::share` does, and asserts that each chunk got `work`. The orderings
        /// are of opening the gate and of waiting for the helper.
        fn share(&self, work: u64, [open, wait]: [Ordering; 2]) {
            // SAFETY: as above.
            self.work.with_mut(|own| unsafe { *own = work });
            self.claimed.store(0, Relaxed);
            self.gate.fetch_add(LOOP | OPEN, open);
            self.claim();
            self.gate.fetch_and(!OPEN, AcqRel);
            while self.gate.load(wait) & INSIDE != 0 {
                thread::yield_now();
            }
            for chunk in &self.chunks {
                // SAFETY: as above.
                assert_eq!(chunk.with(|chunk| unsafe { *chunk }), work);
            }
        }

        /// Looks at the gate once as a helper, as `Pool::serve` does, and runs chunks of a loop that it has not seen.
        /// The orderings are of entering and of leaving the gate.
        fn serve(&self, seen: &mut u64, [enter, leave]: [Ordering; 2]) {
            let gate = self.gate.fetch_add(1, enter);
            if gate & OPEN != 0 && gate / LOOP != *seen {
                *seen = gate / LOOP;
                self.claim();
            }
            self.gate.fetch_sub(1, leave);
        }
    }

    /// A caller runs two loops while a helper looks at the gate twice. The arguments are the orderings of
    /// `share` and of `serve`.
    fn gate(caller: [Ordering; 2], helper: [Ordering; 2]) {
        let pool = Arc::new(Pool {
            gate: AtomicU64::new(0),
            work: UnsafeCell::new(0),
            claimed: AtomicUsize::new(0),
            chunks: [UnsafeCell::new(0), UnsafeCell::new(0)],
        });
        let own = Arc::clone(&pool);
        let thread = thread::spawn(move || {
            let mut seen = 0;
            own.serve(&mut seen, helper);
            own.serve(&mut seen, helper);
        });
        pool.share(1, caller);
        pool.share(2, caller);
        thread.join().expect("no panic");
    }

    #[test]
    fn the_gate_publishes_a_loop_and_its_results() {
        holds(|| gate([SeqCst, Acquire], [AcqRel, AcqRel]));
        fails(|| gate([Relaxed, Acquire], [AcqRel, AcqRel]));
        fails(|| gate([SeqCst, Relaxed], [AcqRel, AcqRel]));
        fails(|| gate([SeqCst, Acquire], [Release, AcqRel]));
        fails(|| gate([SeqCst, Acquire], [AcqRel, Acquire]));
    }

    /// A thread that goes to sleep does not miss a loop that a caller opens: `Worker::wake` and `Pool::serve`. A thread
    /// whose argument is false leaves out its barrier.
    fn sleep(caller: bool, helper: bool) {
        let gate = Arc::new(AtomicU64::new(0));
        let asleep = Arc::new(AtomicU8::new(0));
        let (g, a) = (Arc::clone(&gate), Arc::clone(&asleep));
        let worker = thread::spawn(move || {
            a.store(1, SeqCst);
            barrier(helper);
            g.load(SeqCst) & OPEN == 0
        });
        gate.fetch_add(LOOP | OPEN, SeqCst);
        barrier(caller);
        let wakes = asleep.load(SeqCst) != 0 && asleep.swap(0, SeqCst) != 0;
        let sleeps = worker.join().expect("no panic");
        assert!(wakes || !sleeps, "the thread sleeps for ever");
    }

    #[test]
    fn a_thread_that_goes_to_sleep_hears_of_a_loop() {
        holds(|| sleep(true, true));
        fails(|| sleep(true, false));
        fails(|| sleep(false, true));
    }

    /// A caller that goes to sleep does not miss the last helper that leaves: `Pool::wait`. `locks` is false if the
    /// helper does not take the lock.
    fn last_out(locks: bool) {
        let gate = Arc::new(AtomicU64::new(OPEN | 1));
        let sleep = Arc::new((Mutex::new(()), AtomicU8::new(0)));
        let (g, s) = (Arc::clone(&gate), Arc::clone(&sleep));
        let helper = thread::spawn(move || {
            let before = g.fetch_sub(1, AcqRel);
            if before & CALLER_SLEEPS == 0 || before & INSIDE != 1 {
                return false;
            }
            if locks {
                drop(s.0.lock().expect("no panic"));
            }
            s.1.load(Acquire) != 0 // a notification reaches only who waits already
        });
        gate.fetch_and(!OPEN, AcqRel);
        let guard = sleep.0.lock().expect("no panic");
        let waits = gate.fetch_or(CALLER_SLEEPS, AcqRel) & INSIDE != 0;
        sleep.1.store(u8::from(waits), Release);
        drop(guard);
        let wakes = helper.join().expect("no panic");
        assert!(wakes || !waits, "the caller sleeps for ever");
    }

    #[test]
    fn a_caller_that_goes_to_sleep_hears_of_the_last_thread() {
        holds(|| last_out(true));
        fails(|| last_out(false));
    }
}

mod graph {
    use super::*;

    /// The run locks of `src/graph/arena/run_lock.rs`, for a graph of two functions.
    #[derive(Default)]
    struct RunLocks {
        /// True for each function that a run uses.
        busy: [bool; 2],
        /// The number of runs that lock their functions individually.
        single: usize,
        /// The functions of a run that did not mark them as busy yet.
        leased: Option<Vec<usize>>,
    }

    impl RunLocks {
        /// Marks the functions of the leased run as busy, as `Arena::flush` does.
        fn flush(&mut self) {
            for f in self.leased.take().into_iter().flatten() {
                self.busy[f] = true;
                self.single = 1;
            }
        }

        /// Locks the functions of a plan, as `Arena::lock_run` does. Returns false if one is in use. `flushes` is false
        /// to leave out `flush`.
        fn lock(&mut self, plan: &[usize], flushes: bool) -> bool {
            if self.single == 0 && self.leased.is_none() {
                self.leased = Some(plan.to_vec());
                return true;
            }
            if flushes {
                self.flush();
            }
            if plan.iter().any(|f| self.busy[*f]) {
                return false;
            }
            for f in plan {
                self.busy[*f] = true;
            }
            self.single += 1;
            true
        }

        /// Unlocks the functions of a plan, as `Arena::unlock_run` does.
        fn unlock(&mut self, plan: &[usize]) {
            if self.leased.as_deref() == Some(plan) {
                self.leased = None;
                return;
            }
            self.flush();
            for f in plan {
                self.busy[*f] = false;
            }
            self.single -= 1;
        }
    }

    /// Two threads run overlapping plans. `flushes` is false to leave out the flush before a lock.
    fn run_locks(flushes: bool) {
        let arena = Arc::new(Mutex::new(RunLocks::default()));
        let values = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
        let run = move |arena: &Mutex<RunLocks>, values: &[UnsafeCell<i32>; 2], plan: &[usize]| {
            if arena.lock().expect("no panic").lock(plan, flushes) {
                for f in plan {
                    // SAFETY: the checker reports races.
                    values[*f].with_mut(|v| unsafe { *v += 1 });
                }
                arena.lock().expect("no panic").unlock(plan);
            }
        };
        let (a, v) = (Arc::clone(&arena), Arc::clone(&values));
        let other = thread::spawn(move || run(&a, &v, &[0, 1]));
        run(&arena, &values, &[1]);
        other.join().expect("no panic");
        let mut arena = arena.lock().expect("no panic");
        arena.flush();
        assert!(arena.busy == [false; 2] && arena.single == 0);
    }

    #[test]
    fn functions_have_one_run_at_a_time() {
        holds(|| run_locks(true));
        fails(|| run_locks(false));
    }

    /// A mark of `src/graph/arena/validity.rs`, which a dropped plan sets without the lock of the arena. `together` is
    /// false to change it by a load and a store.
    fn plan_mark(together: bool) {
        /// A premise of the plan has changed.
        const OUTDATED: u8 = 1;
        /// A tensor has other memory.
        const MOVED: u8 = 2;
        let mark = Arc::new(AtomicU8::new(MOVED));
        let own = Arc::clone(&mark);
        let dropped = thread::spawn(move || own.fetch_or(OUTDATED, Relaxed));
        if together {
            mark.fetch_and(!MOVED, Relaxed);
        } else {
            mark.store(mark.load(Relaxed) & !MOVED, Relaxed);
        }
        dropped.join().expect("no panic");
        assert_eq!(mark.load(Relaxed), OUTDATED);
    }

    #[test]
    fn marks_of_plans_are_not_lost() {
        holds(|| plan_mark(true));
        fails(|| plan_mark(false));
    }
}

//! The allocator: counts, limits, threads and forks. Tests run one at a time, because the counts are global.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};

use kinnor::Error;
use kinnor::array::{
    Access, Buffer, DType, Storage, clear_memory_cache, fail_allocations, memory_stats, reset_peak_memory,
    set_memory_limit,
};

const MB: usize = 1 << 20;

/// Holds the lock of the tests. Publishes the counts of this thread before the lock is released.
struct Alone(#[allow(dead_code)] MutexGuard<'static, ()>);

impl Drop for Alone {
    fn drop(&mut self) {
        memory_stats();
    }
}

/// Waits until no other test runs.
fn alone() -> Alone {
    static ALONE: Mutex<()> = Mutex::new(());
    Alone(ALONE.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Allocates a buffer.
fn buffer(bytes: usize) -> Buffer {
    Buffer::new(bytes).expect("memory")
}

#[test]
fn counts_follow_buffers() {
    let _alone = alone();
    let before = memory_stats();
    reset_peak_memory();
    let (small, large) = (buffer(1000), buffer(10 * MB));
    let shared = large.clone();
    assert_eq!(memory_stats().live, before.live + 1000 + 10 * MB);
    drop(large);
    assert_eq!(memory_stats().live, before.live + 1000 + 10 * MB);
    drop(shared);
    drop(small);
    let after = memory_stats();
    assert_eq!(after.live, before.live);
    assert!(after.peak >= before.live + 10 * MB && after.cached >= 10 * MB, "{after:?}");
    clear_memory_cache();
    assert!(memory_stats().cached < after.cached);
    reset_peak_memory();
    assert_eq!(memory_stats().peak, before.live);
}

#[test]
fn borrowed_memory_is_returned_once() {
    struct Owner(Vec<u8>, mpsc::Sender<u8>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.send(self.0[0]).expect("the test listens");
        }
    }
    let (sender, returned) = mpsc::channel();
    let _alone = alone();
    let before = memory_stats().live;
    let mut owner = Box::new(Owner(vec![1, 2, 3], sender));
    let start = NonNull::from(&mut owner.0[0]);
    // SAFETY: the owner does not move its bytes.
    let first = unsafe { Buffer::borrowed(start, 3, owner) };
    assert!(first.is_shared());
    assert_eq!((first.ptr(), first.bytes()), (start.as_ptr(), 3));
    let second = first.clone();
    drop(first);
    // SAFETY: the bytes stay valid while the second handle lives.
    unsafe { second.ptr().write(7) };
    assert!(returned.try_recv().is_err());
    drop(second);
    assert_eq!(returned.try_iter().collect::<Vec<_>>(), [7]);
    assert_eq!(memory_stats().live, before);
}

#[test]
fn buffers_are_aligned_and_do_not_overlap() {
    let _alone = alone();
    let buffers: Vec<_> = (0..2000).map(|i| (i, buffer(i * i % 40_000))).collect();
    for (i, b) in &buffers {
        assert_eq!(b.ptr().align_offset(64), 0);
        // SAFETY: the buffer has this number of bytes.
        unsafe { b.ptr().write_bytes(*i as u8, b.bytes()) };
    }
    for (i, b) in &buffers {
        // SAFETY: all bytes were written above.
        let bytes = unsafe { std::slice::from_raw_parts(b.ptr(), b.bytes()) };
        assert!(bytes.iter().all(|&v| v == *i as u8));
    }
}

#[test]
fn no_memory_is_an_error() {
    let _alone = alone();
    for bytes in [1 << 60, usize::MAX, usize::MAX - 63, isize::MAX as usize] {
        assert!(matches!(Buffer::new(bytes), Err(Error::Memory { bytes: b }) if b == bytes));
    }
    assert!(Buffer::new(0).is_ok());
}

#[test]
fn a_limit_holds_until_memory_is_freed() {
    let _alone = alone();
    clear_memory_cache();
    let stats = memory_stats();
    set_memory_limit(Some(stats.live + stats.cached + 32 * MB));
    let first = buffer(20 * MB);
    // Well above the remainder, because the thread of the last test may return its cache only now.
    assert!(matches!(Buffer::new(40 * MB), Err(Error::Memory { .. })));
    let many: Vec<_> = std::iter::from_fn(|| Buffer::new(1000).ok()).take(1_000_000).collect();
    assert!(many.len() > 1000 && many.len() < 1_000_000);
    drop(first);
    assert!(Buffer::new(18 * MB).is_ok());
    set_memory_limit(None);
    assert!(Buffer::new(200 * MB).is_ok());
}

#[test]
fn memory_freed_in_another_thread_is_reused() {
    let _alone = alone();
    let before = memory_stats();
    let (send, receive) = mpsc::channel::<Buffer>();
    let consumer = std::thread::spawn(move || receive.into_iter().count());
    for i in 0..200_000 {
        let b = buffer(64 + i % 5000);
        // SAFETY: the buffer is ours and has at least one byte.
        unsafe { b.ptr().write(1) };
        send.send(b).expect("the consumer lives");
        if i % 1000 == 0 {
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
    }
    drop(send);
    assert_eq!(consumer.join().expect("no panic"), 200_000);
    let after = memory_stats();
    assert_eq!(after.live, before.live);
    // Without reuse it would be 500 MB.
    assert!(after.cached < before.cached + 250 * MB, "{after:?}");
    clear_memory_cache();
    assert!(memory_stats().cached < before.cached + 8 * MB);
}

#[cfg(unix)]
#[test]
fn forked_children_allocate() {
    let _alone = alone();
    std::thread::scope(|s| {
        let test = Arc::new(()); // dropped at the end and by a panic, so that the threads stop in either case
        // Other threads hold the lock of the store most of the time.
        let busy = [(); 2].map(|()| {
            let runs = Arc::downgrade(&test);
            s.spawn(move || {
                while runs.strong_count() > 0 {
                    drop((buffer(40_000), buffer(70_000)));
                }
            })
        });
        for _ in 0..20 {
            // SAFETY: the child only allocates buffers and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let all: Vec<_> = (0..100).map(|i| Buffer::new(i * 1000)).collect();
                let code = i32::from(all.iter().any(Result::is_err));
                // SAFETY: exits immediately, and runs no code of the parent.
                unsafe { libc::_exit(code) };
            }
            let mut status = -1;
            // SAFETY: waits for the child made above.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            assert_eq!(status, 0);
        }
        drop(test);
        for thread in busy {
            thread.join().expect("no panic");
        }
    });
}

#[test]
fn a_write_without_memory_changes_nothing() {
    let _alone = alone();
    let make = |lazily: bool| {
        let storage = Storage::new(5000);
        let ptr = storage.access(DType::F32, Access::Write).expect("memory");
        // SAFETY: the pointer is to this number of elements of this type, and is not shared.
        unsafe { std::slice::from_raw_parts_mut(ptr.cast::<f32>(), 5000) }.fill(3.0);
        storage.wrote();
        if lazily {
            storage.fill(3.0).expect("is whole");
        }
        storage
    };
    let is_as_it_was = |storage: &Storage| {
        let ptr = storage.access(DType::F32, Access::Read).expect("is there");
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts(ptr.cast::<f32>(), 5000) }.iter().all(|v| *v == 3.0)
    };
    for dtype in [DType::F64, DType::F16, DType::I64, DType::Bool] {
        for access in [Access::Read, Access::ReadWrite, Access::Write, Access::Show] {
            for lazily in [false, true] {
                let storage = make(lazily);
                fail_allocations(0..usize::MAX);
                let done = storage.access(dtype, access);
                let tried = fail_allocations(0..0);
                // Cached memory may suffice.
                let fits = lazily && dtype.size() <= 4 && access != Access::Read;
                assert_eq!(done.is_ok(), fits, "{dtype} {access:?} {lazily}");
                if done.is_ok() {
                    continue;
                }
                assert!(tried == 1 && matches!(done, Err(Error::Memory { .. })));
                let other = make(false); // does not get the same memory
                assert!(is_as_it_was(&storage) && is_as_it_was(&other));
                assert_eq!(storage.dtype(), Some(DType::F32));
                assert_eq!(storage.modification_count(), 1);
                assert!(storage.access(dtype, access).is_ok());
            }
        }
    }
}

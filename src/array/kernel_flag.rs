//! Whether a thread is inside a kernel.

use std::cell::Cell;

thread_local! {
    /// True while this thread is inside a kernel, which polls for interruption.
    static AMID_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// True if this thread is inside a kernel. None while the thread ends.
pub(super) fn is_amid_kernel() -> Option<bool> {
    AMID_KERNEL.try_with(Cell::get).ok()
}

/// Calls `f` from inside a kernel. Until it returns, the runs of this thread hold pointers.
pub(crate) fn amid_kernel<R>(f: impl FnOnce() -> R) -> R {
    /// Restores the former flag when it is dropped.
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            AMID_KERNEL.set(self.0);
        }
    }
    let _back = Back(AMID_KERNEL.replace(true));
    f()
}

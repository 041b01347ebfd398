//! A barrier for threads that each write one place and then look at another.

/// Orders an atomic read-modify-write before later reads, as all threads see them. On x86-64 the read-modify-write is
/// such a barrier by itself, so only the compiler must keep the order.
#[inline(always)]
pub(super) fn after_exchange() {
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

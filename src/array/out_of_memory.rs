//! The error of a failed allocation.

/// Memory is exhausted, or a limit forbids the allocation.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("cannot allocate {bytes} bytes")]
pub struct OutOfMemory {
    /// Bytes that were requested.
    pub bytes: usize,
}

//! Memory that holds numbers: types, shapes, buffers, storages. Knows no operations, graphs or Python.

mod access;
mod account;
mod allocator;
mod barrier;
mod block;
mod buffer;
mod contents;
mod copy;
mod demand;
mod dtype;
mod fingerprint;
pub(crate) mod fork;
mod gone;
pub(crate) mod headroom;
mod kept;
mod kernel_flag;
mod out_of_memory;
mod part;
mod reclaim;
mod shape;
mod shortage;
pub(crate) mod sixteen;
mod spans;
mod storage;
mod store;
mod system;
mod versions;
mod view;
mod whole;
mod workspace;

pub(crate) use account::{Account, Paying, pay_from};
pub(crate) use allocator::limit_of_environment;
pub(crate) use allocator::take_step_peak;
pub use allocator::{MemoryStats, clear_memory_cache, memory_stats, reset_peak_memory, set_memory_limit};
#[doc(hidden)]
pub use buffer::Buffer;
#[doc(hidden)]
pub use dtype::convert;
pub use dtype::{DType, Element};
pub use fingerprint::{Fingerprint, VersionedFingerprint};
pub(crate) use gone::{Calm, Gone};
pub(crate) use kept::Lent;
#[doc(hidden)]
pub use kept::{DerivedCache, InputCache};
pub(crate) use kernel_flag::amid_kernel;
pub use out_of_memory::OutOfMemory;
#[doc(hidden)]
pub use reclaim::RunGuard;
pub(crate) use reclaim::{StepPins, pin_for_step};
pub use shape::Shape;
pub use shortage::fail_allocations;
pub use storage::{Access, Storage};
pub(crate) use system::has_addresses;
pub use view::View;
pub(crate) use whole::{Odd, exact_below};
pub(crate) use workspace::{OwnedBlock, Workspace};

/// Makes what a thread needs for buffers before its first task, so that tasks of a warm step allocate nothing.
///
/// Registers all thread-locals of this layer that have destructors. The C library aborts the process if it has no
/// memory to register one. So they are registered early, while memory is available.
pub(crate) fn begin_thread() {
    allocator::begin_thread();
}

/// Registers the thread-locals other than the allocator's, which calls this before its first buffer.
fn begin_thread_locals() {
    workspace::begin_thread();
    account::begin_thread();
    reclaim::begin_thread();
    // `parking_lot` has a thread-local for threads that wait for a lock. This call registers it and returns without
    // waiting.
    let (key, token) = (begin_thread_locals as fn() as usize, parking_lot_core::DEFAULT_PARK_TOKEN);
    // SAFETY: nothing else parks at the address of this function, and no closure panics or parks.
    unsafe { parking_lot_core::park(key, || false, || {}, |_, _| {}, token, None) };
}

//! Memory that holds numbers: types, shapes, buffers, storages. Knows no operations, graphs or Python.

mod access;
mod account;
mod allocator;
mod block;
mod buffer;
mod contents;
mod copy;
mod dtype;
pub(crate) mod fork;
mod gone;
pub(crate) mod headroom;
mod kept;
mod names;
mod part;
mod reclaim;
mod shape;
mod shortage;
mod spans;
mod storage;
mod store;
mod system;
mod view;
mod whole;
mod workspace;

pub use access::Access;
pub(crate) use account::{Account, Paying, pay_from};
pub(crate) use allocator::limit_of_environment;
pub(crate) use allocator::take_step_peak;
pub use allocator::{MemoryStats, clear_memory_cache, memory_stats, reset_peak_memory, set_memory_limit};
#[doc(hidden)]
pub use buffer::Buffer;
#[doc(hidden)]
pub use dtype::convert;
pub use dtype::{DType, Element};
pub(crate) use gone::{Calm, Gone};
pub(crate) use kept::Lent;
#[doc(hidden)]
pub use kept::{DerivedCache, Lasting};
pub use names::name_of;
#[doc(hidden)]
pub use reclaim::RunGuard;
pub(crate) use reclaim::{StepPins, amid_kernel, pin_for_step};
pub use shape::Shape;
pub use shortage::fail_allocations;
pub use storage::Storage;
pub(crate) use system::has_addresses;
pub use view::View;
pub(crate) use whole::{Odd, exact_below};
pub use workspace::OutOfMemory;
pub(crate) use workspace::{OwnedBlock, Workspace};

/// Makes what a thread needs for buffers before its first task, so that tasks of a warm step allocate nothing.
///
/// Registers all thread-locals of this layer that have destructors. The C library aborts the process if it has no memory to
/// register one, so this must not wait for a first use that may come when memory is short.
pub(crate) fn begin_thread() {
    allocator::begin_thread();
}

/// Registers the thread-locals other than the allocator's, which calls this before its first buffer.
fn begin_thread_locals() {
    workspace::begin_thread();
    account::begin_thread();
    reclaim::begin_thread();
    // A thread that waits for a lock has a thread-local of `parking_lot`. This registers it and returns: nothing is waited for.
    let (key, token) = (begin_thread_locals as fn() as usize, parking_lot_core::DEFAULT_PARK_TOKEN);
    // SAFETY: nothing else parks at the address of this function, and no closure panics or parks.
    unsafe { parking_lot_core::park(key, || false, || {}, |_, _| {}, token, None) };
}

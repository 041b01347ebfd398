//! Memory that holds numbers: types, shapes, buffers, storages. Knows no operations, graphs or Python.

mod buffer;
mod dtype;
mod reclaim;
mod shape;
mod storage;

pub use buffer::{Buffer, MemoryStats, clear_memory_cache, memory_stats};
pub use dtype::{DType, Element, convert};
pub use reclaim::RunGuard;
pub use shape::Shape;
pub use storage::{Access, Storage};

//! Settings of a thread or the process: modes and contexts. Knows nothing of the graph.

pub(crate) mod context;
pub(crate) mod modes;

pub use context::*;
pub use modes::*;

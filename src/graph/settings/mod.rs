//! What a thread or the process has chosen: modes and contexts. Knows nothing of the graph, and only answers.

pub(crate) mod context;
pub(crate) mod modes;

pub use context::*;
pub use modes::*;

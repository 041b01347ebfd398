//! Turns an operation into a node of the graph.

pub(crate) mod connect;
pub(crate) mod eager;
pub(crate) mod node;

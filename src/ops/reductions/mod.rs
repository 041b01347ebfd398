//! Reductions, scans, sorting and other operations on lines of an array.

pub(crate) mod cumulative;
pub(crate) mod extreme;
pub(crate) mod reduction;
pub(crate) mod softmax;
pub(crate) mod sorting;
pub(crate) mod top_k;
pub(crate) mod whole_array;

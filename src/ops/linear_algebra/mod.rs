//! Decompositions of square matrices and what follows from them.

pub(crate) mod cholesky;
pub(crate) mod inverse;

//! Decompositions, inverses and determinants of square matrices.

pub(crate) mod cholesky;
pub(crate) mod inverse;

//! Products of matrices.

pub(crate) mod affine;
pub(crate) mod attention;
pub(crate) mod batch_matmul;

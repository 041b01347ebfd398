//! Losses.

pub(crate) mod classification;
pub(crate) mod loss;

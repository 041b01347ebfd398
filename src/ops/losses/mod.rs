//! Losses.

pub(crate) mod classification;
pub(crate) mod confusion;
pub(crate) mod loss;

//! Kinnor: a deep-learning engine for the machine at hand.

pub mod array;
pub mod error;
pub mod graph;
pub mod kernels;
pub mod ops;
pub mod solvers;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};

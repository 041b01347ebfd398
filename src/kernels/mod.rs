//! Loops over memory. Knows slices, lanes and threads; knows no graphs, operations or Python.

mod dual;
pub mod map;
pub mod normalization;
mod number;
pub mod random;
pub mod softmax;
pub mod strided;
pub mod threads;
pub mod update;

pub use dual::Dual;
pub use number::{Float, Number};

//! Levels of 8 bits: products with weights, exact in `i32` on every machine, and what becomes of the sums. Knows images with
//! channels last, scales and zero points; knows no graphs and no operations.

mod depthwise;
mod dots;
pub mod levels;
mod lookup;
mod output;
mod pack;
mod product;
#[cfg(test)]
mod tests;
mod tile;
mod window;

pub use depthwise::multiply_each;
pub use dots::Rounding;
pub use levels::{RowPlace, Scale};
pub use output::{ColumnTerms, SumOutput, ToLevels, ToNumbers};
pub use pack::QuantizedWeights;
pub use product::{Levels, multiply};
pub use window::ImageWindow;

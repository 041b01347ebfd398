//! Kernels for 8-bit levels: products with weights, exact in `i32` on every machine, and the conversion of the sums.
//! Knows channels-last images, scales and zero points, not graphs or operations.

#[cfg(target_arch = "aarch64")]
mod arm;
mod blocks;
mod depthwise;
mod dots;
mod in_tiles;
pub mod levels;
mod lookup;
pub(super) mod matrix;
mod output;
mod pack;
mod product;
#[cfg(test)]
mod tests;
mod tile;
mod window;

pub use blocks::{BlockWeights, multiply_blocks};
pub use depthwise::multiply_each;
pub use dots::Rounding;
pub use levels::{RowPlace, Scale};
pub use output::{ColumnTerms, SumOutput, ToLevels, ToNumbers};
pub use pack::QuantizedWeights;
pub use product::{Levels, multiply};
pub use tile::instructions;
pub use window::ImageWindow;

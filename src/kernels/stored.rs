//! Elements as arrays store them, which kernels widen to the numbers in which they compute.

use half::{bf16, f16};

use crate::kernels::{Float, Movable};

/// An element in memory that kernels compute with, as it is or widened: a [`Float`], or a number of 16 bits.
pub trait Stored: Movable {
    /// The number in which kernels compute.
    type Wide: Float;
    /// The element as that number, which is exact.
    fn wide(self) -> Self::Wide;
    /// The number, rounded to an element.
    fn narrowed(v: Self::Wide) -> Self;
}

impl<T: Float> Stored for T {
    type Wide = T;
    #[inline(always)]
    fn wide(self) -> T {
        self
    }
    #[inline(always)]
    fn narrowed(v: T) -> T {
        v
    }
}

/// Implements [`Stored`] for types of 16 bits, by a function that widens in operations that vectorize.
macro_rules! stored_in_sixteen_bits {
    ($($ty:ident $wide:expr;)+) => {$(
        impl Movable for $ty {
            const ZERO: Self = Self::ZERO;
            #[inline(always)]
            fn is_zero(self) -> bool {
                self.to_bits() << 1 == 0
            }
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                Self::narrowed(self.wide() + other.wide())
            }
        }

        impl Stored for $ty {
            type Wide = f32;
            #[inline(always)]
            fn wide(self) -> f32 {
                $wide(u32::from(self.to_bits()))
            }
            #[inline(always)]
            fn narrowed(v: f32) -> Self {
                Self::from_f32(v)
            }
        }
    )+};
}
stored_in_sixteen_bits! {
    bf16 |bits: u32| f32::from_bits(bits << 16);
    f16 of_half;
}

/// The number with these bits in half precision.
#[inline(always)]
fn of_half(bits: u32) -> f32 {
    /// The bits of infinity, which is the least exponent of numbers that are not finite.
    const INFINITY: u32 = 0x7C00;
    let size = bits & 0x7FFF;
    // Moves the mantissa into its place. The product corrects the exponent, of subnormal numbers too.
    let finite = f32::from_bits(size << 13) * f32::from_bits((127 + 127 - 15) << 23);
    let wide = if size >= INFINITY { size << 13 | f32::INFINITY.to_bits() } else { finite.to_bits() };
    f32::from_bits(wide | (bits & 0x8000) << 16)
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::of_half;

    #[test]
    fn each_number_of_half_precision_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (found, wanted) = (of_half(bits.into()), f16::from_bits(bits).to_f32());
            assert!(found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan(), "{bits:#x}");
        }
    }
}

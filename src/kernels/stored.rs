//! Elements as arrays store them, which kernels widen to the numbers in which they compute.

use half::{bf16, f16};

use crate::kernels::simd::{Vector, Work, in_registers_of_sixteen_bits};
use crate::kernels::{Float, Movable};

/// An element in memory that kernels compute with, as it is or widened: a [`Float`], or a number of 16 bits.
pub trait Stored: Movable {
    /// The number in which kernels compute.
    type Wide: Float;
    /// The element as that number, which is exact.
    fn wide(self) -> Self::Wide;
    /// The number, rounded to an element.
    fn narrowed(v: Self::Wide) -> Self;

    /// Runs work that loads and stores such elements, in the registers of this machine.
    ///
    /// # Panics
    /// If the machine has no registers for elements of 16 bits, see
    /// [`has_registers`](crate::kernels::sixteen_bits::has_registers).
    #[doc(hidden)]
    fn with_registers<W: Work<Self::Wide>>(work: W) -> W::Output;

    /// Widens a register of elements, or the lanes of a mask.
    ///
    /// # Safety
    /// The instructions of `V` must be available, and the elements readable.
    #[doc(hidden)]
    unsafe fn load<V: Vector<T = Self::Wide>>(p: *const Self, left: Option<V::Mask>) -> V;

    /// Stores a register as elements, or the lanes of a mask.
    ///
    /// # Safety
    /// The instructions of `V` must be available, and the elements writable.
    #[doc(hidden)]
    unsafe fn store<V: Vector<T = Self::Wide>>(v: V, p: *mut Self, left: Option<V::Mask>);
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
    #[inline(always)]
    fn with_registers<W: Work<T>>(work: W) -> W::Output {
        T::in_registers(work)
    }
    #[inline(always)]
    unsafe fn load<V: Vector<T = T>>(p: *const T, left: Option<V::Mask>) -> V {
        // SAFETY: guaranteed by the caller. Same below.
        unsafe {
            match left {
                None => V::load(p),
                Some(mask) => V::load_masked(p, mask),
            }
        }
    }
    #[inline(always)]
    unsafe fn store<V: Vector<T = T>>(v: V, p: *mut T, left: Option<V::Mask>) {
        // SAFETY: as above.
        unsafe {
            match left {
                None => v.store(p),
                Some(mask) => v.store_masked(p, mask),
            }
        }
    }
}

/// Implements [`Stored`] for types of 16 bits, by a function that widens in operations that vectorize.
macro_rules! stored_in_sixteen_bits {
    ($($ty:ident $half:literal $wide:expr;)+) => {$(
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
            #[inline(always)]
            fn with_registers<W: Work<f32>>(work: W) -> W::Output {
                in_registers_of_sixteen_bits::<W, $half>(work)
            }
            #[inline(always)]
            unsafe fn load<V: Vector<T = f32>>(p: *const Self, left: Option<V::Mask>) -> V {
                // SAFETY: guaranteed by the caller.
                unsafe { V::widen::<$half>(p.cast(), left) }
            }
            #[inline(always)]
            unsafe fn store<V: Vector<T = f32>>(v: V, p: *mut Self, left: Option<V::Mask>) {
                // SAFETY: guaranteed by the caller.
                unsafe { v.narrow::<$half>(p.cast(), left) }
            }
        }
    )+};
}
stored_in_sixteen_bits! {
    bf16 false |bits: u32| f32::from_bits(bits << 16);
    f16 true of_half;
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
    use half::{bf16, f16};

    use super::{Stored, of_half};
    use crate::kernels::simd::row::each;
    use crate::kernels::simd::{Vector, Work};
    use crate::kernels::sixteen_bits::has_registers;

    /// Copies a row of elements to another type.
    struct Copy<'a, A, B>(&'a [A], &'a mut [B]);

    impl<A: Stored<Wide = f32>, B: Stored<Wide = f32>> Work<f32> for Copy<'_, A, B> {
        type Output = ();

        #[inline(always)]
        unsafe fn run<V: Vector<T = f32>>(self) {
            let Self(from, to) = self;
            // SAFETY: both rows have as many elements, and the instructions are available.
            unsafe {
                each::<V>(
                    from.len().min(to.len()),
                    #[inline(always)]
                    |at| at.store(at.load(from.as_ptr()), to.as_mut_ptr()),
                );
            }
        }
    }

    /// Asserts that registers convert as single elements do, and leave the rest of a row.
    fn check_registers<E: Stored<Wide = f32> + PartialEq + std::fmt::Debug>(of_bits: fn(u16) -> E) {
        if !has_registers(E::DTYPE) {
            return;
        }
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        let all: Vec<E> = (0..=u16::MAX).map(of_bits).collect();
        let mut wide = vec![0.0_f32; all.len()];
        E::with_registers(Copy(&all, &mut wide));
        assert!(all.iter().zip(&wide).all(|(v, wide)| same(v.wide(), *wide)));
        // Numbers of the type, numbers halfway between two of them, and their neighbours.
        let near = |bits: u32| [bits.wrapping_sub(1), bits, bits.wrapping_add(1)].map(f32::from_bits);
        let halfway = |v: &f32| [0, 0x8000, 0x1000].map(|step| v.to_bits().wrapping_add(step));
        let numbers: Vec<f32> = wide.iter().flat_map(halfway).flat_map(near).collect();
        for n in [numbers.len(), 1, 15, 17, 31] {
            let mut rounded = vec![of_bits(0x1234); n + 1];
            E::with_registers(Copy(&numbers[..n], &mut rounded[..n]));
            assert_eq!(rounded.pop(), Some(of_bits(0x1234)), "writes after {n} elements");
            for (found, v) in rounded.iter().zip(&numbers) {
                assert!(same(found.wide(), E::narrowed(*v).wide()), "{v:e}: {found:?}");
            }
        }
    }

    #[test]
    fn registers_convert_as_single_elements_do() {
        check_registers(bf16::from_bits);
        check_registers(f16::from_bits);
    }

    #[test]
    fn each_number_of_half_precision_is_widened_exactly() {
        for bits in 0..=u16::MAX {
            let (found, wanted) = (of_half(bits.into()), f16::from_bits(bits).to_f32());
            assert!(found.to_bits() == wanted.to_bits() || found.is_nan() && wanted.is_nan(), "{bits:#x}");
        }
    }
}

//! Integer arithmetic: remainders and bit shifts.

use crate::array::DType;
use crate::kernels::Float;
use crate::kernels::broadcast::BroadcastLayout;
use crate::ops::{
    Backward, Compute, Declared, Entry, Grad, InputShapes, Reads, Run, Shapes, Sym, Symbols, Value, one, op,
};
use crate::{Error, Result};

/// The operations of this file.
pub(crate) const OPS: &[Entry] = &[Entry::of::<Mod2>(), Entry::of::<BitShift>()];

op! {
    /// Remainder of a division, elementwise.
    ///
    /// With `fmod` it has the sign of `x0`, like `numpy.fmod`; else it has the sign of `x1`, like `numpy.mod`. The
    /// remainder of a division by zero is NaN. | | As a function of Python, it always acts like `numpy.fmod` if `x0`
    /// has real numbers. If `x0` has whole numbers, it computes in float64 in any context, so that integers up to 2^53
    /// are exact.
    ///
    /// Args:
    ///     x0: The dividend, of any shape.
    ///     x1: The divisor. Its shape broadcasts with `x0`.
    ///     fmod: Round the quotient towards zero; if off, round it down.
    ///
    /// Returns:
    ///     Array of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ShapeError: If the shapes do not broadcast together.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, y = nn.NdArray.from_numpy_array([-7, 7]), nn.NdArray.from_numpy_array([3, 3])
    ///     >>> F.mod2(x, y).data
    ///     array([2., 1.])
    ///     >>> F.mod2(x, y, fmod=True).data
    ///     array([-1.,  1.])
    /// ```
    Mod2 = mod2(x0, x1; fmod: bool = false)
}

op! {
    /// Bit shift of whole numbers, elementwise: `y = x * 2^shift`, or `y = x / 2^shift` rounded down. Its gradient is
    /// zero.
    ///
    /// Args:
    ///     x: Whole numbers, none of them negative, of any shape.
    ///     shift: Number of bits to shift by, not negative. Its shape broadcasts with `x`.
    ///     direction: `LEFT` or `RIGHT`.
    ///     bits: Number of bits of a number, from 1 to 63. Bits shifted beyond are lost. The function of Python takes
    ///         it from the type of `x`.
    ///
    /// Returns:
    ///     Whole numbers, of the shape that the two broadcast to.
    ///
    /// Raises:
    ///     ArgumentError: If there is no such direction.
    ///     ShapeError: If the shapes do not broadcast together.
    ///     IndexError: If an element is not a whole number.
    ///     ValueError: If an element is negative, or `x` has more bits.
    ///
    /// Examples:
    /// ```text
    ///     >>> import kinnor as nn, kinnor.functions as F
    ///     >>> x, bits = nn.NdArray.from_numpy_array([1, 2, 12]), nn.NdArray.from_numpy_array([3, 1, 2])
    ///     >>> F.bit_shift(x, bits).data
    ///     array([ 8,  4, 48])
    ///     >>> F.bit_shift(x, bits, direction="RIGHT").data
    ///     array([0, 1, 3])
    /// ```
    BitShift = bit_shift(x: index, shift: index; direction: String = "LEFT", bits: i64 = 63)
}

/// The broadcast shape of two arrays.
fn met(op: &str, x: &InputShapes<'_>) -> Result<Shapes> {
    let fits = BroadcastLayout::shape(x.get(0), x.get(1));
    one(fits.ok_or_else(|| Error::shape(op, "shapes that broadcast together", [x.get(0), x.get(1)]))?)
}

/// `a % b` of two `f32` without a call, so that loops over it are vectorized. NaN if the quotient is 2^28 or more.
///
/// Smaller quotients give an exact result. In double precision, the rounding error of `a / b` is less than its distance
/// from the next whole number. The product has at most 52 bits.
#[inline(always)]
fn remainder_by_quotient(a: f64, b: f64) -> f64 {
    let quotient = (a / b).trunc();
    let rest = (a - quotient * b).copysign(a);
    if quotient.abs() < f64::from(1 << 28) { rest } else { f64::NAN }
}

impl Compute for Mod2 {
    const HAS_BACKWARD: bool = false;

    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        met("mod2", x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let broadcast = BroadcastLayout::new(run.x_shape(0), run.x_shape(1));
        let fmod = self.fmod;
        let with_sign = move |rest: f64, b: f64| {
            T::of(if !fmod && rest != 0.0 && (rest < 0.0) != (b < 0.0) { rest + b } else { rest })
        };
        if T::DTYPE == DType::F32 {
            run.map_pairs(
                &broadcast,
                #[inline(always)]
                move |a, b| with_sign(remainder_by_quotient(a.real(), b.real()), b.real()),
            );
            if !run.y(0).iter().fold(false, |any, y| any | y.is_nan()) {
                return Ok(());
            }
        }
        // Remainders of numbers of either type are exact in double precision.
        run.map_pairs(
            &broadcast,
            #[inline(always)]
            move |a, b| with_sign(a.real() % b.real(), b.real()),
        );
        Ok(())
    }

    fn gradient(&self, s: &Symbols) -> Vec<Option<Sym>> {
        let (a, b, gy) = (s.x(0), s.x(1), s.gy(0));
        let quotient = || (a - s.y(0)) / b;
        vec![
            s.wants(0).then(|| gy.sum_to(&a.shape())),
            s.wants(1).then(|| (-(gy * quotient())).sum_to(&b.shape())),
        ]
    }

    fn reads(&self, gx: usize) -> Reads {
        if gx == 0 { Reads::NOTHING } else { Reads::ALL }
    }
}

impl Compute for BitShift {
    fn shapes(&self, x: &InputShapes<'_>) -> Result<Shapes> {
        if !matches!(&*self.direction, "LEFT" | "RIGHT") {
            return Err(Error::argument("bit_shift", "direction", "LEFT or RIGHT", &self.direction));
        }
        if !(1..64).contains(&self.bits) {
            return Err(Error::argument("bit_shift", "bits", "from 1 to 63", self.bits));
        }
        met("bit_shift", x)
    }

    fn forward<T: Float>(&self, run: &mut Run<'_, T>) -> Result<()> {
        let (x, shift, y) = (run.index(0), run.index(1), run.y_index(0));
        let (largest, left) = ((1_u64 << self.bits) - 1, self.direction == "LEFT");
        if let Some(odd) = x.iter().find(|x| !(0..=largest as i64).contains(*x)) {
            let expected = format!("whole numbers from 0 to {largest}");
            return Err(Error::Value(format!("bit_shift: expected {expected} in `x`, got {odd}")));
        }
        if let Some(odd) = shift.iter().find(|shift| **shift < 0) {
            return Err(Error::Value(format!("bit_shift: expected `shift` to be zero or more, got {odd}")));
        }
        let (a, b, all) = (run.x_shape(0), run.x_shape(1), run.y_shape(0));
        let place = |of: &crate::array::Shape, i: usize| {
            let (mut rest, mut at, mut step) = (i, 0, 1);
            for axis in (0..all.ndim()).rev() {
                let (k, lead) = (rest % all[axis], all.ndim() - of.ndim());
                rest /= all[axis];
                if axis >= lead {
                    at += if of[axis - lead] == 1 { 0 } else { k * step };
                    step *= of[axis - lead];
                }
            }
            at
        };
        for (i, y) in y.iter_mut().enumerate() {
            let (x, by) = (x[place(a, i)] as u64, shift[place(b, i)].min(64) as u32);
            let moved = if left { x.checked_shl(by) } else { x.checked_shr(by) };
            *y = (moved.unwrap_or(0) & largest) as i64;
        }
        Ok(())
    }

    fn backward<T: Float>(&self, run: &mut Backward<'_, T>) -> Result<()> {
        (0..2).filter_map(|i| run.gx(i)).for_each(|gx: Grad<'_, T>| gx.put(|_| T::ZERO));
        Ok(())
    }

    fn gradient(&self, _: &Symbols) -> Vec<Option<Sym>> {
        vec![None, None]
    }

    fn reads(&self, _: usize) -> Reads {
        Reads::NOTHING
    }

    fn output(&self, _: usize) -> Option<DType> {
        Some(DType::I64)
    }

    fn info(&self, _: &InputShapes<'_>) -> Vec<(&'static str, Value)> {
        Self::SPEC.args.iter().map(|arg| arg.info).zip(self.values()).take(1).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::remainder_by_quotient;

    #[test]
    fn remainders_by_quotients_are_exact_or_not_numbers() {
        let mut state = 1_u64;
        let mut bits = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 32) as u32
        };
        let check = |a: f32, b: f32| {
            let (a, b) = (f64::from(a), f64::from(b));
            let (found, rest) = (remainder_by_quotient(a, b), a % b);
            let near = (a / b).trunc().abs() < f64::from(1 << 28) && b.is_finite();
            assert!(
                found.to_bits() == rest.to_bits() || (found.is_nan() && !near),
                "{a} % {b}: {found} for {rest}"
            );
            near
        };
        let mut decided = 0;
        for _ in 0..200_000 {
            let (a, b) = (bits(), bits());
            check(f32::from_bits(a), f32::from_bits(b));
            // Random pairs with similar exponents, and quotients near whole numbers.
            let near = f32::from_bits((a & 0x87FF_FFFF) | 0x3800_0000);
            let divisor = f32::from_bits((b & 0x87FF_FFFF) | 0x3800_0000);
            decided += usize::from(check(near, divisor));
            let multiple = (near / divisor).round() * divisor;
            for a in [multiple, multiple.next_up(), multiple.next_down()] {
                decided += usize::from(check(a, divisor));
            }
        }
        assert!(decided > 400_000, "{decided}");
        for (a, b) in
            [(-4.0, 2.0), (0.0, 3.0), (-0.0, 3.0), (1.0, 0.0), (1.0, f32::INFINITY), (f32::NAN, 1.0)]
        {
            check(a, b);
        }
    }
}

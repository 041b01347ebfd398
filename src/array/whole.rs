//! Search for elements that are not valid as integers.

use super::dtype::with_element;
use super::{Access, DType, Element, Storage};
use crate::Result;

/// Elements that are tested together.
const GROUP: usize = 1 << 10;

/// True if `v` is whole and of ordinary size. Without a branch.
#[inline(always)]
fn is_small_and_whole(v: f64) -> bool {
    /// Adding this rounds a number to a whole one.
    const ROUND: f64 = 6_755_399_441_055_744.0;
    /// Numbers below this are rounded exactly by adding [`ROUND`].
    const SMALL: f64 = 2_251_799_813_685_248.0;
    ((v + ROUND) - ROUND == v) & (v.abs() < SMALL)
}

/// The number below which `dtype` represents every integer exactly. From there on, a value may be a rounded integer.
pub(crate) const fn exact_below(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2048.0,
        DType::BF16 => 256.0,
        DType::F32 => 16_777_216.0,
        DType::F64 => 9_007_199_254_740_992.0,
        _ => f64::INFINITY,
    }
}

/// The kind of numbers to look for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Odd {
    /// Infinity, NaN, fractions, and numbers from [`exact_below`] of the type on, which may be rounded integers.
    NotExact,
    /// Like `NotFinite`, plus numbers from [`exact_below`] of the type on.
    NotExactOnceTruncated,
    /// Infinity and NaN.
    NotFinite,
    /// NaN.
    Nan,
    /// Numbers outside the range of `u8`.
    NotUint8,
    /// Numbers outside the range of `i8`.
    NotInt8,
    /// Anything but zero.
    NotZero,
}

/// The index and value of the first odd number.
fn first_odd<T: Element>(x: &[T], what: Odd) -> Option<(usize, f64)> {
    let bounds = match what {
        Odd::NotUint8 => 0.0..=255.0,
        Odd::NotInt8 => -128.0..=127.0,
        Odd::NotZero => 0.0..=0.0,
        Odd::NotExact | Odd::NotExactOnceTruncated => {
            let end = exact_below(T::DTYPE).next_down();
            -end..=end
        }
        _ => f64::NEG_INFINITY..=f64::INFINITY,
    };
    let fits = |v: f64| is_small_and_whole(v) & (v >= *bounds.start()) & (v <= *bounds.end());
    let whole = |x: &[T]| x.iter().fold(true, |all, v| all & fits(v.real()));
    let odd = |v: f64| match what {
        Odd::NotUint8 | Odd::NotInt8 | Odd::NotZero => !fits(v),
        Odd::NotExact => v.trunc() != v || !bounds.contains(&v),
        Odd::NotExactOnceTruncated => !bounds.contains(&v),
        Odd::NotFinite => !v.is_finite(),
        Odd::Nan => v.is_nan(),
    };
    x.chunks(GROUP).enumerate().filter(|(_, group)| !whole(group)).find_map(|(i, group)| {
        let at = group.iter().position(|v| odd(v.real()))?;
        Some((i * GROUP + at, group[at].real()))
    })
}

impl Storage {
    /// Index and value of the first odd element. Arrays of integers are searched only for numbers outside of 8 bits.
    ///
    /// # Errors
    /// As [`Storage::access`].
    pub(crate) fn first_odd(&self, what: Odd) -> Result<Option<(usize, f64)>> {
        let is_looked_at =
            |dtype: &DType| dtype.is_float() || matches!(what, Odd::NotUint8 | Odd::NotInt8 | Odd::NotZero);
        let Some(dtype) = self.dtype().filter(is_looked_at) else { return Ok(None) };
        let (_held, at) = self.pin(dtype, Access::Read)?;
        Ok(with_element!(dtype, T => {
            // SAFETY: the storage has that many elements of the type, and they stay while the lock is held.
            first_odd(unsafe { std::slice::from_raw_parts(at.cast::<T>(), self.len) }, what)
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Odd, first_odd};

    #[test]
    fn fractions_are_found_wherever_they_are() {
        let mut x: Vec<f32> = (0..5000).map(|i| (i - 2500) as f32).collect();
        assert_eq!(first_odd(&x, Odd::NotExact), None);
        x[4999] = 0.5;
        assert_eq!(first_odd(&x, Odd::NotExact), Some((4999, 0.5)));
        x[1024] = f32::INFINITY;
        assert_eq!(first_odd(&x, Odd::NotExact), Some((1024, f64::INFINITY)));
        x[3] = f32::NAN;
        assert!(first_odd(&x, Odd::NotExact).is_some_and(|(at, v)| at == 3 && v.is_nan()));
        assert_eq!(first_odd(&[-0.0, 4_503_599_627_370_497.0], Odd::NotExact), None);
        assert_eq!(first_odd(&[0.0, -0.0, 1e-30, 1.0], Odd::NotZero), Some((2, 1e-30)));
        assert_eq!(
            first_odd(&[-0.0, 9_007_199_254_740_992.0], Odd::NotExact),
            Some((1, 9_007_199_254_740_992.0))
        );
        assert_eq!(first_odd(&[16_777_215.0_f32, -16_777_216.0], Odd::NotExact), Some((1, -16_777_216.0)));
        assert_eq!(
            first_odd(&[2047.5_f32, 16_777_216.0], Odd::NotExactOnceTruncated),
            Some((1, 16_777_216.0))
        );
        assert_eq!(first_odd(&[1e15, 1e15 + 0.5], Odd::NotExact), Some((1, 1e15 + 0.5)));
        assert_eq!(first_odd(&[0.5, f64::INFINITY], Odd::NotFinite), Some((1, f64::INFINITY)));
        assert_eq!(first_odd(&[0.0, 255.0, -1.0], Odd::NotUint8), Some((2, -1.0)));
        assert_eq!(first_odd(&[3_i64, 256], Odd::NotUint8), Some((1, 256.0)));
        assert_eq!(first_odd(&[-128_i32, 127, 128], Odd::NotInt8), Some((2, 128.0)));
        assert_eq!(first_odd(&[1.0, 0.5], Odd::NotInt8), Some((1, 0.5)));
        let unusual = [0.5, f64::INFINITY, f64::NAN];
        assert!(first_odd(&unusual, Odd::Nan).is_some_and(|(at, v)| at == 2 && v.is_nan()));
    }
}

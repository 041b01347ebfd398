//! Numbers with a wide exponent, for products whose parts leave the range of `f64`.

use std::ops::{Add, Mul};

/// The step of exponents, as a power of two. Factors below it and above its inverse stay as they are.
const STEP: i32 = 600;

/// The number `m` times two to the power of 600 `steps`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scaled {
    /// The digits: zero, not finite, or between 2^-300 and 2^300.
    m: f64,
    /// The exponent.
    steps: i64,
}

/// Two to the power of `n`.
fn power_of_two(n: i32) -> f64 {
    2.0_f64.powi(n)
}

impl Scaled {
    /// The number one.
    pub(crate) const ONE: Self = Self { m: 1.0, steps: 0 };
    /// The number zero.
    pub(crate) const ZERO: Self = Self { m: 0.0, steps: 0 };

    /// A number in range.
    pub(crate) fn new(m: f64) -> Self {
        Self { m, steps: 0 }.in_range()
    }

    /// The same number with digits in range.
    fn in_range(self) -> Self {
        let (size, most) = (self.m.abs(), power_of_two(STEP / 2));
        if size > most && size.is_finite() {
            return Self { m: self.m * power_of_two(-STEP), steps: self.steps + 1 };
        }
        if size < 1.0 / most && size != 0.0 {
            return Self { m: self.m * power_of_two(STEP), steps: self.steps - 1 };
        }
        self
    }

    /// The number as `f64`: infinite or zero if it is out of range.
    pub(crate) fn value(self) -> f64 {
        let by = power_of_two(if self.steps > 0 { STEP } else { -STEP });
        (0..self.steps.abs().min(4)).fold(self.m, |m, _| m * by)
    }
}

impl Mul for Scaled {
    type Output = Self;
    fn mul(self, o: Self) -> Self {
        Self { m: self.m * o.m, steps: self.steps + o.steps }.in_range()
    }
}

impl Add for Scaled {
    type Output = Self;
    fn add(self, o: Self) -> Self {
        let (large, small) =
            if self.m == 0.0 || o.m != 0.0 && o.steps > self.steps { (o, self) } else { (self, o) };
        let less = Self { steps: small.steps - large.steps, ..small };
        Self { m: large.m + less.value(), ..large }.in_range()
    }
}

#[cfg(test)]
mod tests {
    use super::Scaled;

    #[test]
    fn products_leave_the_range_and_return() {
        let of = |x: &[f64]| x.iter().fold(Scaled::ONE, |all, x| all * Scaled::new(*x)).value();
        let of_powers = |n: &[i32]| of(&n.iter().map(|n| 2.0_f64.powi(*n)).collect::<Vec<_>>());
        assert_eq!(of_powers(&[1000, 1000, 1000, -1000, -1000, -999]), 2.0);
        let (least, large) = (f64::from_bits(1), 2.0_f64.powi(1000)); // 2^-1074
        assert_eq!(of(&[least, least, large, large]), 2.0_f64.powi(-148));
        assert_eq!(of(&[3.0, -2.0]), -6.0);
        assert_eq!((of(&[1e300; 9]), of(&[1e-300; 9])), (f64::INFINITY, 0.0));
        assert_eq!((of(&[f64::INFINITY, -1e-300]), of(&[0.0, 1e300])), (f64::NEG_INFINITY, 0.0));
        assert!(of(&[f64::NAN, 1e300]).is_nan() && of(&[0.0, f64::INFINITY]).is_nan());
    }

    #[test]
    fn sums_count_what_is_not_too_small() {
        let huge = Scaled::new(1e200) * Scaled::new(1e200);
        let tiny = Scaled::new(1e-200) * Scaled::new(1e-200);
        for (a, b) in [(huge, tiny), (tiny, huge)] {
            assert_eq!(((a + b) * tiny).value(), (huge * tiny).value());
        }
        assert_eq!((Scaled::ZERO + tiny + Scaled::ZERO).value(), 0.0);
        assert_eq!(((Scaled::ZERO + tiny) * huge).value(), (tiny * huge).value());
        assert_eq!((Scaled::new(1e90) + Scaled::new(1e91)).value(), 1.1e91);
        assert_eq!((Scaled::new(3.0) + Scaled::new(-1.0)).value(), 2.0);
    }
}

//! Numbers with a wide exponent, for products whose parts leave the range of `f64`.

use std::ops::{Add, Div, Mul};

use super::Float;
use super::scratch::List;
use super::simd::vectorised;

/// The step of exponents, as a power of two. Factors below it and above its inverse stay as they are.
const STEP: i32 = 600;

/// The bits of a number that say its power of two.
const POWER: u64 = 0x7ff << 52;
/// Products that are formed side by side.
const LANES: usize = 16;
/// Factors between 1 and 2 whose product is in range.
const FACTORS: usize = 512;

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

    /// The number `m` times two to the power of `n`, for digits of any size in range.
    fn with_power(m: f64, n: i64) -> Self {
        let steps = n.div_euclid(i64::from(STEP));
        let rest = n.rem_euclid(i64::from(STEP)) as i32;
        Self { steps, ..Self::new(m) } * Self::new(power_of_two(rest))
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

impl Div for Scaled {
    type Output = Self;
    fn div(self, o: Self) -> Self {
        Self { m: self.m / o.m, steps: self.steps - o.steps }.in_range()
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

/// A finite number other than zero as one from 1 to 2, with its sign, and a power of two. Zero is one, and NaN and
/// infinity are NaN.
#[inline(always)]
fn digits_and_power(v: f64) -> (f64, i64) {
    let bits = v.to_bits();
    let one = f64::from_bits(bits & !POWER | 1.0_f64.to_bits()) + v * 0.0;
    let power = (bits >> 52 & 0x7ff) as i64 - 1023;
    if v == 0.0 { (1.0, 0) } else { (one, power) }
}

/// The product of the numbers that are not zero, or NaN if one is not finite, and the number of zeros.
#[allow(clippy::needless_range_loop)] // plain loops vectorize
fn product_of_nonzero<T: Float>(x: &[T]) -> (Scaled, usize) {
    vectorised(
        #[inline(always)]
        || {
            let (mut product, mut zeros) = (Scaled::ONE, 0);
            for part in x.chunks(LANES * FACTORS) {
                let (mut all, mut powers, mut none) = ([1.0; LANES], [0_i64; LANES], [0_u64; LANES]);
                let mut multiply = |l: usize, x: T| {
                    let x = x.real();
                    // A subnormal number of `f64` has its power in its digits.
                    let is_subnormal = size_of::<T>() == 8 && x.abs() < f64::MIN_POSITIVE && x != 0.0;
                    let by = if is_subnormal { 64 } else { 0 };
                    let (m, power) = digits_and_power(if is_subnormal { x * power_of_two(64) } else { x });
                    all[l] *= m;
                    powers[l] += power - i64::from(by);
                    none[l] += u64::from(x == 0.0);
                };
                let (whole, rest) = part.as_chunks::<LANES>();
                for x in whole {
                    for l in 0..LANES {
                        multiply(l, x[l]);
                    }
                }
                rest.iter().enumerate().for_each(|(l, x)| multiply(l, *x));
                for l in 0..LANES {
                    let (m, power) = digits_and_power(all[l]);
                    product = product * Scaled::with_power(m, power + powers[l]);
                    zeros += none[l] as usize;
                }
            }
            (product, zeros)
        },
    )
}

/// Calls `put(k, g)` for the gradients `g` of the product of the numbers `x` that are not zero, where `gy` is the
/// gradient of the product.
pub(crate) fn product_gradient<T: Float>(x: &[T], gy: T, mut put: impl FnMut(usize, T)) {
    let (product, zeros) = product_of_nonzero(x);
    let gy = Scaled::new(gy.real());
    let all = gy * product;
    if !all.m.is_finite() {
        return product_gradient_by_parts(x, gy, put);
    }
    let least = Scaled::new(T::MIN_POSITIVE.real() * T::EPSILON.real());
    match zeros {
        // Even the gradient of the least number vanishes.
        0 if T::of((all / least).value()) == T::ZERO => {}
        // Digits and range of `f64` suffice.
        0 if size_of::<T>() < 8 => {
            let all = all.value();
            x.iter().enumerate().for_each(|(k, x)| put(k, T::of(all / x.real())));
        }
        0 => {
            x.iter().enumerate().for_each(|(k, x)| put(k, T::of((all / Scaled::new(x.real())).value())));
        }
        1 => {
            if let Some(k) = x.iter().position(|x| *x == T::ZERO) {
                put(k, T::of(all.value()));
            }
        }
        _ => {}
    }
}

/// As [`product_gradient`], for numbers that need not be finite: multiplies the products before and after each.
#[cold]
fn product_gradient_by_parts<T: Float>(x: &[T], gy: Scaled, mut put: impl FnMut(usize, T)) {
    let mut after = List::repeat(Scaled::ONE, x.len());
    let mut product = Scaled::ONE;
    for (x, after) in x.iter().zip(after.iter_mut()).rev() {
        *after = product;
        product = product * Scaled::new(x.real());
    }
    product = gy;
    for (k, (x, after)) in x.iter().zip(after.iter()).enumerate() {
        put(k, T::of((product * *after).value()));
        product = product * Scaled::new(x.real());
    }
}

#[cfg(test)]
mod tests {
    use super::{Scaled, product_gradient, product_gradient_by_parts};

    /// The gradients of a product as an array.
    fn gradients<T: super::Float>(x: &[T], gy: T, by_parts: bool) -> Vec<T> {
        let mut gx = vec![T::ZERO; x.len()];
        if by_parts {
            product_gradient_by_parts(x, Scaled::new(gy.real()), |k, g| gx[k] = g);
        } else {
            product_gradient(x, gy, |k, g| gx[k] = g);
        }
        gx
    }

    #[test]
    fn gradients_by_division_are_those_by_parts() {
        let near = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-12 * b.abs();
        for n in [1, 2, 15, 16, 17, 40, 9000] {
            for (scale, zeros) in
                [(1.0, 0), (1e-30, 0), (1e300, 0), (1e-310, 0), (f64::NAN, 0), (1.0, 1), (1.0, 2)]
            {
                let mut x: Vec<f64> = (0..n)
                    .map(|i| {
                        (1.0 + (i * 7 % 10) as f64 / 10.0) * if i % 2 == 0 { scale } else { -1.0 / scale }
                    })
                    .map(|v| if v.is_infinite() { 1e308 } else { v })
                    .collect();
                (0..zeros.min(n)).for_each(|i| x[i * (n - 1)] = 0.0);
                for gy in [1.0, 1e-300, -1e300, 0.0] {
                    let (a, b) = (gradients(&x, gy, false), gradients(&x, gy, true));
                    for (a, b) in a.iter().zip(&b) {
                        assert!(
                            near(*a, *b) || a.is_nan() && b.is_nan(),
                            "{n} {scale} {zeros} {gy}: {a}, {b}"
                        );
                    }
                    let x: Vec<f32> = x.iter().map(|x| *x as f32).collect();
                    let (a, b) = (gradients(&x, gy as f32, false), gradients(&x, gy as f32, true));
                    for (a, b) in a.iter().zip(&b) {
                        assert!(a == b || (a - b).abs() <= 1e-6 * b.abs() || a.is_nan() && b.is_nan());
                    }
                }
            }
        }
    }

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

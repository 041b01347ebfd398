//! Exponentials and logarithms of `f32` without branches or calls, so that a loop over them becomes one over registers.
//! Only roundings of plain arithmetic occur: the same bits alone and in a vector, on every machine.
//!
//! Series are cut where the rest is below a tenth of a rounding. The largest errors, over all numbers, are in the tests.

use std::f32::consts::LOG2_E;

/// `ln(2)` in two parts: whole multiples of the first below 2^9 are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Adding this leaves a number rounded to a whole one, in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// `x = n ln(2) + r` with `|r|` up to `ln(2) / 2`: gives `n` and `exp(r) - 1`.
#[inline(always)]
fn reduce(x: f32) -> (i32, f32) {
    let shifted = x * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (x - n * LN2_HIGH) - n * LN2_LOW;
    let tail = 1.0 / 720.0 + r * (1.0 / 5040.0);
    let tail = 1.0 / 24.0 + r * (1.0 / 120.0 + r * tail);
    let tail = 0.5 + r * (1.0 / 6.0 + r * tail);
    (shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32, r + r * r * tail)
}

/// `2^n` for `n` from -126 to 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits((n.wrapping_add(127) as u32) << 23)
}

/// Keeps NaN.
#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x < low { low } else { x };
    if x > high { high } else { x }
}

/// `exp(x)`.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    let (n, p) = reduce(clamp(x, -104.0, 89.0));
    // In two steps, as the power itself may be out of range.
    let half = n >> 1;
    (1.0 + p) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
}

/// `exp(x) - 1`, exact near zero.
#[inline(always)]
pub(super) fn exp_m1(x: f32) -> f32 {
    let clamped = clamp(x, -18.0, 89.0);
    let (n, p) = reduce(clamped);
    // One power less, which is given back at the end: 2^128 is no number.
    let s = power_of_two(n.wrapping_sub(1));
    let y = 2.0 * (s * p + (s - 0.5));
    if n == 0 { if x == 0.0 { x } else { p } } else { y }
}

/// `tanh(x)`.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let e = exp_m1(clamp(2.0 * x.abs(), 0.0, 40.0));
    let z = x * x;
    let series = x * (1.0 + z * (-1.0 / 3.0 + z * (2.0 / 15.0 + z * (-17.0 / 315.0 + z * (62.0 / 2835.0)))));
    if x.abs() < 0.25 { series } else { (e / (e + 2.0)).copysign(x) }
}

/// `ln(x)`.
#[inline(always)]
pub(super) fn ln(x: f32) -> f32 {
    const SQRT_HALF: u32 = 0x3F35_04F3;
    let tiny = x < f32::MIN_POSITIVE;
    let scaled = if tiny { x * 8_388_608.0 } else { x };
    // The significand between sqrt(1/2) and sqrt(2), and the power of two that was taken out.
    let bits = scaled.to_bits().wrapping_sub(SQRT_HALF);
    let m = f32::from_bits((bits & 0x007F_FFFF).wrapping_add(SQRT_HALF));
    let n = (bits as i32 >> 23) as f32 - if tiny { 23.0 } else { 0.0 };
    let f = m - 1.0;
    let s = f / (2.0 + f);
    let z = s * s;
    let rest = z * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0))));
    let half = 0.5 * f * f;
    let y = n * LN2_HIGH - ((half - (s * (half + rest) + n * LN2_LOW)) - f);
    let y = if x == f32::INFINITY { x } else { y };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x >= 0.0 { y } else { f32::NAN }
}

#[cfg(test)]
mod tests {
    /// The largest error over a wide sample of all numbers, in units of the last place.
    fn worst(f: impl Fn(f32) -> f32, exact: impl Fn(f64) -> f64) -> (f64, f32) {
        let mut worst = (0.0, 0.0);
        for bits in (0..=u32::MAX).step_by(1009) {
            let x = f32::from_bits(bits);
            let (y, e) = (f(x), exact(f64::from(x)));
            if e.is_nan() || y.is_nan() || (e as f32).is_infinite() {
                assert!(y.is_nan() == e.is_nan() && (e.is_nan() || y == e as f32), "{x:e}: {y:e} for {e:e}");
                continue;
            }
            let place = f64::from((e as f32).abs().next_up()) - f64::from((e as f32).abs());
            let error = (f64::from(y) - e).abs() / place;
            if error > worst.0 {
                worst = (error, x);
            }
        }
        worst
    }

    #[test]
    fn errors_stay_below_two_units_in_the_last_place() {
        for (name, (error, at)) in [
            ("exp", worst(super::exp, f64::exp)),
            ("exp_m1", worst(super::exp_m1, f64::exp_m1)),
            ("tanh", worst(super::tanh, f64::tanh)),
            ("ln", worst(super::ln, f64::ln)),
        ] {
            assert!(error < 2.0, "{name}({at:e}): {error} units");
        }
    }

    #[test]
    fn limits_and_signs_are_kept() {
        for f in [super::exp_m1, super::tanh] {
            assert_eq!(f(-0.0).to_bits(), (-0.0_f32).to_bits());
            assert_eq!(f(1e-40), 1e-40);
        }
        assert_eq!(super::exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(super::exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(super::exp_m1(f32::NEG_INFINITY), -1.0);
        assert_eq!(super::tanh(f32::NEG_INFINITY), -1.0);
        assert_eq!(super::exp(0.0), 1.0);
        assert_eq!(super::ln(1.0), 0.0);
    }
}

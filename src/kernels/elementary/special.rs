//! Sine, cosine, tangent, powers and the error function of `f32`. What needs more digits on the way runs in `f64`.

use std::f64::consts::{FRAC_PI_2, LN_2, LOG2_E};

use super::exponential::{series, single};

/// Adding this leaves a number rounded to a whole one, in the lowest bits.
const ROUND: f64 = 6_755_399_441_055_744.0;

/// `2 / pi` in parts of 29, 29 and 53 bits, without the bits that multiply numbers from a power of two on to whole
/// turns: from 0, 2^28, 2^53, 2^78 and 2^103 on.
const TURNS: [[f64; 3]; 5] = [
    [0.636_619_770_899_415, 1.468_166_324_625_208_6e-9, 2.276_010_073_078_396e-18],
    [0.011_619_772_296_398_878, 7.118_246_487_039_515e-11, 1.076_057_281_073_874_7e-19],
    [3.330_811_473_856_165_6e-9, 2.276_010_060_734_833e-18, 1.234_356_328_469_044e-26],
    [7.166_494_903_518_363e-17, 7.696_704_847_356_705e-26, 1.668_286_766_860_823_5e-34],
    [2.765_304_035_419_047e-24, 4.018_688_561_039_878e-33, 4.420_676_015_940_119e-42],
];

/// `x = (n + r) pi / 2` with `|r|` up to a half: gives sine and cosine of what is left, and `n` modulo 4 and more.
///
/// Exact for all numbers: products with the first two parts have no rounding.
#[inline(always)]
fn quadrant(x: f32) -> (f64, f64, u64) {
    let x = f64::from(x);
    let mut turns = TURNS[0];
    for (row, power) in [(1, 28), (2, 53), (3, 78), (4, 103)] {
        let beyond = x.abs() >= (1_u128 << power) as f64;
        for part in 0..3 {
            turns[part] = if beyond { TURNS[row][part] } else { turns[part] };
        }
    }
    let (high, middle) = (x * turns[0], x * turns[1]);
    let (whole, more) = (high + ROUND, middle + ROUND);
    let rest = (high - (whole - ROUND)) + (middle - (more - ROUND)) + x * turns[2];
    // Together the two may be off by more than a half, once.
    let again = rest + ROUND;
    let r = (rest - (again - ROUND)) * FRAC_PI_2;
    let z = r * r;
    let sin =
        r * series!(z; 1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5_040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0);
    let cos = series!(z; 1.0, -1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0);
    (sin, cos, whole.to_bits().wrapping_add(more.to_bits()).wrapping_add(again.to_bits()))
}

/// What follows from the quadrant: the sine of a number `n` quarters of a turn further.
#[inline(always)]
fn sine_of(sin: f64, cos: f64, n: u64) -> f64 {
    let v = if n & 1 == 0 { sin } else { cos };
    if n & 2 == 0 { v } else { -v }
}

/// `sin(x)`.
#[inline(always)]
pub(in crate::kernels) fn sin(x: f32) -> f32 {
    let (sin, cos, n) = quadrant(x);
    // The sign of zero is kept.
    if x == 0.0 { x } else { sine_of(sin, cos, n) as f32 }
}

/// `cos(x)`.
#[inline(always)]
pub(in crate::kernels) fn cos(x: f32) -> f32 {
    let (sin, cos, n) = quadrant(x);
    sine_of(sin, cos, n.wrapping_add(1)) as f32
}

/// `tan(x)`.
#[inline(always)]
pub(in crate::kernels) fn tan(x: f32) -> f32 {
    let (sin, cos, n) = quadrant(x);
    let (over, under) = if n & 1 == 0 { (sin, cos) } else { (-cos, sin) };
    if x == 0.0 { x } else { (over / under) as f32 }
}

/// `ln(x)` of a positive number to 38 bits.
#[inline(always)]
fn ln(x: f64) -> f64 {
    const SQRT_HALF: u64 = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    let m = f64::from_bits((bits & ((1 << 52) - 1)).wrapping_add(SQRT_HALF));
    let power = bits.wrapping_add(1.0_f64.to_bits()) >> 52;
    let n = f64::from_bits(power | ROUND.to_bits()) - (ROUND + 1023.0);
    let s = (m - 1.0) / (m + 1.0);
    let z = s * s;
    let series = series!(z; 1.0, 1.0 / 3.0, 1.0 / 5.0, 1.0 / 7.0, 1.0 / 9.0, 1.0 / 11.0, 1.0 / 13.0);
    n * LN_2 + 2.0 * s * series
}

/// `exp(x)` to 32 bits, for `x` between -700 and 700.
#[inline(always)]
fn exp(x: f64) -> f64 {
    let n = (x * LOG2_E + ROUND) - ROUND;
    let r = x - n * LN_2;
    let series = series!(r; 1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5_040.0,
        1.0 / 40_320.0);
    series * f64::from_bits((n + (ROUND + 1023.0)).to_bits() << 52)
}

/// `x` to the power of `y`, with the special cases of C.
#[inline(always)]
pub(in crate::kernels) fn pow(x: f32, y: f32) -> f32 {
    let (size, power) = (f64::from(x).abs(), f64::from(y));
    let product = power * ln(size);
    // All powers are 0 or infinite beyond these.
    let product = if product < -200.0 { -200.0 } else { product };
    let product = if product > 200.0 { 200.0 } else { product };
    let plain = exp(product);
    let grows = (size > 1.0) == (power > 0.0);
    let ends = if grows { f64::INFINITY } else { 0.0 };
    let endless = size == 0.0 || size == f64::INFINITY || power.abs() == f64::INFINITY;
    let size = if endless && !x.is_nan() && !y.is_nan() { ends } else { plain };
    // Whole numbers this large are even.
    let short = if power.abs() < 1_073_741_824.0 { power } else { 0.0 };
    let is_whole = |v: f64| (v + ROUND) - ROUND == v;
    let odd = is_whole(short) && !is_whole(0.5 * short);
    let signed = if odd { -size } else { size };
    let below = x.is_sign_negative();
    let v = if below { signed } else { size };
    let v = if below && x < 0.0 && x > f32::NEG_INFINITY && !is_whole(short) { f64::NAN } else { v };
    let v = if x.is_nan() { f64::NAN } else { v };
    let one = y == 0.0 || x == 1.0 || (x == -1.0 && power.abs() == f64::INFINITY);
    if one { 1.0 } else { v as f32 }
}

/// `ln(1 - erf(x)) + x^2` between 1 and 4, in powers of `x - 2.5`: fitted at Chebyshev's points.
const LEFT: [f32; 9] = [
    -1.556_815_3,
    -0.352_680_68,
    0.056_106_36,
    -0.010_858_517,
    0.002_165_160_4,
    -0.000_420_144_56,
    7.739_443e-5,
    -1.330_939e-5,
    1.614_061_6e-6,
];

/// `2 / sqrt(pi)`, and the same less 1.
const C: f32 = std::f32::consts::FRAC_2_SQRT_PI;
const C_LESS_1: f32 = (std::f64::consts::FRAC_2_SQRT_PI - 1.0) as f32;

/// The error function.
#[inline(always)]
pub(in crate::kernels) fn erf(x: f32) -> f32 {
    let (a, z) = (x.abs(), x * x);
    // The first terms of the power series, x itself apart: it has no rounding.
    let near = series!(z; C_LESS_1, C / -3.0, C / 10.0, C / -42.0, C / 216.0, C / -1_320.0, C / 9_360.0, C / -75_600.0,
        C / 685_440.0, C / -6_894_720.0, C / 76_204_800.0);
    let near = x + x * near;
    // From 4 on it is 1.
    let a = if a > 4.0 { 4.0 } else { a };
    let t = a - 2.5;
    let left = series!(t; LEFT[0], LEFT[1], LEFT[2], LEFT[3], LEFT[4], LEFT[5], LEFT[6], LEFT[7], LEFT[8]);
    let far = (1.0 - single::exp(left - a * a)).copysign(x);
    if a < 1.0 { near } else { far }
}

//! Powers and the error function, for both types, with extra digits for intermediate results if needed.

use super::exponential::series;

/// `x` to the power of `y` with the special cases of C, `positive` being what it is for ordinary numbers above zero.
macro_rules! power {
    ($f:ident, $even:expr, $positive:path) => {
        /// `x` to the power of `y`, with the special cases of C.
        #[inline(always)]
        pub(in crate::kernels) fn pow(x: $f, y: $f) -> $f {
            let (size, power) = (x.abs(), y.abs());
            let plain = $positive(size, y);
            let grows = (size > 1.0) == (y > 0.0);
            let ends = if grows { $f::INFINITY } else { 0.0 };
            let endless = (size == 0.0) | (size == $f::INFINITY) | (power == $f::INFINITY);
            let size = if endless { ends } else { plain };
            // Numbers this large are even.
            let short = if power < $even { y } else { 0.0 };
            let is_whole = |v: $f| v.floor() == v;
            let odd = is_whole(short) & !is_whole(0.5 * short);
            let below = x.is_sign_negative();
            let v = if below & odd { -size } else { size };
            let v = if (x < 0.0) & (x > $f::NEG_INFINITY) & !is_whole(short) { $f::NAN } else { v };
            let v = if x.is_nan() | y.is_nan() { $f::NAN } else { v };
            let one = (y == 0.0) | (x == 1.0) | ((x == -1.0) & (power == $f::INFINITY));
            if one { 1.0 } else { v }
        }
    };
}

/// Makes `erf` for one type, from the coefficients of its series.
macro_rules! error_function {
    ($f:ident, $one:expr, $middle:expr; near [$($near:expr),+], left [$($left:expr),+]) => {
        /// The error function.
        #[inline(always)]
        pub(in crate::kernels) fn erf(x: $f) -> $f {
            const ONE: $f = 1.0;
            /// `erf(x) / x - 1` between 0 and 1, in powers of `x^2`: `x` itself apart has no rounding.
            const NEAR: &[$f] = &[$($near),+];
            /// `ln(1 - erf(x)) + x^2` between 1 and where it is 1, in powers of the distance from the middle.
            const LEFT: &[$f] = &[$($left),+];
            let a = x.abs();
            let near = x.mul_add(series!(x * x; NEAR), x);
            let a: $f = if a > $one { $one } else { a };
            let left = (-a).mul_add(a, series!(a - $middle; LEFT));
            if a < 1.0 { near } else { (ONE - exp_normal(left)).copysign(x) }
        }
    };
}

/// The functions for `f32`.
pub(in crate::kernels) mod single {
    use std::f64::consts::{FRAC_1_SQRT_2, LN_2, LOG2_E};

    use super::super::exponential::single::exp_normal;
    use super::series;

    /// Added to a number and subtracted again, it rounds the number to a whole one: 1.5 times 2 to the power of 52.
    const ROUND: f64 = 6_755_399_441_055_744.0;

    /// `a / b` for `b` around 1, to 34 bits.
    #[inline(always)]
    fn quotient(a: f64, b: f64) -> f64 {
        // Off by at most a twentieth. The next lines remove three more powers of the error.
        let guess = f64::from_bits(0x7FDE_6238_E000_0000_u64.wrapping_sub(b.to_bits()));
        let e = (-b).mul_add(guess, 1.0);
        let inverse = e.mul_add(e.mul_add(e, e), e).mul_add(guess, guess);
        let q = a * inverse;
        (-b).mul_add(q, a).mul_add(inverse, q)
    }

    /// `x^y` for ordinary `x` above zero: logarithm and exponential in `f64`.
    #[inline(always)]
    fn positive(x: f32, y: f32) -> f32 {
        /// Coefficients of the logarithm.
        const LN: [f64; 6] = [2.0, 2.0 / 3.0, 2.0 / 5.0, 2.0 / 7.0, 2.0 / 9.0, 2.0 / 11.0];
        /// Coefficients of the exponential function: inverses of factorials.
        const EXP: [f64; 8] =
            [1.0, 1.0, 1.0 / 2.0, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5_040.0];
        /// The bits of the square root of a half.
        const SQRT_HALF: u64 = FRAC_1_SQRT_2.to_bits();
        let bits = f64::from(x).to_bits().wrapping_sub(SQRT_HALF);
        let m = f64::from_bits((bits & ((1 << 52) - 1)).wrapping_add(SQRT_HALF));
        let power = bits.wrapping_add(1.0_f64.to_bits()) >> 52;
        let n = f64::from_bits(power | ROUND.to_bits()) - (ROUND + 1023.0);
        let s = quotient(m - 1.0, m + 1.0);
        let product = f64::from(y) * n.mul_add(LN_2, s * series!(s * s; LN));
        // All powers are 0 or infinite beyond these.
        let product = if product < -200.0 { -200.0 } else { product };
        let product = if product > 200.0 { 200.0 } else { product };
        let whole = product.mul_add(LOG2_E, ROUND);
        let r = (whole - ROUND).mul_add(-LN_2, product);
        (series!(r; EXP) * f64::from_bits((whole.to_bits() << 52).wrapping_add(1.0_f64.to_bits()))) as f32
    }

    power!(f32, 16_777_216.0, positive);

    error_function!(
        f32, 4.0, 2.5;
        near [0.128_379_17, -0.376_126_38, 0.112_837_82, -0.026_865_43, 0.005_221_031_6, -0.000_848_408_03,
            0.000_112_659_59, -9.667_045e-6],
        left [-1.556_815_3, -0.352_680_68, 0.056_106_36, -0.010_858_517, 0.002_165_160_4, -0.000_420_144_56,
            7.739_443e-5, -1.330_939e-5, 1.614_061_6e-6]
    );
}

/// The functions for `f64`.
pub(in crate::kernels) mod double {
    use super::super::exponential::double::{exp_by, exp_normal, exponent, parts};
    use super::series;

    /// A number as the sum of two, the second below the last place of the first.
    type Sum = (f64, f64);

    /// The sum of `a`, the larger number, `b` and `more` as a high and a low part.
    #[inline(always)]
    fn sum(a: f64, b: f64, more: f64) -> Sum {
        let high = a + b;
        (high, ((a - high) + b) + more)
    }

    /// The product of two numbers that are sums of a high and a low part.
    #[inline(always)]
    fn product(a: Sum, b: Sum) -> Sum {
        let high = a.0 * b.0;
        (high, a.0.mul_add(b.1, a.1.mul_add(b.0, a.0.mul_add(b.0, -high))))
    }

    /// `ln(x)` of ordinary `x` above zero to 64 bits.
    #[inline(always)]
    fn ln(x: f64) -> Sum {
        /// Coefficients of the logarithm after the first two.
        const C: [f64; 12] = [
            2.0 / 5.0,
            2.0 / 7.0,
            2.0 / 9.0,
            2.0 / 11.0,
            2.0 / 13.0,
            2.0 / 15.0,
            2.0 / 17.0,
            2.0 / 19.0,
            2.0 / 21.0,
            2.0 / 23.0,
            2.0 / 25.0,
            2.0 / 27.0,
        ];
        /// `2 / 3`, and `ln(2)` so that whole multiples of the first part are exact.
        const TWO_THIRDS: Sum = (2.0 / 3.0, 3.700_743_415_417_188e-17);
        const LN2: Sum = (0.693_147_180_559_208_2, 7.371_002_565_167_799e-13);
        let tiny = x < f64::MIN_POSITIVE;
        let (m, power) = parts(x * if tiny { 1.0 / f64::EPSILON } else { 1.0 });
        let n = exponent(power) - if tiny { 52.0 } else { 0.0 };
        let f = m - 1.0;
        let d = m + 1.0;
        let high = f / d;
        let s = (high, ((-high).mul_add(d, f) - high * (m - (d - 1.0))) / d);
        let z = product(s, s);
        let w = sum(TWO_THIRDS.0, z.0 * series!(z.0; C), TWO_THIRDS.1);
        let rest = product(s, product(z, w));
        let near = sum(2.0 * s.0, rest.0, 2.0f64.mul_add(s.1, rest.1));
        sum(n * LN2.0, near.0, n.mul_add(LN2.1, near.1))
    }

    /// `x^y` for ordinary `x` above zero.
    #[inline(always)]
    fn positive(x: f64, y: f64) -> f64 {
        let (high, low) = product(ln(x), (y, 0.0));
        // Out of the range of numbers the rest may be anything.
        exp_by(high, if high.abs() < 746.0 { low } else { 0.0 }, 0)
    }

    power!(f64, 9_007_199_254_740_992.0, positive);

    error_function!(
        f64, 6.0, 3.5;
        near [0.128_379_167_095_512_6, -0.376_126_389_031_837_5, 0.112_837_916_709_548_79,
            -0.026_866_170_645_076_792, 0.005_223_977_624_818_014_5, -0.000_854_832_698_083_379,
            0.000_120_553_311_116_427_1, -1.492_559_526_683_118_2e-5, 1.646_100_048_412_136_8e-6,
            -1.635_031_270_105_469_5e-7, 1.465_977_527_404_743_6e-8, -1.137_284_885_679_167_4e-9,
            5.957_176_147_748_911e-11],
        left [-1.862_437_402_148_173_8, -0.266_099_588_365_190_9, 0.033_246_945_257_770_11,
            -0.005_225_658_221_939_151, 0.000_873_687_323_638_757_6, -0.000_147_297_774_905_742_75,
            2.438_637_354_469_689_7e-5, -3.889_557_137_175_098e-6, 5.856_143_320_542_166e-7,
            -8.069_305_992_564_95e-8, 9.531_671_565_225_926e-9, -7.748_702_712_174_276e-10,
            -2.480_338_004_756_137e-11, 3.063_782_297_452_215e-11, -9.179_545_375_904_384e-12,
            2.060_667_990_861_307_4e-12, -3.941_910_389_730_944e-13, 6.571_558_768_895_523e-14,
            -8.842_694_086_574_563e-15, 7.687_338_417_411_399e-16, -3.344_141_371_937_709_7e-17,
            -4.245_357_421_673_194e-18, 8.551_735_979_895_735e-18, -3.655_769_369_719_697e-18,
            6.164_821_566_551_289e-19, -3.654_560_758_328_26e-20]
    );
}

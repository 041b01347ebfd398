//! Exponentials, logarithms and what is made of them, for both types, of plain arithmetic and fused products alone.

/// `c[0] + x c[1] + x^2 c[2] + ...`
macro_rules! series {
    ($x:expr; $c:expr) => {{
        let (x, c) = ($x, &$c);
        let mut i = c.len() - 1;
        let mut y = c[i];
        while i > 0 {
            i -= 1;
            y = y.mul_add(x, c[i]);
        }
        y
    }};
}
pub(super) use series;

/// Makes the exponential functions and logarithms for one type, from its constants and coefficients.
macro_rules! exponentials {
    ($f:ident, $u:ident, $i:ident; round $round:expr, mantissa $mantissa:expr, bias $bias:expr,
     ln2 $low:expr, sqrt_half $sqrt_half:expr, exp $least:expr, $most:expr, exp_m1 $least_m1:expr, $most_m1:expr,
     tanh $far:expr, huge $huge:expr, exponential [$($exp:expr),+],
     factorials [$($sinh:expr),+]) => {
        /// `ln(2)`.
        const LN2: $f = std::$f::consts::LN_2;
        /// The rounding error of `LN2`.
        const LN2_LOW: $f = $low;
        /// Adding this leaves a number rounded to a whole one, in the lowest bits.
        const ROUND: $f = $round;
        /// The bits of the square root of a half.
        const SQRT_HALF: $u = ($sqrt_half as $f).to_bits();
        /// The bits of a number that say its power of two.
        const POWER: $u = $u::MAX << $mantissa;
        /// Numbers as small are their own `exp_m1` and `ln_1p`.
        const TINY: $f = $f::EPSILON / 4.0;

        /// `x = n ln(2) + r` with `|r|` up to `ln(2) / 2`: gives `n` in the lowest bits, and `r`.
        #[inline(always)]
        fn reduce(x: $f) -> ($u, $f) {
            let whole = x.mul_add(std::$f::consts::LOG2_E, ROUND);
            let n = whole - ROUND;
            (whole.to_bits(), n.mul_add(-LN2_LOW, n.mul_add(-LN2, x)))
        }

        /// `(exp(r) - 1 - r) / r^2` in powers of `r`, for `|r|` up to `ln(2) / 2`.
        const EXP: &[$f] = &[$($exp),+];

        /// `exp(r) - 1` for `|r|` up to `ln(2) / 2`.
        #[inline(always)]
        fn exp_m1_near(r: $f) -> $f {
            (r * r).mul_add(series!(r; EXP), r)
        }

        /// `2^n` for `n` in the lowest bits, in the range of normal numbers.
        #[inline(always)]
        fn power_of_two(n: $u) -> $f {
            $f::from_bits((n << $mantissa).wrapping_add($bias << $mantissa))
        }

        /// The nearest number from `low` to `high`. Keeps NaN.
        #[inline(always)]
        fn clamp(x: $f, low: $f, high: $f) -> $f {
            let x = if x < low { low } else { x };
            if x > high { high } else { x }
        }

        /// `exp(x + more) 2^n` for whole `n` of few bits, and no more than a rounding of `x`.
        #[inline(always)]
        pub(in crate::kernels::elementary) fn exp_by(x: $f, more: $f, n: $u) -> $f {
            let (whole, r) = reduce(clamp(x, $least, $most));
            let (n, r) = (whole.wrapping_add(n), r + more);
            // In two steps, as the power itself may be out of range.
            let half = ((n as $i) >> 1) as $u;
            (1.0 + exp_m1_near(r)) * power_of_two(half) * power_of_two(n.wrapping_sub(half))
        }

        /// `exp(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn exp(x: $f) -> $f {
            exp_by(x, -0.0, 0)
        }

        /// `exp(-x^2)`.
        #[inline(always)]
        pub(in crate::kernels) fn bell(x: $f) -> $f {
            // The rounding error of the square is added, because it is more than a unit of the result for large
            // squares.
            let square = x * x;
            let lost = x.mul_add(x, -square);
            exp_by(-square, if square < -$least { -lost } else { 0.0 }, 0)
        }

        /// `exp(x)` where that is a normal number.
        #[inline(always)]
        pub(in crate::kernels::elementary) fn exp_normal(x: $f) -> $f {
            let (n, r) = reduce(x);
            (1.0 + exp_m1_near(r)) * power_of_two(n)
        }

        /// `exp(x) - 1`, exact near zero.
        #[inline(always)]
        pub(in crate::kernels) fn exp_m1(x: $f) -> $f {
            let (n, r) = reduce(clamp(x, $least_m1, $most_m1));
            // One power less, which is multiplied at the end:
            let s = power_of_two(n.wrapping_sub(1));
            let y = 2.0 * s.mul_add(exp_m1_near(r), s - 0.5);
            if x.abs() < TINY { x } else { y }
        }

        /// `a / (b + c)`, without the rounding of the sum where `c` is the smaller.
        #[inline(always)]
        pub(in crate::kernels::elementary) fn quotient(a: $f, b: $f, c: $f) -> $f {
            let sum = b + c;
            // The rounding error of the sum. Adding it loses less than products with each summand.
            let low = (b - sum) + c;
            let inverse = inverse(sum);
            let q = a * inverse;
            (-low).mul_add(q, (-sum).mul_add(q, a)).mul_add(inverse, q)
        }

        /// As [`reduce`]: gives `2^(n + more)`, in the range of normal numbers, and `r`.
        #[inline(always)]
        fn reduce_to_power(x: $f, more: $i) -> ($f, $f) {
            // The power's bias is a part of the number that rounds, which saves adding it.
            let round = ROUND + ($bias + more) as $f;
            let whole = x.mul_add(std::$f::consts::LOG2_E, round);
            let n = whole - round;
            let r = n.mul_add(-LN2_LOW, n.mul_add(-LN2, x));
            ($f::from_bits(whole.to_bits() << $mantissa), r)
        }

        /// `tanh(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn tanh(x: $f) -> $f {
            let x2 = 2.0 * x.abs();
            let (s, r) = reduce_to_power(if x2 > $far { $far } else { x2 }, 0);
            let e = s.mul_add(exp_m1_by_pairs(r), s - 1.0);
            // `1 - 2 / (2 + e)`, and near zero, where that cancels, `e / 2 - e / 2 * e / (2 + e)`. The quotient is the
            // smaller part of either.
            let near = e < 2.0;
            let (over, whole) = if near { (e, 0.5 * e) } else { (2.0, 1.0) };
            (-whole).mul_add(over / (2.0 + e), whole).copysign(x)
        }

        /// The smaller one of `sigmoid(x)` and `sigmoid(-x)`: `1 / (1 + exp(|x|))`.
        #[inline(always)]
        fn sigmoid_tail(x: $f) -> $f {
            /// `2^-64`, by which both sides of the fraction are smaller, so that neither is out of range.
            const SCALE: $f = 1.0 / 18_446_744_073_709_551_616.0;
            let a = x.abs();
            let (s, r) = reduce_to_power(if a > -$least { -$least } else { a }, -64);
            SCALE / (s + s.mul_add(exp_m1_by_pairs(r), SCALE))
        }

        /// `1 / (1 + exp(-x))`. Positive `x` subtract from 1, because a rounding error in the denominator would count
        /// twice.
        #[inline(always)]
        pub(in crate::kernels) fn sigmoid(x: $f) -> $f {
            let q = sigmoid_tail(x);
            if x >= 0.0 { 1.0 - q } else { q }
        }

        /// `sigmoid(x)` and `sigmoid(-x)`, both with full precision.
        #[inline(always)]
        pub(in crate::kernels) fn sigmoids(x: $f) -> ($f, $f) {
            let q = sigmoid_tail(x);
            if x >= 0.0 { (1.0 - q, q) } else { (q, 1.0 - q) }
        }

        /// `sinh(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn sinh(x: $f) -> $f {
            /// Coefficients of the series: inverses of factorials.
            const C: &[$f] = &[$(1.0 / $sinh),+];
            let half = exp_by(x.abs(), -0.0, (-1 as $i) as $u);
            let near = (x * x * x).mul_add(series!(x * x; C), x);
            if x.abs() < 1.0 { near } else { (half - 0.25 / half).copysign(x) }
        }

        /// `cosh(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn cosh(x: $f) -> $f {
            let half = exp_by(x.abs(), -0.0, (-1 as $i) as $u);
            half + 0.25 / half
        }

        /// The significand between sqrt(1/2) and sqrt(2) of a normal number, and the power of two that was taken out
        /// as the bits of one.
        #[inline(always)]
        pub(in crate::kernels::elementary) fn parts(x: $f) -> ($f, $u) {
            let bits = x.to_bits().wrapping_sub(SQRT_HALF);
            ($f::from_bits((bits & !POWER).wrapping_add(SQRT_HALF)), bits & POWER)
        }

        /// The number that is in the bits of a power.
        #[inline(always)]
        pub(in crate::kernels::elementary) fn exponent(power: $u) -> $f {
            // It fits between whole numbers where they are the lowest bits.
            let bits = power.wrapping_add((1.0 as $f).to_bits()) >> $mantissa;
            $f::from_bits(bits | ROUND.to_bits()) - (ROUND + $bias as $f)
        }

        /// `ln(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn ln(x: $f) -> $f {
            let tiny = x < $f::MIN_POSITIVE;
            let (m, power) = parts(x * if tiny { 1.0 / $f::EPSILON } else { 1.0 });
            let y = ln_sum(exponent(power) - if tiny { $mantissa as $f } else { 0.0 }, m - 1.0);
            let y = if x < $f::INFINITY { y } else { x };
            let end = if x == 0.0 { $f::NEG_INFINITY } else { $f::NAN };
            if x > 0.0 { y } else { end }
        }

        /// `ln(1 + x)`, exact near zero.
        #[inline(always)]
        pub(in crate::kernels) fn ln_1p(x: $f) -> $f {
            let u = 1.0 + x;
            // The rounding error of 1 + x, which is added to the significand.
            let rounded = u - 1.0;
            let lost = (x - rounded) + (1.0 - (u - rounded));
            let (m, power) = parts(u);
            // Half of it: the power itself may be out of range.
            let scale = $f::from_bits((2.0 as $f).to_bits().wrapping_sub(power));
            let y = ln_sum(exponent(power), (0.5 * lost).mul_add(scale, m - 1.0));
            let y = if u < $f::INFINITY { y } else { u };
            let end = if u == 0.0 { $f::NEG_INFINITY } else { $f::NAN };
            let y = if u > 0.0 { y } else { end };
            if x.abs() < TINY { x } else { y }
        }

        /// `asinh(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn asinh(x: $f) -> $f {
            let a = x.abs();
            // Near zero ln(x + sqrt(x^2 + 1)) cancels; far out x^2 is out of range.
            let v = a + a * a / (1.0 + (a * a + 1.0).sqrt());
            let (v, more) = if a > $huge { (a, LN2) } else { (v, 0.0) };
            (ln_1p(v) + more).copysign(x)
        }

        /// `acosh(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn acosh(x: $f) -> $f {
            let t = x - 1.0;
            let v = t + (t * (x + 1.0)).sqrt();
            let (v, more) = if x > $huge { (x, LN2) } else { (v, 0.0) };
            if x < 1.0 { $f::NAN } else { ln_1p(v) + more }
        }

        /// `atanh(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn atanh(x: $f) -> $f {
            let a = x.abs();
            (0.5 * ln_1p(2.0 * a / (1.0 - a))).copysign(x)
        }
    };
}

/// The functions for `f32`.
pub(in crate::kernels) mod single {
    exponentials!(
        f32, u32, i32; round 12_582_912.0, mantissa 23, bias 127, ln2 -1.904_654_2e-9,
        sqrt_half std::f32::consts::FRAC_1_SQRT_2, exp -104.0, 90.0, exp_m1 -18.0, 89.0, tanh 20.0, huge 33_554_432.0,
        exponential [0.5, 0.166_665_76, 0.041_666_556, 0.008_363_179, 0.001_392_618_4],
        factorials [6.0, 120.0, 5_040.0, 362_880.0, 39_916_800.0]
    );

    /// `exp(r) - 1` for `|r|` up to `ln(2) / 2`, by a shorter chain of dependent steps than [`exp_m1_near`].
    #[inline(always)]
    fn exp_m1_by_pairs(r: f32) -> f32 {
        let z = r * r;
        let (low, high) = (r.mul_add(EXP[1], EXP[0]), z.mul_add(EXP[4], r.mul_add(EXP[3], EXP[2])));
        z.mul_add(z.mul_add(high, low), r)
    }

    /// `1 / b` to 17 bits, for `b` between `2^-100` and `2^100`: a division takes several times as long.
    #[inline(always)]
    fn inverse(b: f32) -> f32 {
        // Off by at most a twentieth. The next line removes three more powers of the error.
        let guess = f32::from_bits(0x7EF3_11C7_u32.wrapping_sub(b.to_bits()));
        let e = (-b).mul_add(guess, 1.0);
        e.mul_add(e.mul_add(e, e), e).mul_add(guess, guess)
    }

    /// `n ln(2) + ln(1 + f)` for `1 + f` between sqrt(1/2) and sqrt(2).
    #[inline(always)]
    fn ln_sum(n: f32, f: f32) -> f32 {
        /// Coefficients of the series of `ln(1 + f)`.
        const C: [f32; 10] = [
            -0.5,
            0.333_333_3,
            -0.249_999_97,
            0.200_007_16,
            -0.166_678_03,
            0.142_490_58,
            -0.124_256_87,
            0.116_854_2,
            -0.114_797_34,
            0.069_716_12,
        ];
        let y = (f * f).mul_add(series!(f; C), f);
        n.mul_add(LN2, n.mul_add(LN2_LOW, y))
    }
}

/// The functions for `f64`.
pub(in crate::kernels) mod double {
    exponentials!(
        f64, u64, i64; round 6_755_399_441_055_744.0, mantissa 52, bias 1023, ln2 2.319_046_813_846_299_6e-17,
        sqrt_half std::f64::consts::FRAC_1_SQRT_2, exp -746.0, 711.0, exp_m1 -38.0, 710.0, tanh 40.0,
        huge 9_007_199_254_740_992.0,
        exponential [0.5, 0.166_666_666_666_666_7, 0.041_666_666_666_666_67, 0.008_333_333_333_326_136,
            0.001_388_888_888_888_387_8, 0.000_198_412_698_748_206_27, 2.480_158_732_530_167_3e-5,
            2.755_725_540_020_642_2e-6, 2.755_727_384_793_275_3e-7, 2.510_521_700_472_074_5e-8,
            2.091_462_497_159_796_5e-9],
        factorials [6.0, 120.0, 5_040.0, 362_880.0, 39_916_800.0, 6_227_020_800.0, 1_307_674_368_000.0,
            355_687_428_096_000.0, 121_645_100_408_832_000.0, 51_090_942_171_709_440_000.0]
    );

    /// As [`exp_m1_near`], which is as fast in this type.
    #[inline(always)]
    fn exp_m1_by_pairs(r: f64) -> f64 {
        exp_m1_near(r)
    }

    /// `1 / b`.
    #[inline(always)]
    fn inverse(b: f64) -> f64 {
        1.0 / b
    }

    /// `n ln(2) + ln(1 + f)` for `1 + f` between sqrt(1/2) and sqrt(2).
    #[inline(always)]
    fn ln_sum(n: f64, f: f64) -> f64 {
        /// Coefficients of the series of `ln(1 + f)`.
        const C: [f64; 10] = [
            2.0 / 3.0,
            2.0 / 5.0,
            2.0 / 7.0,
            2.0 / 9.0,
            2.0 / 11.0,
            2.0 / 13.0,
            2.0 / 15.0,
            2.0 / 17.0,
            2.0 / 19.0,
            2.0 / 21.0,
        ];
        let s = f / (2.0 + f);
        let z = s * s;
        let half = 0.5 * f * f;
        let rest = s * z.mul_add(series!(z; C), half);
        n.mul_add(LN2, n.mul_add(LN2_LOW, rest - half) + f)
    }
}

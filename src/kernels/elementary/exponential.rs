//! Exponentials, logarithms and what is made of them, for both types, of plain arithmetic alone.

/// `c[0] + x c[1] + x^2 c[2] + ...`
macro_rules! series {
    ($x:expr; $last:expr) => { $last };
    ($x:expr; $first:expr, $($rest:expr),+) => { $first + $x * series!($x; $($rest),+) };
}
pub(super) use series;

macro_rules! exponentials {
    ($f:ident, $u:ident; round $round:expr, mantissa $mantissa:expr, bias $bias:expr, ln2 $high:expr, $low:expr,
     sqrt_half $sqrt_half:expr, exp $least:expr, $most:expr, exp_m1 $least_m1:expr, tanh $far:expr,
     factorials $($factorial:expr),+; tanhs $($tanh:expr),*; logarithms $($log:expr),+) => {
        /// `ln(2)` in two parts: whole multiples of the first, as many as occur, are exact.
        const LN2_HIGH: $f = $high;
        const LN2_LOW: $f = $low;
        /// Adding this leaves a number rounded to a whole one, in the lowest bits.
        const ROUND: $f = $round;

        /// `x = n ln(2) + r` with `|r|` up to `ln(2) / 2`: gives `n` and `exp(r) - 1`.
        #[inline(always)]
        fn reduce(x: $f) -> ($f, $f) {
            let n = (x * std::$f::consts::LOG2_E + ROUND) - ROUND;
            let r = (x - n * LN2_HIGH) - n * LN2_LOW;
            (n, r + r * r * series!(r; $(1.0 / $factorial),+))
        }

        /// `2^n` for whole `n` in the range of normal numbers.
        #[inline(always)]
        fn power_of_two(n: $f) -> $f {
            $f::from_bits((n + (ROUND + $bias)).to_bits() << $mantissa)
        }

        /// Keeps NaN.
        #[inline(always)]
        fn clamp(x: $f, low: $f, high: $f) -> $f {
            let x = if x < low { low } else { x };
            if x > high { high } else { x }
        }

        /// `exp(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn exp(x: $f) -> $f {
            let (n, p) = reduce(clamp(x, $least, $most));
            // In two steps, as the power itself may be out of range.
            let half = (n * 0.5 + ROUND) - ROUND;
            (1.0 + p) * power_of_two(half) * power_of_two(n - half)
        }

        /// `exp(x) - 1`, exact near zero.
        #[inline(always)]
        pub(in crate::kernels) fn exp_m1(x: $f) -> $f {
            let (n, p) = reduce(clamp(x, $least_m1, $most));
            // One power less, which is given back at the end: the largest power is no number.
            let s = power_of_two(n - 1.0);
            let y = 2.0 * (s * p + (s - 0.5));
            if n == 0.0 { if x == 0.0 { x } else { p } } else { y }
        }

        /// `tanh(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn tanh(x: $f) -> $f {
            let e = exp_m1(clamp(2.0 * x.abs(), 0.0, $far));
            let z = x * x;
            let near = x * (1.0 + z * (series!(z; $($tanh),*)));
            if x.abs() < 0.25 { near } else { (e / (e + 2.0)).copysign(x) }
        }

        /// `1 / (1 + exp(-x))`.
        #[inline(always)]
        pub(in crate::kernels) fn sigmoid(x: $f) -> $f {
            let e = exp(-x.abs());
            (if x < 0.0 { e } else { 1.0 }) / (1.0 + e)
        }

        /// `ln(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn ln(x: $f) -> $f {
            const SQRT_HALF: $u = ($sqrt_half as $f).to_bits();
            const ONE: $u = (1.0 as $f).to_bits();
            let tiny = x < $f::MIN_POSITIVE;
            let scaled = if tiny { x / $f::EPSILON } else { x };
            // The significand between sqrt(1/2) and sqrt(2), and the power of two that was taken out.
            let bits = scaled.to_bits().wrapping_sub(SQRT_HALF);
            let m = $f::from_bits((bits & ((1 << $mantissa) - 1)).wrapping_add(SQRT_HALF));
            // The power fits between whole numbers where they are the lowest bits.
            let power = bits.wrapping_add(ONE) >> $mantissa;
            let n = $f::from_bits(power | ROUND.to_bits()) - (ROUND + $bias);
            let n = if tiny { n - $mantissa as $f } else { n };
            let f = m - 1.0;
            let s = f / (2.0 + f);
            let z = s * s;
            let rest = z * (series!(z; $(2.0 / $log),+));
            let half = 0.5 * f * f;
            let y = n * LN2_HIGH - ((half - (s * (half + rest) + n * LN2_LOW)) - f);
            let y = if x == $f::INFINITY { x } else { y };
            let y = if x == 0.0 { $f::NEG_INFINITY } else { y };
            if x >= 0.0 { y } else { $f::NAN }
        }

        /// `ln(1 + x)`, exact near zero.
        #[inline(always)]
        pub(in crate::kernels) fn ln_1p(x: $f) -> $f {
            let u = 1.0 + x;
            // What rounding took off 1 + x.
            let lost = if x < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) };
            let y = ln(u);
            let y = if u > 0.0 && u < $f::INFINITY { y + lost / u } else { y };
            if x == 0.0 { x } else { y }
        }
    };
}

/// Of `f32`.
pub(in crate::kernels) mod single {
    exponentials!(
        f32, u32;
        round 12_582_912.0, mantissa 23, bias 127.0, ln2 0.693_359_4, -2.121_944_4e-4,
        sqrt_half std::f32::consts::FRAC_1_SQRT_2, exp -104.0, 89.0, exp_m1 -18.0, tanh 40.0,
        factorials 2.0, 6.0, 24.0, 120.0, 720.0, 5040.0;
        tanhs -1.0 / 3.0, 2.0 / 15.0, -17.0 / 315.0, 62.0 / 2835.0;
        logarithms 3.0, 5.0, 7.0, 9.0
    );
}

/// Of `f64`.
pub(in crate::kernels) mod double {
    exponentials!(
        f64, u64;
        round 6_755_399_441_055_744.0, mantissa 52, bias 1023.0,
        ln2 0.693_147_180_369_123_8, 1.908_214_929_270_587_7e-10,
        sqrt_half std::f64::consts::FRAC_1_SQRT_2, exp -746.0, 710.0, exp_m1 -38.0, tanh 80.0,
        factorials 2.0, 6.0, 24.0, 120.0, 720.0, 5_040.0, 40_320.0, 362_880.0, 3_628_800.0, 39_916_800.0,
            479_001_600.0, 6_227_020_800.0, 87_178_291_200.0;
        tanhs -1.0 / 3.0, 2.0 / 15.0, -17.0 / 315.0, 62.0 / 2835.0, -1382.0 / 155_925.0, 21_844.0 / 6_081_075.0,
            -929_569.0 / 638_512_875.0, 6_404_582.0 / 10_854_718_875.0, -443_861_162.0 / 1_856_156_927_625.0,
            18_888_466_084.0 / 194_896_477_400_625.0, -113_927_491_862.0 / 2_900_518_163_668_125.0,
            58_870_668_456_604.0 / 3_698_160_658_676_859_375.0;
        logarithms 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0, 17.0, 19.0, 21.0
    );
}

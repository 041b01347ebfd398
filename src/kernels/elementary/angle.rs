//! Sine, cosine, tangent and their inverses, for both types.

use super::exponential::series;

/// Makes the functions of angles for one type, from its constants and coefficients.
macro_rules! angles {
    ($f:ident, $u:ident, $name:ident; round $round:expr, sign $sign:expr, limit $limit:expr, quarter $middle:expr,
     $low:expr,
     sin [$($sin:expr),+], cos [$($cos:expr),+], tan [$($tan:expr),+],
     atan [$($atan:expr),+], asin [$($asin:expr),+]) => {
        use std::$f::consts::{FRAC_2_PI, FRAC_PI_2, PI};

        use super::super::exponential::$name::quotient;
        use super::series;

        /// Adding this leaves a number rounded to a whole one, in the lowest bits.
        const ROUND: $f = $round;
        /// The rounding error of `FRAC_PI_2`, a quarter turn.
        const MIDDLE: $f = $middle;
        /// The rounding error of `FRAC_PI_2 + MIDDLE`.
        const LOW: $f = $low;

        /// Angles below this are reduced exactly in three steps.
        pub(in crate::kernels) const SMALL_ANGLE: $f = $limit;

        /// `x = n pi / 2 + r` with `|r|` up to `pi / 4`: gives `n`, also as the lowest bits of the last number, and `r`
        /// but for two parts of `n pi / 2`.
        #[inline(always)]
        fn reduce(x: $f) -> ($f, $f, $u) {
            let whole = x.mul_add(FRAC_2_PI, ROUND);
            let n = whole - ROUND;
            (n, n.mul_add(-FRAC_PI_2, x), whole.to_bits())
        }

        /// Sine and cosine of an angle less `n` quarters of a turn, and `n` in the lowest bits.
        #[inline(always)]
        fn quadrant(x: $f) -> ($f, $f, $u) {
            /// Coefficients of the sine.
            const SIN: &[$f] = &[$($sin),+];
            /// Coefficients of the cosine.
            const COS: &[$f] = &[-0.5, $($cos),+];
            let (whole, r, n) = reduce(x);
            let r = whole.mul_add(-LOW, whole.mul_add(-MIDDLE, r));
            let z = r * r;
            ((z * r).mul_add(series!(z; SIN), r), z.mul_add(series!(z; COS), 1.0), n)
        }

        /// The sine of a number `n` quarters of a turn further.
        #[inline(always)]
        fn sine_of(sin: $f, cos: $f, n: $u) -> $f {
            let v = if n & 1 == 0 { sin } else { cos };
            $f::from_bits(v.to_bits() ^ ((n & 2) << $sign))
        }

        /// `sin(x)` of a small angle.
        #[inline(always)]
        pub(in crate::kernels) fn sin_small(x: $f) -> $f {
            let (sin, cos, n) = quadrant(x);
            // The sign of zero is kept.
            if x == 0.0 { x } else { sine_of(sin, cos, n) }
        }

        /// `cos(x)` of a small angle.
        #[inline(always)]
        pub(in crate::kernels) fn cos_small(x: $f) -> $f {
            let (sin, cos, n) = quadrant(x);
            sine_of(sin, cos, n.wrapping_add(1))
        }

        /// `tan(x)` of a small angle.
        #[inline(always)]
        pub(in crate::kernels) fn tan_small(x: $f) -> $f {
            /// Coefficients of the tangent.
            const TAN: &[$f] = &[$($tan),+];
            let (whole, high, n) = reduce(x);
            // With what rounding takes off, as a tangent grows faster than its angle.
            let part = whole * MIDDLE;
            let sum = high - part;
            let step = sum - high;
            let lost = (high - (sum - step)) - (part + step) - whole.mul_add(MIDDLE, -part);
            let low = whole.mul_add(-LOW, lost);
            let r = sum + low;
            let low = (sum - r) + low;
            let z = r * r;
            let rest = (z * r).mul_add(series!(z; TAN), z.mul_add(low, low));
            let v = if n & 1 == 0 { r + rest } else { quotient(-1.0, r, rest) };
            if x == 0.0 { x } else { v }
        }

        /// `sin(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn sin(x: $f) -> $f {
            if x.abs() < SMALL_ANGLE { sin_small(x) } else { super::large::$f::sin(x) }
        }

        /// `cos(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn cos(x: $f) -> $f {
            if x.abs() < SMALL_ANGLE { cos_small(x) } else { super::large::$f::cos(x) }
        }

        /// `tan(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn tan(x: $f) -> $f {
            if x.abs() < SMALL_ANGLE { tan_small(x) } else { super::large::$f::tan(x) }
        }

        /// `atan(t) - t` for `t` from 0 to 1.
        #[inline(always)]
        fn atan_rest(t: $f) -> $f {
            /// Coefficients of the arc tangent.
            const C: &[$f] = &[$($atan),+];
            let z = t * t;
            z * t * series!(z; C)
        }

        /// `atan(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn atan(x: $f) -> $f {
            let a = x.abs();
            let far = a > 1.0;
            let t = (if far { -1.0 } else { a }) / (if far { a } else { 1.0 });
            let (whole, more) = if far { (FRAC_PI_2, MIDDLE) } else { (0.0, 0.0) };
            (whole + (t + (atan_rest(t) + more))).copysign(x)
        }

        /// Angle of the point (`x`, `y`).
        #[inline(always)]
        pub(in crate::kernels) fn atan2(y: $f, x: $f) -> $f {
            let (a, b) = (x.abs(), y.abs());
            let steep = b > a;
            let (low, high) = if steep { (a, b) } else { (b, a) };
            let t = low / high;
            let t = if high == 0.0 { 0.0 } else { t };
            let t = if low == $f::INFINITY { 1.0 } else { t };
            let rest = t + atan_rest(t);
            let angle = if steep { FRAC_PI_2 - (rest - MIDDLE) } else { rest };
            let angle = if x.is_sign_negative() { PI - (angle - 2.0 * MIDDLE) } else { angle };
            (if x.is_nan() | y.is_nan() { $f::NAN } else { angle }).copysign(y)
        }

        /// `v` and `rest` with `asin(v) = v + rest`, `v` being `a` or for `a` above a half the `v` of
        /// `asin(a) = pi / 2 - 2 asin(v)`.
        #[inline(always)]
        fn asin_parts(a: $f) -> ($f, $f) {
            /// Coefficients of the arc sine.
            const C: &[$f] = &[$($asin),+];
            let half = (-0.5 as $f).mul_add(a, 0.5);
            let (z, v) = if a > 0.5 { (half, half.sqrt()) } else { (a * a, a) };
            (v, z * v * series!(z; C))
        }

        /// `asin(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn asin(x: $f) -> $f {
            let a = x.abs();
            let (v, rest) = asin_parts(a);
            // The rounding error of the difference is added with the rest.
            let far = (-2.0 as $f).mul_add(v, FRAC_PI_2);
            let lost = (-2.0 as $f).mul_add(v, FRAC_PI_2 - far) + (-2.0 as $f).mul_add(rest, MIDDLE);
            (if a > 0.5 { far + lost } else { v + rest }).copysign(x)
        }

        /// `acos(x)`.
        #[inline(always)]
        pub(in crate::kernels) fn acos(x: $f) -> $f {
            let (v, rest) = asin_parts(x.abs());
            let near = FRAC_PI_2 - (v.copysign(x) + (rest.copysign(x) - MIDDLE));
            let right = 2.0 * (v + rest);
            let left = (-2.0 as $f).mul_add(rest - MIDDLE, (-2.0 as $f).mul_add(v, PI));
            let far = if x < 0.0 { left } else { right };
            if x.abs() > 0.5 { far } else { near }
        }
    };
}

/// The functions for `f32`.
pub(in crate::kernels) mod single {
    angles!(
        f32, u32, single; round 12_582_912.0, sign 30, limit 131_072.0, quarter -4.371_139e-8, -1.715_124_5e-15,
        sin [-0.166_666_67, 0.008_333_332, -0.000_198_400_86, 2.724_986_4e-6],
        cos [0.041_666_664, -0.001_388_830_2, 2.454_789_1e-5],
        tan [0.333_333_34, 0.133_332_31, 0.053_994_495, 0.021_620_877, 0.009_963_025, 0.001_183_918_6, 0.003_843_972_2],
        atan [-0.333_333_3, 0.199_997_4, -0.142_785_68, 0.110_337_645, -0.086_568_8, 0.062_501_69, -0.035_871_54,
            0.013_507_771, -0.002_386_997_2],
        asin [0.166_666_66, 0.075_000_94, 0.044_599_403, 0.031_100_662, 0.017_149_238, 0.033_690_847]
    );
}

/// The functions for `f64`.
pub(in crate::kernels) mod double {
    angles!(
        f64, u64, double; round 6_755_399_441_055_744.0, sign 62, limit 1_048_576.0,
        quarter 6.123_233_995_736_766e-17, -1.497_384_904_859_169_8e-33,
        sin [-0.166_666_666_666_666_66, 0.008_333_333_333_333_331, -0.000_198_412_698_412_650_6,
            2.755_731_921_933_545_3e-6, -2.505_210_623_115_790_4e-8, 1.605_853_141_458_901e-10,
            -7.586_685_070_091_267e-13],
        cos [0.041_666_666_666_666_664, -0.001_388_888_888_888_739_5, 2.480_158_729_876_343_3e-5,
            -2.755_731_727_056_032_6e-7, 2.087_614_602_468_974_7e-9, -1.138_261_486_855_632_5e-11],
        tan [0.333_333_333_333_333_3, 0.133_333_333_333_33, 0.053_968_253_968_656_69, 0.021_869_488_517_019_683,
        0.008_863_236_004_747_6, 0.003_592_120_963_191_753_6, 0.001_455_902_893_419_782,
        0.000_589_574_677_904_943_7, 0.000_241_230_232_015_403_84, 8.997_381_733_172_27e-5,
        5.561_124_389_347_579_6e-5, -1.104_655_864_084_371_7e-5, 3.654_645_976_053_761e-5,
        -1.833_169_905_712_586e-5, 8.487_285_594_671_859e-6],
        atan [-0.333_333_333_333_333_3, 0.199_999_999_999_995_54, -0.142_857_142_856_484_04,
            0.111_111_111_072_347_99, -0.090_909_089_695_574_03, 0.076_923_053_546_786_55,
            -0.066_666_364_357_776_92, 0.058_820_749_563_712_94, -0.052_612_657_357_094_54,
            0.047_520_867_735_766_56, -0.043_081_196_553_304_71, 0.038_726_402_140_426_32,
            -0.033_750_132_001_619_734, 0.027_567_942_297_344_678, -0.020_238_706_986_393_514,
            0.012_756_172_907_694_298, -0.006_575_683_344_151_699, 0.002_622_977_891_906_089,
            -0.000_751_847_252_697_382_2, 0.000_136_872_485_314_812_2, -1.183_250_541_755_569_2e-5],
        asin [0.166_666_666_666_666_69, 0.074_999_999_999_984_33, 0.044_642_857_146_355_43,
            0.030_381_944_138_531_247, 0.022_372_172_942_149_89, 0.017_352_392_720_869_973,
            0.013_971_212_973_552_933, 0.011_479_177_415_184_906, 0.010_322_814_350_185_78,
            0.005_457_506_718_640_358, 0.017_400_879_442_694_02, -0.014_851_887_071_247_204,
            0.028_757_851_367_421_566]
    );
}

/// Of angles that are not small.
mod large {
    /// Exact for all numbers, by way of `f64`.
    pub(super) mod f32 {
        use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

        use super::super::series;

        /// Adding this leaves a number rounded to a whole one, in the lowest bits.
        const ROUND: f64 = 6_755_399_441_055_744.0;

        /// `2 / pi` in two parts, without the bits that multiply numbers from a power of two on to whole turns: from
        /// 0, 2^50, 2^75, 2^100 and 2^125 on.
        const TURNS: [[f64; 2]; 5] = [
            [FRAC_2_PI, -3.935_735_335_036_497e-17],
            [2.568_255_326_690_366e-08, -5.434_184_107_743_751e-25],
            [2.937_095_540_371_82e-16, 1.018_166_438_749_971e-32],
            [6.074_026_489_649_846e-24, 3.143_654_755_491_604_5e-40],
            [2.567_006_972_690_659e-31, 1.726_676_542_312_193_3e-47],
        ];

        /// Sine and cosine of what is left of whole quarters of a turn, and their number modulo 4 and more.
        #[inline(always)]
        fn quadrant(x: f32) -> (f64, f64, u64) {
            /// Coefficients of the sine: signed inverses of factorials.
            const SIN: [f64; 6] =
                [1.0, -1.0 / 6.0, 1.0 / 120.0, -1.0 / 5_040.0, 1.0 / 362_880.0, -1.0 / 39_916_800.0];
            /// Coefficients of the cosine: signed inverses of factorials.
            const COS: [f64; 6] =
                [1.0, -1.0 / 2.0, 1.0 / 24.0, -1.0 / 720.0, 1.0 / 40_320.0, -1.0 / 3_628_800.0];
            let x = f64::from(x);
            let mut turns = TURNS[0];
            for (row, power) in [(1, 50), (2, 75), (3, 100), (4, 125)] {
                let beyond = x.abs() >= (1_u128 << power) as f64;
                for part in 0..2 {
                    turns[part] = if beyond { TURNS[row][part] } else { turns[part] };
                }
            }
            let whole = x.mul_add(turns[0], ROUND);
            let left = x.mul_add(turns[1], x.mul_add(turns[0], ROUND - whole));
            let r = left * FRAC_PI_2;
            let z = r * r;
            (r * series!(z; SIN), series!(z; COS), whole.to_bits())
        }

        /// The sine of an angle in quadrant `n`, from sine and cosine of the rest.
        #[inline(always)]
        fn sine_of(sin: f64, cos: f64, n: u64) -> f32 {
            let v = if n & 1 == 0 { sin } else { cos };
            (if n & 2 == 0 { v } else { -v }) as f32
        }

        /// `sin(x)` in `f32`, by way of `f64`.
        #[inline(always)]
        pub(in super::super) fn sin(x: f32) -> f32 {
            let (sin, cos, n) = quadrant(x);
            sine_of(sin, cos, n)
        }

        /// `cos(x)` in `f32`, by way of `f64`.
        #[inline(always)]
        pub(in super::super) fn cos(x: f32) -> f32 {
            let (sin, cos, n) = quadrant(x);
            sine_of(sin, cos, n.wrapping_add(1))
        }

        /// `tan(x)` in `f32`, by way of `f64`.
        #[inline(always)]
        pub(in super::super) fn tan(x: f32) -> f32 {
            let (sin, cos, n) = quadrant(x);
            let (over, under) = if n & 1 == 0 { (sin, cos) } else { (-cos, sin) };
            (over / under) as f32
        }
    }

    /// One number at a time.
    pub(super) mod f64 {
        pub(in super::super) use libm::{cos, sin, tan};
    }
}

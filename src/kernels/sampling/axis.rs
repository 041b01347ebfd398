//! Coordinates along an axis, and the two elements around each. Knows lengths and borders, not planes.

#![allow(clippy::needless_bitwise_bool)] // conditions of lanes are combined, not jumped over

use std::hint::select_unpredictable;

use super::points::{Border, POINTS, PerPoint};
use crate::kernels::Float;
use crate::kernels::simd::vectorised_for;

/// An axis that is sampled.
#[derive(Clone, Copy)]
pub(super) struct SampledAxis {
    /// The index of the last element.
    last: i32,
}

/// Coordinates along an axis with their neighbours: the index of the first one, the weights of both, and the
/// derivatives of the weights.
#[derive(Clone, Copy)]
pub(super) struct AxisPlaces<T> {
    /// The element before each coordinate.
    pub(super) low: PerPoint<i32>,
    /// The distance from that element, NaN if unknown.
    pub(super) share: PerPoint<T>,
    /// The derivative of the coordinate by the given number.
    rise: PerPoint<T>,
    /// The first of two neighbours, within the image.
    pub(super) first: PerPoint<i32>,
    /// The weights of both neighbours.
    pub(super) weight: [PerPoint<T>; 2],
    /// The derivatives of the weights by the given number.
    pub(super) slope: [PerPoint<T>; 2],
}

/// A coordinate that was moved into the image: the element before it, the distance from that, and the derivative.
#[derive(Clone, Copy)]
struct SampledPlace<T> {
    /// The index of the element before the coordinate.
    low: i32,
    /// The distance from that element, from 0 to 1.
    share: T,
    /// The derivative of the coordinate by the given number.
    rise: T,
}

/// True if the coordinate `scale * given + start` is too large for [`place`].
#[inline(always)]
pub(super) fn is_far<T: Float>(scale: T, given: T, start: f64) -> bool {
    scale.mul_add(given, T::of(start)).abs() >= farthest::<T>()
}

/// As [`place`], for a coordinate of any size, moved by whole periods to the image. Numbers without fractions are
/// moved to an element of it.
#[inline(always)]
pub(super) fn place_in_period<T: Float>(scale: f64, given: T, start: f64, period: f64) -> (i32, T) {
    let given = given.real();
    if period <= 0.0 {
        return place(scale, T::of(given), start);
    }
    if !given.is_finite() {
        return (0, T::of(f64::NAN));
    }
    let low = scale.mul_add(given, start).floor();
    let share = scale.mul_add(given, start - low);
    let (low, share) = if share < 0.0 { (low - 1.0, share + 1.0) } else { (low, share) };
    // The remainder is exact.
    let low = if low.abs() < f64::INFINITY { low % period } else { 0.0 };
    let low = if low < 0.0 { low + period } else { low };
    (low as i32, T::of(if (0.0..=1.0).contains(&share) { share } else { 0.0 }))
}

/// Coordinates beyond this are outside of all planes that are sampled with coordinates of type `C`.
#[inline(always)]
fn farthest<C: Float>() -> C {
    C::of((0.5 / C::EPSILON.real()).min(f64::from(i32::MAX)))
}

/// The coordinate `scale * given + start`: the element before it and the distance, which is as exact as without
/// rounding of the coordinate.
#[inline(always)]
pub(super) fn place<T: Float, C: Float>(scale: C, given: T, start: f64) -> (i32, T) {
    let (given, start) = (C::of(given.real()), C::of(start));
    let share = |low: C| scale.mul_add(given, start - low);
    let low = scale.mul_add(given, start).floor();
    // Rounding may have reached the next whole number.
    let low = if share(low) < C::ZERO { low - C::ONE } else { low };
    // NaN has no distance.
    let most = farthest::<C>();
    let number = if low < most { low } else { most };
    let number = if number > -most { number } else { -most };
    let number = if low.is_nan() { C::ZERO } else { number };
    // SAFETY: the number is finite and fills 32 bits.
    (unsafe { number.real().to_int_unchecked() }, T::of(share(low).real()))
}

/// The number whose condition is true, or zero.
#[inline(always)]
pub(super) fn either<T: Float>(holds: [bool; 2], numbers: [T; 2]) -> T {
    // A plain condition would compile to masked stores, which the next loads would wait for.
    let other = select_unpredictable(holds[1], numbers[1], T::ZERO);
    select_unpredictable(holds[0], numbers[0], other)
}

impl<T: Float> AxisPlaces<T> {
    /// No coordinates.
    pub(super) const NONE: Self = Self {
        low: [0; POINTS],
        share: [T::ZERO; POINTS],
        rise: [T::ZERO; POINTS],
        first: [0; POINTS],
        weight: [[T::ZERO; POINTS]; 2],
        slope: [[T::ZERO; POINTS]; 2],
    };
}

impl<T: Float> AxisPlaces<T> {
    /// Replaces these coordinates.
    #[inline(always)]
    fn each(&mut self, f: impl Fn(i32, T) -> SampledPlace<T>) {
        vectorised_for::<T, _>(
            #[inline(always)]
            move || {
                for i in 0..POINTS {
                    let SampledPlace { low, share, rise } = f(self.low[i], self.share[i]);
                    (self.low[i], self.share[i], self.rise[i]) = (low, share, rise);
                }
            },
        );
    }
}

impl SampledAxis {
    /// An axis of `n` elements.
    pub(super) fn new(n: usize) -> Self {
        Self { last: n as i32 - 1 }
    }

    /// The period of the reflected image, or zero without reflection.
    pub(super) fn period(self, border: Border) -> f64 {
        match border {
            Border::Reflect { corners } => 2.0 * (f64::from(self.last) + if corners { 0.0 } else { 1.0 }),
            _ => 0.0,
        }
    }

    /// Moves coordinates outside of the image to where they are sampled, and writes their derivatives. `rise` is the
    /// derivative of the original coordinates.
    pub(super) fn settle<T: Float>(self, rise: T, border: Border, to: &mut AxisPlaces<T>) {
        match border {
            Border::Zero => to.rise.fill(rise),
            Border::Reflect { corners } if !(corners && self.last == 0) => {
                let gap = i32::from(!corners);
                to.each(
                    #[inline(always)]
                    move |low, share| self.clamped(self.reflected(SampledPlace { low, share, rise }, gap)),
                );
            }
            _ => to.each(
                #[inline(always)]
                move |low, share| self.clamped(SampledPlace { low, share, rise }),
            ),
        }
    }

    /// Computes the neighbours of coordinates that were moved. Returns true if all are inside.
    pub(super) fn neighbours<T: Float>(self, to: &mut AxisPlaces<T>) -> bool {
        let has_next = self.last > 0;
        let last_first = if has_next { self.last - 1 } else { self.last };
        vectorised_for::<T, _>(
            #[inline(always)]
            move || {
                let mut all_inside = true;
                for i in 0..POINTS {
                    let (low, share, rise) = (to.low[i], to.share[i], to.rise[i]);
                    let (own, is_known) = (T::ONE - share, !share.is_nan());
                    let first = low.max(0).min(last_first);
                    let (is_low, is_up) = (first == low, first == low.wrapping_add(1));
                    let (next_is_low, next_is_up) = (has_next & (first + 1 == low), has_next & is_low);
                    // A neighbour of weight zero does not count.
                    all_inside &= next_is_up & (share > T::ZERO) & (own > T::ZERO);
                    to.first[i] = first;
                    // NaN has no neighbours.
                    let at_first = [is_known & is_low, is_known & is_up];
                    let at_next = [is_known & next_is_low, is_known & next_is_up];
                    to.weight[0][i] = either(at_first, [own, share]);
                    to.weight[1][i] = either(at_next, [own, share]);
                    to.slope[0][i] = either(at_first, [-rise, rise]);
                    to.slope[1][i] = either(at_next, [-rise, rise]);
                }
                all_inside
            },
        )
    }

    /// The element nearest to a coordinate, with halves rounded away from zero, and whether it is inside. NaN gives
    /// the first element.
    #[inline(always)]
    fn rounded<T: Float>(self, low: T, share: T) -> (i32, bool) {
        let half = T::of(0.5);
        let is_up = (share > half) | ((share == half) & (low >= T::ZERO));
        let nearest = if is_up { low + T::ONE } else { low };
        let last = T::of(f64::from(self.last));
        let element = if nearest > T::ZERO { nearest } else { T::ZERO };
        let element = if element < last { element } else { last };
        // SAFETY: the number is one of the axis's elements.
        (unsafe { element.real().to_int_unchecked() }, element == nearest)
    }

    /// The element nearest to the exact value of `scale * given + start`, and whether it is inside. If the axis is
    /// `endless`, coordinates outside give the element at the border.
    #[inline(always)]
    pub(super) fn nearest_to<T: Float>(
        self,
        (scale, given, start): (T, T, f64),
        endless: bool,
    ) -> (i32, bool) {
        let start = T::of(start);
        // If rounding has reached the next whole number, the distance is negative, and that number is the nearest.
        let low = scale.mul_add(given, start).floor();
        let share = scale.mul_add(given, start - low);
        let (element, is_inside) = self.rounded(low, share);
        (element, is_inside | (endless & !low.is_nan()))
    }

    /// As [`SampledAxis::nearest_to`] for the reflected image, with a gap of `gap` elements between the image and its
    /// reflection.
    #[inline(always)]
    pub(super) fn nearest_reflected<T: Float>(
        self,
        (scale, given, start): (T, T, f64),
        gap: i32,
    ) -> (i32, bool) {
        let start = T::of(start);
        let low = scale.mul_add(given, start).floor();
        let share = scale.mul_add(given, start - low);
        let is_known = !share.is_nan();
        // Up to the limit of `place`, where `T` represents quotients and remainders exactly.
        let most = T::of(0.5 / T::EPSILON.real());
        let low = if low < most { low } else { most };
        let low = if low > -most { low } else { -most };
        let (last, gap) = (T::of(f64::from(self.last)), T::of(f64::from(gap)));
        let period = (last + gap) + (last + gap);
        // A quotient may have been rounded to the next whole number.
        let low = low - (low / period).floor() * period;
        let low = if low < T::ZERO { low + period } else { low };
        let low = if low < period { low } else { low - period };
        let mirrored = (low > last) | ((low == last) & (share > T::ZERO));
        let share = if mirrored { T::ONE - share } else { share };
        let low = if mirrored { last + (last - T::ONE - low) + gap } else { low };
        (self.rounded(low, share).0, is_known)
    }

    /// The element nearest to a coordinate that was moved, and whether it is inside.
    #[inline(always)]
    pub(super) fn nearest<T: Float>(self, low: i32, share: T) -> (i32, bool) {
        let half = T::of(0.5);
        // Halves are rounded away from zero.
        let is_up = (share > half) | ((share == half) & (low >= 0));
        let nearest = low.wrapping_add(i32::from(is_up));
        let element = nearest.max(0).min(self.last);
        (element, (element == nearest) & !share.is_nan())
    }

    /// True if a coordinate is beyond the last element.
    #[inline(always)]
    fn is_beyond<T: Float>(self, low: i32, share: T) -> bool {
        (low > self.last) | ((low == self.last) & (share > T::ZERO))
    }

    /// Clamps a coordinate to the image. The derivative at a border is the one on the inner side.
    #[inline(always)]
    fn clamped<T: Float>(self, SampledPlace { low, share, rise }: SampledPlace<T>) -> SampledPlace<T> {
        let is_outside = (low < 0) | self.is_beyond(low, share);
        // The last element belongs to the interval before it.
        let is_last = (low == self.last) & (share <= T::ZERO) & (self.last > 0);
        let share = if is_last { T::ONE } else { share };
        SampledPlace {
            low: low.max(0).min(self.last) - i32::from(is_last),
            share: if is_outside { T::ZERO } else { share },
            rise: if is_outside | (self.last == 0) { T::ZERO } else { rise },
        }
    }

    /// Reflects a coordinate into the image, with a gap of `gap` elements between the image and its reflection.
    #[inline(always)]
    fn reflected<T: Float>(
        self,
        SampledPlace { low, share, rise }: SampledPlace<T>,
        gap: i32,
    ) -> SampledPlace<T> {
        // `f64` distinguishes quotients of 32-bit integers.
        let (period, at) = (2.0 * (f64::from(self.last) + f64::from(gap)), f64::from(low));
        // SAFETY: what is left of a number of 32 bits is one, too.
        let low = unsafe { (at - (at / period).floor() * period).to_int_unchecked::<i32>() };
        let mirrored = self.is_beyond(low, share);
        SampledPlace {
            low: if mirrored { self.last + (self.last - 1 - low) + gap } else { low },
            share: if mirrored { T::ONE - share } else { share },
            rise: if mirrored { -rise } else { rise },
        }
    }
}

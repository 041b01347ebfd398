//! Places along an axis, and the two elements that each lies between. Knows lengths and borders; knows no planes.

#![allow(clippy::needless_bitwise_bool)] // conditions of lanes are combined, not jumped over

use std::hint::select_unpredictable;

use super::points::{Border, POINTS, PerPoint};
use crate::kernels::Float;
use crate::kernels::simd::vectorised;

/// An axis on which places are looked up.
#[derive(Clone, Copy)]
pub(super) struct SampledAxis {
    /// Number of the last element.
    last: i32,
}

/// Places along an axis, and the neighbours of each: the number of the first, the weights of both, and the slopes of these.
#[derive(Clone, Copy)]
pub(super) struct AxisPlaces<T> {
    /// The element before a place.
    pub(super) low: PerPoint<i32>,
    /// How far the place is from there; no number if that is not known.
    pub(super) share: PerPoint<T>,
    /// The slope of the place.
    rise: PerPoint<T>,
    pub(super) first: PerPoint<i32>,
    pub(super) weight: [PerPoint<T>; 2],
    pub(super) slope: [PerPoint<T>; 2],
}

/// A place as it is moved: the element before it, how far it is from there, and the slope of that.
#[derive(Clone, Copy)]
struct SampledPlace<T> {
    low: i32,
    share: T,
    rise: T,
}

/// True if the place `scale * given + start` is further out than [`place`] knows it by its number.
#[inline(always)]
pub(super) fn is_far<T: Float>(scale: T, given: T, start: f64) -> bool {
    scale.mul_add(given, T::of(start)).abs() >= farthest::<T>()
}

/// As [`place`], of a place however far that is given by a number, moved by whole periods next to the image. Where numbers have no
/// fractions that is one of its elements.
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

/// Places beyond are outside of all planes that are looked up in `C`.
#[inline(always)]
fn farthest<C: Float>() -> C {
    C::of((0.5 / C::EPSILON.real()).min(f64::from(i32::MAX)))
}

/// The place `scale * given + start`: the element before it and the share, which is as exact as if the place were not rounded.
#[inline(always)]
pub(super) fn place<T: Float, C: Float>(scale: C, given: T, start: f64) -> (i32, T) {
    let (given, start) = (C::of(given.real()), C::of(start));
    let share = |low: C| scale.mul_add(given, start - low);
    let low = scale.mul_add(given, start).floor();
    // Rounding may have reached the next whole number.
    let low = if share(low) < C::ZERO { low - C::ONE } else { low };
    // What is no number has no share.
    let most = farthest::<C>();
    let number = if low < most { low } else { most };
    let number = if number > -most { number } else { -most };
    let number = if low.is_nan() { C::ZERO } else { number };
    // SAFETY: the number is finite and fills 32 bits.
    (unsafe { number.real().to_int_unchecked() }, T::of(share(low).real()))
}

/// The number whose condition holds; zero if none does.
#[inline(always)]
pub(super) fn either<T: Float>(holds: [bool; 2], numbers: [T; 2]) -> T {
    // A plain condition would become stores under a mask, which what follows waits for.
    let other = select_unpredictable(holds[1], numbers[1], T::ZERO);
    select_unpredictable(holds[0], numbers[0], other)
}

impl<T: Float> AxisPlaces<T> {
    /// None.
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
    /// Puts other places in the place of these.
    #[inline(always)]
    fn each(&mut self, f: impl Fn(i32, T) -> SampledPlace<T>) {
        vectorised(
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

    /// The distance after which the image and its mirror image repeat; zero if they do not.
    pub(super) fn period(self, border: Border) -> f64 {
        match border {
            Border::Reflect { corners } => 2.0 * (f64::from(self.last) + if corners { 0.0 } else { 1.0 }),
            _ => 0.0,
        }
    }

    /// Moves places beyond the borders to where they are looked up, and writes the slopes of that, `rise` being that of the places.
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

    /// Finds the neighbours of settled places; says whether they are all inside.
    pub(super) fn neighbours<T: Float>(self, to: &mut AxisPlaces<T>) -> bool {
        let has_next = self.last > 0;
        let last_first = if has_next { self.last - 1 } else { self.last };
        vectorised(
            #[inline(always)]
            move || {
                let mut all_inside = true;
                for i in 0..POINTS {
                    let (low, share, rise) = (to.low[i], to.share[i], to.rise[i]);
                    let (own, is_known) = (T::ONE - share, !share.is_nan());
                    let first = low.max(0).min(last_first);
                    let (is_low, is_up) = (first == low, first == low.wrapping_add(1));
                    let (next_is_low, next_is_up) = (has_next & (first + 1 == low), has_next & is_low);
                    // An element that a place has no share of is not meant.
                    all_inside &= next_is_up & (share > T::ZERO) & (own > T::ZERO);
                    to.first[i] = first;
                    // A place that is no number has no neighbours.
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

    /// The element that a place is nearest to, halves being rounded away from zero, and whether the nearest whole number is that. What is
    /// no number is the first element.
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

    /// The element that the place `scale * given + start` is nearest to, as if the place were not rounded, and whether it is inside.
    /// If the axis is `endless`, the elements at its borders stand for what is outside.
    #[inline(always)]
    pub(super) fn nearest_to<T: Float>(
        self,
        (scale, given, start): (T, T, f64),
        endless: bool,
    ) -> (i32, bool) {
        let start = T::of(start);
        // If rounding has reached the next whole number, the share is less than zero, and that number is the nearest.
        let low = scale.mul_add(given, start).floor();
        let share = scale.mul_add(given, start - low);
        let (element, is_inside) = self.rounded(low, share);
        (element, is_inside | (endless & !low.is_nan()))
    }

    /// As [`SampledAxis::nearest_to`], where the image and its mirror image repeat each other, with a gap of so many elements between the
    /// two.
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
        // As far as `place` goes, where quotients and what they leave are whole numbers that `T` has.
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

    /// The element that a settled place is nearest to, and whether it is inside.
    #[inline(always)]
    pub(super) fn nearest<T: Float>(self, low: i32, share: T) -> (i32, bool) {
        let half = T::of(0.5);
        // Halves are rounded away from zero.
        let is_up = (share > half) | ((share == half) & (low >= 0));
        let nearest = low.wrapping_add(i32::from(is_up));
        let element = nearest.max(0).min(self.last);
        (element, (element == nearest) & !share.is_nan())
    }

    /// Whether a place is beyond the last element.
    #[inline(always)]
    fn is_beyond<T: Float>(self, low: i32, share: T) -> bool {
        (low > self.last) | ((low == self.last) & (share > T::ZERO))
    }

    /// A place moved between the first and the last element. The slope of a border is that of the side inside.
    #[inline(always)]
    fn clamped<T: Float>(self, SampledPlace { low, share, rise }: SampledPlace<T>) -> SampledPlace<T> {
        let is_outside = (low < 0) | self.is_beyond(low, share);
        // The last element is the end of what lies before it, as nothing lies behind it.
        let is_last = (low == self.last) & (share <= T::ZERO) & (self.last > 0);
        let share = if is_last { T::ONE } else { share };
        SampledPlace {
            low: low.max(0).min(self.last) - i32::from(is_last),
            share: if is_outside { T::ZERO } else { share },
            rise: if is_outside | (self.last == 0) { T::ZERO } else { rise },
        }
    }

    /// A place in the image and its mirror image, which repeat each other: there is a gap of so many elements between the two.
    #[inline(always)]
    fn reflected<T: Float>(
        self,
        SampledPlace { low, share, rise }: SampledPlace<T>,
        gap: i32,
    ) -> SampledPlace<T> {
        // Numbers of 32 bits and quotients of them are told apart in `f64`.
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

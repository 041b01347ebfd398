//! Places in a plane and the elements that they lie between. Knows lengths of axes; knows no elements.

use super::axis::{AxisPlaces, SampledAxis, either, is_far, place, place_in_period};
use crate::kernels::Float;
use crate::kernels::simd::vectorised;

/// Points that are looked up together.
pub const POINTS: usize = 128;
/// Rows of a plane that a point lies between in up to three dimensions.
pub(super) const ROWS: usize = 4;
/// Elements that a plane may have: their numbers fill 32 bits.
pub const LARGEST_PLANE: usize = i32::MAX as usize;

/// One number for each point.
pub(super) type PerPoint<T> = [T; POINTS];
/// For each row and each point, a number for either of two elements side by side.
pub(super) type PerElement<T> = [[T; 2 * POINTS]; ROWS];

/// Up to [`POINTS`] points: in each row of a plane that they lie between, the element before them and the one behind it, their
/// weights, and the slopes of these. A neighbour outside of the plane has weight and slopes of zero.
pub struct Points<T> {
    /// How many points there are.
    pub(super) n: usize,
    /// In how many rows each has neighbours.
    pub(super) rows: usize,
    /// How many elements of a row are looked at: the first alone, or both.
    pub(super) side_by_side: usize,
    /// Elements of the plane: [`Points::at`] names none beyond.
    pub(super) plane: usize,
    /// No neighbour is outside of the plane.
    pub(super) all_inside: bool,
    /// Numbers of the first elements.
    pub(super) at: [PerPoint<i32>; ROWS],
    pub(super) weight: PerElement<T>,
    /// Derivatives of the weights along each axis, the last first, if they were asked for.
    pub(super) slopes: [PerElement<T>; 3],
    /// Room for a sum for each weight.
    pub(super) sums: PerElement<T>,
    /// What these are made of.
    along: [AxisPlaces<T>; 3],
}

impl<T: Float> Points<T> {
    /// None. All of it is zeros, which are made faster than other numbers are copied.
    pub const NONE: Self = Self {
        n: 0,
        rows: 0,
        side_by_side: 0,
        plane: 0,
        all_inside: false,
        at: [[0; POINTS]; ROWS],
        weight: [[T::ZERO; 2 * POINTS]; ROWS],
        slopes: [[[T::ZERO; 2 * POINTS]; ROWS]; 3],
        sums: [[T::ZERO; 2 * POINTS]; ROWS],
        along: [AxisPlaces::NONE; 3],
    };

    /// The elements next to point number `i` that have a weight, and that.
    pub(super) fn neighbours(&self, i: usize) -> impl Iterator<Item = (usize, T)> {
        let (rows, side_by_side) = (self.at.iter().zip(&self.weight).take(self.rows), self.side_by_side);
        let of_row = rows.flat_map(move |(at, weight)| {
            (at[i] as usize..).zip(weight[i * side_by_side..][..side_by_side].iter().copied())
        });
        of_row.filter(|(_, weight)| *weight != T::ZERO)
    }

    /// Multiplies the weights of each point by a number of its own.
    pub fn scale(&mut self, by: &[T]) {
        for weights in &mut self.weight[..self.rows] {
            for (weights, by) in weights.chunks_exact_mut(self.side_by_side).zip(by) {
                for w in weights {
                    *w = *w * *by;
                }
            }
        }
    }
}

/// What is outside of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// Zeros.
    Zero,
    /// The element at the border.
    Repeat,
    /// The image, reflected at the middle of the outermost elements, or at their outer ends.
    Reflect {
        /// At their middle.
        corners: bool,
    },
}

/// How places are looked up in a plane of up to three axes.
pub struct Lookup {
    /// Lengths of the axes, the last first; those beyond are one.
    pub sizes: [usize; 3],
    /// How many axes there are.
    pub axes: usize,
    /// What is outside.
    pub border: Border,
    /// A place means the nearest element, rather than those that it lies between.
    pub nearest: bool,
}

/// What a place along an axis is made of, `scale * given + start`, where `scale` is the same for all places.
pub type GivenPlace<T> = (T, f64);

impl Lookup {
    /// Finds the points of up to [`POINTS`] places along `A` axes, the last first. `scales` are the derivatives of places by what is
    /// given. Slopes are found if they are `wanted`.
    #[inline]
    pub fn find<T: Float, const A: usize>(
        &self,
        places: impl ExactSizeIterator<Item = [GivenPlace<T>; A]> + Clone,
        (scales, wanted): ([f64; A], bool),
        to: &mut Points<T>,
    ) {
        let (n, plane) = (places.len(), self.sizes.iter().product());
        assert!(
            A == self.axes && n <= POINTS && plane <= LARGEST_PLANE,
            "places in a plane whose elements have numbers of 32 bits"
        );
        (to.n, to.rows, to.plane, to.all_inside) = (n, 0, plane, true);
        if plane == 0 {
            return;
        }
        // As long as halves of elements have numbers of type `T`.
        let in_own_type = self.sizes.iter().all(|n| (*n as f64) < 0.25 / T::EPSILON.real());
        // Where a reflected place is, all of its number says; elsewhere it is outside.
        let far = matches!(self.border, Border::Reflect { .. }) && are_far(places.clone(), scales);
        let in_own_type = in_own_type && !far;
        if self.nearest && in_own_type {
            if let Border::Reflect { corners } = self.border {
                let gap = i32::from(!corners);
                self.nearest_at_once::<T, A>(
                    places,
                    scales,
                    #[inline(always)]
                    |axis, place| axis.nearest_reflected(place, gap),
                    to,
                );
            } else {
                let endless = self.border == Border::Repeat;
                self.nearest_at_once::<T, A>(
                    places,
                    scales,
                    #[inline(always)]
                    |axis, place| axis.nearest_to(place, endless),
                    to,
                );
            }
            return;
        }
        match (in_own_type, far) {
            (true, _) => Self::place::<T, T, A>(places, scales, to),
            (false, false) => Self::place::<T, f64, A>(places, scales, to),
            (false, true) => self.place_in_periods::<T, A>(places, scales, to),
        }
        for (a, along) in to.along[..A].iter_mut().enumerate() {
            // Where no place is left the first element stands.
            along.low[n..].fill(0);
            along.share[n..].fill(T::ZERO);
            SampledAxis::new(self.sizes[a]).settle(T::of(scales[a]), self.border, along);
        }
        if self.nearest {
            self.nearest::<T, A>(to);
        } else {
            self.neighbours::<T, A>(wanted, to);
        }
    }

    /// The nearest elements of places, where `nearest` finds them.
    #[inline]
    fn nearest_at_once<T: Float, const A: usize>(
        &self,
        places: impl Iterator<Item = [GivenPlace<T>; A]>,
        scales: [f64; A],
        nearest: impl Fn(SampledAxis, (T, T, f64)) -> (i32, bool),
        to: &mut Points<T>,
    ) {
        (to.rows, to.side_by_side) = (1, 1);
        let scales = scales.map(T::of);
        let (steps, axes) = (self.steps(), self.sizes.map(SampledAxis::new));
        let Points { n, at: [at, ..], weight: [weight, ..], .. } = to;
        at[*n..].fill(0);
        to.all_inside = put_nearest::<_, T, A>(
            places,
            #[inline(always)]
            move |given, a| nearest(axes[a], (scales[a], given[a].0, given[a].1)),
            steps,
            (at, weight),
        );
    }

    /// The nearest elements of settled places.
    fn nearest<T: Float, const A: usize>(&self, to: &mut Points<T>) {
        (to.rows, to.side_by_side) = (1, 1);
        let (steps, axes) = (self.steps(), self.sizes.map(SampledAxis::new));
        let Points { at: [at, ..], weight: [weight, ..], along, .. } = to;
        let along = &*along;
        to.all_inside = put_nearest::<_, T, A>(
            0..POINTS,
            #[inline(always)]
            move |i, a| axes[a].nearest(along[a].low[*i], along[a].share[*i]),
            steps,
            (at, weight),
        );
    }

    /// The elements that places lie between.
    fn neighbours<T: Float, const A: usize>(&self, wanted: bool, to: &mut Points<T>) {
        (to.rows, to.side_by_side) = (1 << (A - 1), if self.sizes[0] == 1 { 1 } else { 2 });
        for (a, along) in to.along[..A].iter_mut().enumerate() {
            to.all_inside &= SampledAxis::new(self.sizes[a]).neighbours(along);
        }
        for row in 0..to.rows {
            self.row::<T, A>(row, wanted, to);
        }
    }

    /// Elements from one to the next along each axis.
    fn steps(&self) -> [i32; 3] {
        [1, self.sizes[0], self.sizes[0] * self.sizes[1]].map(|step| step as i32)
    }

    #[inline]
    fn place<T: Float, C: Float, const A: usize>(
        places: impl Iterator<Item = [GivenPlace<T>; A]>,
        scales: [f64; A],
        to: &mut Points<T>,
    ) {
        let (scales, along) = (scales.map(C::of), &mut to.along);
        vectorised(
            #[inline(always)]
            move || {
                for (i, given) in (0..POINTS).zip(places) {
                    for (along, (scale, (given, start))) in
                        along.iter_mut().zip(scales.into_iter().zip(given))
                    {
                        // SAFETY: there is room for so many points; a check of each would end the loop over registers early.
                        let (low, share) =
                            unsafe { (along.low.get_unchecked_mut(i), along.share.get_unchecked_mut(i)) };
                        (*low, *share) = place(scale, given, start);
                    }
                }
            },
        );
    }

    /// As [`Lookup::place`], of places of which some are far out in reflections.
    #[cold]
    fn place_in_periods<T: Float, const A: usize>(
        &self,
        places: impl Iterator<Item = [GivenPlace<T>; A]>,
        scales: [f64; A],
        to: &mut Points<T>,
    ) {
        let periods: [f64; A] = std::array::from_fn(|a| SampledAxis::new(self.sizes[a]).period(self.border));
        for (i, given) in (0..POINTS).zip(places) {
            for (a, along) in to.along.iter_mut().enumerate().take(A) {
                let (number, start) = given[a];
                (along.low[i], along.share[i]) = place_in_period(scales[a], number, start, periods[a]);
            }
        }
    }

    /// Puts the neighbours in a row together.
    fn row<T: Float, const A: usize>(&self, row: usize, wanted: bool, to: &mut Points<T>) {
        let steps = self.steps();
        let side: [usize; A] = std::array::from_fn(|a| if a == 0 { 0 } else { row >> (a - 1) & 1 });
        // An axis of one element has no next one.
        let start =
            (1..A).map(|a| if self.sizes[a] > 1 { side[a] as i32 * steps[a] } else { 0 }).sum::<i32>();
        let Points { at, weight, slopes, along, side_by_side, .. } = to;
        let (at, along) = (&mut at[row], &*along);
        vectorised(
            #[inline(always)]
            move || {
                for i in 0..POINTS {
                    at[i] = (0..A).fold(start, |at, a| at + along[a].first[i] * steps[a]);
                }
            },
        );
        let products = if *side_by_side == 1 { products::<T, A, 1> } else { products::<T, A, 2> };
        let shares: [_; A] = std::array::from_fn(|a| &along[a].weight[side[a]]);
        products(&along[0].weight, shares, &mut weight[row]);
        for (axis, slopes) in slopes.iter_mut().enumerate().take(if wanted { A } else { 0 }) {
            let (mut pair, mut rest) = (&along[0].weight, shares);
            if axis == 0 {
                pair = &along[0].slope;
            } else {
                rest[axis] = &along[axis].slope[side[axis]];
            }
            products(pair, rest, &mut slopes[row]);
        }
    }
}

/// True if any place is further out than its number alone says where it is.
#[inline]
#[allow(clippy::needless_bitwise_bool)] // conditions of lanes are combined, not jumped over
fn are_far<T: Float, const A: usize>(
    places: impl Iterator<Item = [GivenPlace<T>; A]>,
    scales: [f64; A],
) -> bool {
    let scales = scales.map(T::of);
    vectorised(
        #[inline(always)]
        move || {
            places.fold(
                false,
                #[inline(always)]
                |any, given| (0..A).fold(any, |any, a| any | is_far(scales[a], given[a].0, given[a].1)),
            )
        },
    )
}

/// Writes the number of one element for each point, made of its numbers along the axes, which `element` gives for a place and an axis,
/// and its weight: one, or zero if it is outside along one of them. Says whether none is.
#[inline(always)]
fn put_nearest<P, T: Float, const A: usize>(
    places: impl Iterator<Item = P>,
    element: impl Fn(&P, usize) -> (i32, bool),
    steps: [i32; 3],
    (at, weight): (&mut PerPoint<i32>, &mut [T; 2 * POINTS]),
) -> bool {
    vectorised(
        #[inline(always)]
        move || {
            let mut all_inside = true;
            for (i, given) in (0..POINTS).zip(places) {
                let (mut place, mut is_inside) = (0, true);
                for (a, step) in steps.iter().enumerate().take(A) {
                    let (number, is_own) = element(&given, a);
                    place += number * step;
                    is_inside &= is_own;
                }
                // SAFETY: there is room for so many points; a check of each would end the loop over registers early.
                let (at, weight) = unsafe { (at.get_unchecked_mut(i), weight.get_unchecked_mut(i)) };
                *at = place;
                *weight = either([is_inside, false], [T::ONE; 2]);
                all_inside &= is_inside;
            }
            all_inside
        },
    )
}

/// Writes for each point the products of the first `S` numbers of two by one along each other axis; the first of `rest` is not read.
fn products<T: Float, const A: usize, const S: usize>(
    pair: &[PerPoint<T>; 2],
    rest: [&PerPoint<T>; A],
    to: &mut [T; 2 * POINTS],
) {
    vectorised(
        #[inline(always)]
        move || {
            for i in 0..POINTS {
                let product = (1..A).fold(T::ONE, |product, a| product * rest[a][i]);
                for side in 0..S {
                    to[S * i + side] = pair[side][i] * product;
                }
            }
        },
    );
}

//! Coordinates in a plane, and the elements around them. Knows lengths of axes, not elements.

use super::axis::{AxisPlaces, SampledAxis, either, is_far, place, place_in_period};
use crate::kernels::Float;
use crate::kernels::simd::vectorised_for;

/// The number of points that are processed together.
pub const POINTS: usize = 128;
/// The number of rows around a point in up to three dimensions.
pub(super) const ROWS: usize = 4;
/// The most elements of a plane, whose indices have 32 bits.
pub const LARGEST_PLANE: usize = i32::MAX as usize;

/// One number for each point.
pub(super) type PerPoint<T> = [T; POINTS];
/// Two numbers for each row and point, for two adjacent elements.
pub(super) type PerElement<T> = [[T; 2 * POINTS]; ROWS];

/// Up to [`POINTS`] points: the two adjacent elements in each row around them, with weights and derivatives of the
/// weights. A neighbour outside of the plane has weight and derivatives zero.
pub struct Points<T> {
    /// The number of points.
    pub(super) n: usize,
    /// The number of rows with neighbours.
    pub(super) rows: usize,
    /// The number of neighbours in a row, one or two.
    pub(super) side_by_side: usize,
    /// The number of elements of the plane, which bounds [`Points::at`].
    pub(super) plane: usize,
    /// True if no neighbour is outside of the plane.
    pub(super) all_inside: bool,
    /// The indices of the first neighbours.
    pub(super) at: [PerPoint<i32>; ROWS],
    /// The weight of each neighbour.
    pub(super) weight: PerElement<T>,
    /// The derivatives of the weights along each axis, the last first, if requested.
    pub(super) slopes: [PerElement<T>; 3],
    /// A sum for each weight.
    pub(super) sums: PerElement<T>,
    /// The coordinates along each axis.
    along: [AxisPlaces<T>; 3],
}

impl<T: Float> Points<T> {
    /// No points. All zeros, which is faster to initialize than to copy.
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

    /// The neighbours of point `i` with nonzero weight, and their weights.
    pub(super) fn neighbours(&self, i: usize) -> impl Iterator<Item = (usize, T)> {
        let (rows, side_by_side) = (self.at.iter().zip(&self.weight).take(self.rows), self.side_by_side);
        let of_row = rows.flat_map(move |(at, weight)| {
            (at[i] as usize..).zip(weight[i * side_by_side..][..side_by_side].iter().copied())
        });
        of_row.filter(|(_, weight)| *weight != T::ZERO)
    }

    /// Multiplies the weights of each point by its factor.
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

/// The values outside of an image.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Border {
    /// Zeros.
    Zero,
    /// The element at the border.
    Repeat,
    /// The image, reflected at the centers of the outermost elements, or at their outer edges.
    Reflect {
        /// True for reflection at the centers.
        corners: bool,
    },
}

/// Samples a plane of up to three axes.
pub struct Lookup {
    /// The lengths of the axes, the last first. Missing axes have length one.
    pub sizes: [usize; 3],
    /// The number of axes.
    pub axes: usize,
    /// The values outside.
    pub border: Border,
    /// True to read the nearest element instead of interpolating.
    pub nearest: bool,
}

/// The parts `given` and `start` of a coordinate `scale * given + start`, where `scale` is the same for all
/// coordinates.
pub type GivenPlace<T> = (T, f64);

impl Lookup {
    /// Computes up to [`POINTS`] points from their coordinates along `A` axes, the last first. `scales` are the
    /// derivatives of the coordinates by the given numbers. Slopes are computed if they are `wanted`.
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
        // Type `T` must represent halves of elements.
        let in_own_type = self.sizes.iter().all(|n| (*n as f64) < 0.25 / T::EPSILON.real());
        // A distant coordinate matters only if it is reflected. Otherwise it is outside.
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
            // Unused entries are the first element.
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

    /// Computes the nearest elements of coordinates with `nearest`.
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

    /// Computes the nearest elements of coordinates that were moved.
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

    /// Computes the elements around coordinates.
    fn neighbours<T: Float, const A: usize>(&self, wanted: bool, to: &mut Points<T>) {
        (to.rows, to.side_by_side) = (1 << (A - 1), if self.sizes[0] == 1 { 1 } else { 2 });
        for (a, along) in to.along[..A].iter_mut().enumerate() {
            to.all_inside &= SampledAxis::new(self.sizes[a]).neighbours(along);
        }
        for row in 0..to.rows {
            self.row::<T, A>(row, wanted, to);
        }
    }

    /// The strides of the axes.
    fn steps(&self) -> [i32; 3] {
        [1, self.sizes[0], self.sizes[0] * self.sizes[1]].map(|step| step as i32)
    }

    /// Finds the element before each coordinate and the distance from it, along each axis. Computes in `C`.
    #[inline]
    fn place<T: Float, C: Float, const A: usize>(
        places: impl Iterator<Item = [GivenPlace<T>; A]>,
        scales: [f64; A],
        to: &mut Points<T>,
    ) {
        let (scales, along) = (scales.map(C::of), &mut to.along);
        vectorised_for::<C, _>(
            #[inline(always)]
            move || {
                for (i, given) in (0..POINTS).zip(places) {
                    for (along, (scale, (given, start))) in
                        along.iter_mut().zip(scales.into_iter().zip(given))
                    {
                        // SAFETY: the arrays have at least `n` entries. Checking each would stop vectorization.
                        let (low, share) =
                            unsafe { (along.low.get_unchecked_mut(i), along.share.get_unchecked_mut(i)) };
                        (*low, *share) = place(scale, given, start);
                    }
                }
            },
        );
    }

    /// As [`Lookup::place`], if some coordinates are distant and reflected.
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

    /// Computes the neighbours in a row from the coordinates of the axes.
    fn row<T: Float, const A: usize>(&self, row: usize, wanted: bool, to: &mut Points<T>) {
        let steps = self.steps();
        let side: [usize; A] = std::array::from_fn(|a| if a == 0 { 0 } else { row >> (a - 1) & 1 });
        // An axis of one element has no next element.
        let start =
            (1..A).map(|a| if self.sizes[a] > 1 { side[a] as i32 * steps[a] } else { 0 }).sum::<i32>();
        let Points { at, weight, slopes, along, side_by_side, .. } = to;
        let (at, along) = (&mut at[row], &*along);
        vectorised_for::<T, _>(
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

/// True if any coordinate is too large for [`place`](super::axis::place).
#[inline]
#[allow(clippy::needless_bitwise_bool)] // conditions of lanes are combined, not jumped over
fn are_far<T: Float, const A: usize>(
    places: impl Iterator<Item = [GivenPlace<T>; A]>,
    scales: [f64; A],
) -> bool {
    let scales = scales.map(T::of);
    vectorised_for::<T, _>(
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

/// Writes the index and the weight of one element for each point. `element` gives the index along an axis for a
/// coordinate. The weight is one, or zero if the element is outside. Returns true if all are inside.
#[inline(always)]
fn put_nearest<P, T: Float, const A: usize>(
    places: impl Iterator<Item = P>,
    element: impl Fn(&P, usize) -> (i32, bool),
    steps: [i32; 3],
    (at, weight): (&mut PerPoint<i32>, &mut [T; 2 * POINTS]),
) -> bool {
    vectorised_for::<T, _>(
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
                // SAFETY: the arrays have at least `n` entries. Checking each would stop vectorization.
                let (at, weight) = unsafe { (at.get_unchecked_mut(i), weight.get_unchecked_mut(i)) };
                *at = place;
                *weight = either([is_inside, false], [T::ONE; 2]);
                all_inside &= is_inside;
            }
            all_inside
        },
    )
}

/// Writes for each point the products of the first `S` numbers of `two` by one number along each other axis. The first
/// one of `rest` is not read.
fn products<T: Float, const A: usize, const S: usize>(
    pair: &[PerPoint<T>; 2],
    rest: [&PerPoint<T>; A],
    to: &mut [T; 2 * POINTS],
) {
    vectorised_for::<T, _>(
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

//! Places in a plane and the elements that they lie between. Knows lengths of axes; knows no elements.

use crate::kernels::Float;
use crate::kernels::simd::vectorised;

/// Points that are looked up together.
pub const POINTS: usize = 64;
/// Neighbours of a point in up to three dimensions.
pub(super) const NEIGHBOURS: usize = 8;
/// Elements that a plane may have: their numbers fill 32 bits.
pub const LARGEST_PLANE: usize = i32::MAX as usize;

/// One number for each point.
pub(super) type PerPoint<T> = [T; POINTS];

/// Up to [`POINTS`] points: the neighbours of each in a plane, their weights, and the slopes of these. Neighbour by neighbour, the
/// numbers of all points lie side by side. A neighbour outside of the plane has weight and slopes of zero.
pub struct Points<T> {
    /// How many points there are.
    pub(super) n: usize,
    /// How many neighbours each has.
    pub(super) neighbours: usize,
    /// Elements of the plane: [`Points::at`] names none beyond.
    pub(super) plane: usize,
    /// No neighbour is outside of the plane.
    pub(super) all_inside: bool,
    /// Numbers of the elements.
    pub(super) at: [PerPoint<i32>; NEIGHBOURS],
    pub(super) weight: [PerPoint<T>; NEIGHBOURS],
    /// Derivatives of the weights along each axis, the last first, if they were asked for.
    pub(super) slopes: [[PerPoint<T>; NEIGHBOURS]; 3],
    /// What these are made of.
    along: [AxisNeighbours; 3],
}

impl<T: Float> Points<T> {
    /// None.
    pub const NONE: Self = Self {
        n: 0,
        neighbours: 0,
        plane: 0,
        all_inside: true,
        at: [[0; POINTS]; NEIGHBOURS],
        weight: [[T::ZERO; POINTS]; NEIGHBOURS],
        slopes: [[[T::ZERO; POINTS]; NEIGHBOURS]; 3],
        along: [AxisNeighbours::NONE; 3],
    };

    /// Multiplies the weights of each point by a number of its own.
    pub fn scale(&mut self, by: &[T]) {
        for weights in &mut self.weight[..self.neighbours] {
            weights[..self.n].iter_mut().zip(by).for_each(|(w, by)| *w = *w * *by);
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

/// A number reflected into `low..=high`, and the slope of that.
fn reflected(at: f64, low: f64, high: f64) -> (f64, f64) {
    let width = high - low;
    if (low..=high).contains(&at) || !at.is_finite() {
        return (at, 1.0);
    }
    if width <= 0.0 {
        return (low, 0.0);
    }
    let turn = (at - low).rem_euclid(2.0 * width);
    if turn <= width { (low + turn, 1.0) } else { (high - (turn - width), -1.0) }
}

/// A number moved into `0..=last`, and the slope of that.
#[inline(always)]
fn clamped((at, slope): (f64, f64), last: f64) -> (f64, f64) {
    let within = if at < 0.0 || at > last { 0.0 } else { slope };
    (
        if at < 0.0 {
            0.0
        } else if at > last {
            last
        } else {
            at
        },
        within,
    )
}

/// How places are looked up in a plane of up to three axes.
pub struct Lookup {
    /// Lengths of the axes, the last first.
    pub sizes: [usize; 3],
    /// How many axes there are.
    pub axes: usize,
    /// What is outside.
    pub border: Border,
    /// A place means the nearest element, rather than those that it lies between.
    pub nearest: bool,
}

/// Along one axis, the lower and the upper neighbour of each point: which it is, its share, and the slope of that.
struct AxisNeighbours {
    index: [PerPoint<i32>; 2],
    share: [PerPoint<f64>; 2],
    slope: [PerPoint<f64>; 2],
}

impl AxisNeighbours {
    const NONE: Self = Self { index: [[0; POINTS]; 2], share: [[0.0; POINTS]; 2], slope: [[0.0; POINTS]; 2] };
}

impl Lookup {
    /// Finds the points at `n` places: `place` gives the place of a point along an axis, the last first, in elements, and `scales`
    /// the derivatives of that. Slopes are found if they are `wanted`.
    #[inline]
    pub fn find<T: Float>(
        &self,
        n: usize,
        place: impl Fn(usize, usize) -> f64,
        (scales, wanted): ([f64; 3], bool),
        to: &mut Points<T>,
    ) {
        assert!(n <= POINTS && (1..=3).contains(&self.axes));
        let plane = self.sizes[..self.axes].iter().product();
        assert!(plane <= LARGEST_PLANE, "a plane whose elements have numbers of 32 bits");
        (to.n, to.neighbours, to.plane, to.all_inside) = (n, 0, plane, true);
        if plane == 0 {
            return;
        }
        for (a, scale) in scales.into_iter().enumerate().take(self.axes) {
            let (mut at, mut slopes) = ([0.0; POINTS], [scale; POINTS]);
            at[..n].iter_mut().enumerate().for_each(|(i, at)| *at = place(a, i));
            self.settle(self.sizes[a], &mut at[..n], &mut slopes[..n]);
            to.all_inside &= self.neighbours(self.sizes[a] as f64 - 1.0, &at, &slopes, &mut to.along[a]);
        }
        to.neighbours = if self.nearest { 1 } else { 1 << self.axes };
        match self.axes {
            1 => self.corners::<T, 1>(wanted, to),
            2 => self.corners::<T, 2>(wanted, to),
            _ => self.corners::<T, 3>(wanted, to),
        }
    }

    /// Moves places on an axis of length `n` to where they are looked up, and multiplies slopes by the slopes of that.
    fn settle(&self, n: usize, at: &mut [f64], slopes: &mut [f64]) {
        let last = n as f64 - 1.0;
        let mut each = |f: &dyn Fn(f64) -> (f64, f64)| {
            for (at, slope) in at.iter_mut().zip(slopes.iter_mut()) {
                let (settled, within) = f(*at);
                (*at, *slope) = (settled, *slope * within);
            }
        };
        match self.border {
            Border::Zero => {}
            Border::Reflect { corners: true } => each(&|at| reflected(at, 0.0, last)),
            Border::Reflect { corners: false } => {
                each(&|at| clamped(reflected(at, -0.5, last + 0.5), last));
            }
            Border::Repeat => vectorised(
                #[inline(always)]
                move || {
                    for (at, slope) in at.iter_mut().zip(slopes) {
                        (*at, *slope) = clamped((*at, *slope), last);
                    }
                },
            ),
        }
    }

    /// Finds the neighbours of places along an axis whose last element is number `last`; says whether all are inside.
    fn neighbours(
        &self,
        last: f64,
        at: &PerPoint<f64>,
        slopes: &PerPoint<f64>,
        to: &mut AxisNeighbours,
    ) -> bool {
        let nearest = self.nearest;
        let AxisNeighbours { index: [lower, upper], share: [low_share, up_share], slope: [falling, rising] } =
            to;
        vectorised(
            #[inline(always)]
            move || {
                let mut outside = 0_u32;
                for i in 0..POINTS {
                    let at = at[i];
                    let low = if nearest { at.round() } else { at.floor() };
                    let (share, up) = (at - low, low + 1.0);
                    // A place that is no number has no neighbours.
                    let has_low = low >= 0.0 && low <= last;
                    let has_up = !nearest && up >= 0.0 && up <= last;
                    outside |= u32::from(!has_low) | u32::from(!has_up && !nearest);
                    let index = |v: f64| {
                        // SAFETY: the number is within the axis, whose length fills 31 bits; NaN became zero.
                        unsafe { v.max(0.0).min(last).to_int_unchecked::<i32>() }
                    };
                    (lower[i], upper[i]) = (index(low), index(up));
                    let own = if nearest { 1.0 } else { 1.0 - share };
                    low_share[i] = if has_low { own } else { 0.0 };
                    up_share[i] = if has_up { share } else { 0.0 };
                    falling[i] = if has_low && !nearest { -slopes[i] } else { 0.0 };
                    rising[i] = if has_up { slopes[i] } else { 0.0 };
                }
                outside == 0
            },
        )
    }

    /// Puts the neighbours along `AXES` axes together.
    fn corners<T: Float, const AXES: usize>(&self, wanted: bool, to: &mut Points<T>) {
        let steps = [1, self.sizes[0], self.sizes[0] * self.sizes[1]].map(|step| step as i32);
        for corner in 0..to.neighbours {
            let sides: [usize; AXES] = std::array::from_fn(|a| corner >> a & 1);
            let index: [&PerPoint<i32>; AXES] = std::array::from_fn(|a| &to.along[a].index[sides[a]]);
            let share: [&PerPoint<f64>; AXES] = std::array::from_fn(|a| &to.along[a].share[sides[a]]);
            let (at, weight) = (&mut to.at[corner], &mut to.weight[corner]);
            vectorised(
                #[inline(always)]
                move || {
                    for i in 0..POINTS {
                        let (mut place, mut product) = (0, 1.0);
                        for a in 0..AXES {
                            place += index[a][i] * steps[a];
                            product *= share[a][i];
                        }
                        at[i] = place;
                        weight[i] = T::of(product);
                    }
                },
            );
            for (axis, slopes) in to.slopes.iter_mut().enumerate().take(if wanted { AXES } else { 0 }) {
                let (slope, to) = (&to.along[axis].slope[sides[axis]], &mut slopes[corner]);
                vectorised(
                    #[inline(always)]
                    move || {
                        for i in 0..POINTS {
                            let mut product = slope[i];
                            for a in (0..AXES).filter(|a| *a != axis) {
                                product *= share[a][i];
                            }
                            to[i] = T::of(product);
                        }
                    },
                );
            }
        }
    }
}

//! Reading images between their elements, at points that are given, and the way back. Knows points with weights; knows
//! nothing of where they come from.

mod points;

use std::ops::Range;

pub use points::{Border, LARGEST_PLANE, Lookup, POINTS, Points};
use points::{NEIGHBOURS, PerPoint};

use super::Float;
use super::map::GRAIN;
use super::simd::vectorised;
use super::threads::{self, Shared};

/// Channels that one thread takes on the way back.
const CHANNELS: usize = 16;
/// Channels whose elements are added to together.
const TOGETHER: usize = 4;

/// Images, and how many points each of them is looked up at.
#[derive(Clone, Copy)]
pub struct Sampling {
    /// Number of images.
    pub images: usize,
    /// Planes of an image.
    pub channels: usize,
    /// Elements of a plane.
    pub plane: usize,
    /// Points for each image.
    pub points: usize,
    /// Channels are the last axis, of images and points.
    pub channel_last: bool,
}

/// The product of a value and a weight; a weight of zero may stand for a value that is not meant.
#[inline(always)]
fn product<T: Float, const MASKED: bool>(v: T, weight: T) -> T {
    if MASKED && weight == T::ZERO { T::ZERO } else { v * weight }
}

/// Calls a function for as many neighbours as points have.
macro_rules! by_neighbours {
    ($points:expr, $f:ident[$($more:tt)*]($($arg:expr),*)) => {
        match $points.neighbours {
            0 => $f::<T, 0, $($more)*>($($arg),*),
            1 => $f::<T, 1, $($more)*>($($arg),*),
            2 => $f::<T, 2, $($more)*>($($arg),*),
            4 => $f::<T, 4, $($more)*>($($arg),*),
            _ => $f::<T, 8, $($more)*>($($arg),*),
        }
    };
}

impl<T: Float> Points<T> {
    /// For each of the first `N` neighbours which elements they are, and their weights.
    #[inline(always)]
    fn first<const N: usize>(&self) -> ([&[i32]; N], [&[T]; N]) {
        (std::array::from_fn(|k| &self.at[k][..self.n]), std::array::from_fn(|k| &self.weight[k][..self.n]))
    }
}

/// Whether all of some numbers are finite.
fn all_finite<T: Float>(x: &[T]) -> bool {
    vectorised(
        #[inline(always)]
        move || x.iter().fold(true, |all, v| all & (v.abs() < T::INFINITY)),
    )
}

/// Writes the values of a plane at points.
fn read<T: Float, const N: usize>(points: &Points<T>, plane: &[T], to: &mut [T]) {
    read_as::<T, N, false>(points, plane, to);
    // What is not meant counts zero times, which changes nothing unless it is infinite or not a number.
    if !points.all_inside && !all_finite(to) {
        read_as::<T, N, true>(points, plane, to);
    }
}

fn read_as<T: Float, const N: usize, const MASKED: bool>(points: &Points<T>, plane: &[T], to: &mut [T]) {
    assert!(plane.len() >= points.plane && to.len() == points.n);
    let (at, weight) = points.first::<N>();
    vectorised(
        #[inline(always)]
        move || {
            for (i, to) in to.iter_mut().enumerate() {
                // SAFETY: there are as many points as values; `Lookup` named no element beyond the plane.
                let product = |k: usize| unsafe {
                    let v = *plane.get_unchecked(*at[k].get_unchecked(i) as usize);
                    product::<T, MASKED>(v, *weight[k].get_unchecked(i))
                };
                *to = (0..N).fold(T::ZERO, |sum, k| sum + product(k));
            }
        },
    );
}

/// Adds products of the values of a plane and those of `g` to the sums of neighbours.
fn meet<T: Float, const N: usize>(
    points: &Points<T>,
    plane: &[T],
    g: &[T],
    sums: &mut [PerPoint<T>; NEIGHBOURS],
) {
    assert!(plane.len() >= points.plane && g.len() == points.n);
    let (at, _) = points.first::<N>();
    for (at, sums) in at.into_iter().zip(sums) {
        vectorised(
            #[inline(always)]
            move || {
                for ((at, sum), g) in at.iter().zip(sums.iter_mut()).zip(g) {
                    // SAFETY: `Lookup` named no element beyond the plane.
                    *sum = *sum + unsafe { *plane.get_unchecked(*at as usize) } * *g;
                }
            },
        );
    }
}

/// Adds products; a weight of zero may stand for a value that is not meant.
fn add_products<T: Float>(to: &mut PerPoint<T>, x: &PerPoint<T>, weights: &PerPoint<T>) {
    vectorised(
        #[inline(always)]
        move || {
            for i in 0..POINTS {
                to[i] = to[i] + product::<T, true>(x[i], weights[i]);
            }
        },
    );
}

/// Adds what values at points give back to the elements of `C` planes of `size` that lie one after the other. Values of the planes
/// are `step` apart in `g`.
fn add<T: Float, const N: usize, const C: usize>(
    points: &Points<T>,
    planes: &mut [T],
    size: usize,
    (g, step): (&[T], usize),
) {
    assert!(size >= points.plane && planes.len() == C * size);
    let g: [&[T]; C] = std::array::from_fn(|c| &g[c * step..][..points.n]);
    if points.all_inside || g.iter().all(|g| all_finite(g)) {
        add_as::<T, N, C, false>(points, planes, size, g);
    } else {
        add_as::<T, N, C, true>(points, planes, size, g);
    }
}

fn add_as<T: Float, const N: usize, const C: usize, const MASKED: bool>(
    points: &Points<T>,
    planes: &mut [T],
    size: usize,
    g: [&[T]; C],
) {
    let (at, weight) = points.first::<N>();
    for i in 0..points.n {
        for k in 0..N {
            // SAFETY: there are so many points, and as many numbers in each of `g`; `Lookup` named no element beyond a plane, of
            // which there are `C`.
            unsafe {
                let (at, weight) = (*at[k].get_unchecked(i) as usize, *weight[k].get_unchecked(i));
                for (c, g) in g.into_iter().enumerate() {
                    let to = planes.get_unchecked_mut(c * size + at);
                    *to = *to + product::<T, MASKED>(*g.get_unchecked(i), weight);
                }
            }
        }
    }
}

impl Sampling {
    /// Where the plane of a channel starts, or the first element of an image if channels are last.
    fn source(&self, image: usize, channel: usize) -> usize {
        if self.channel_last {
            image * self.plane * self.channels
        } else {
            (image * self.channels + channel) * self.plane
        }
    }

    /// Where the values of points from `first` on are, of a channel, or of all if channels are last.
    fn target(&self, image: usize, channel: usize, first: usize) -> usize {
        if self.channel_last {
            (image * self.points + first) * self.channels
        } else {
            (image * self.channels + channel) * self.points + first
        }
    }

    /// Calls `work` with images and their points, found by `find`, in parallel.
    fn parts<T: Float>(
        &self,
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
        work: impl Fn(usize, Range<usize>, &Points<T>) + Sync,
    ) {
        let parts = self.points.div_ceil(POINTS);
        let grain = (GRAIN / (POINTS * (self.channels + 4) * 4)).max(1);
        threads::ranges(self.images * parts, grain, |range| {
            let mut points = Points::NONE;
            for i in range {
                let start = i % parts * POINTS;
                let range = start..self.points.min(start + POINTS);
                self.found(&find, i / parts, range.clone(), &mut points);
                work(i / parts, range, &points);
            }
        });
    }

    /// Has points found, which are within planes of this size.
    fn found<T: Float>(
        &self,
        find: impl Fn(usize, Range<usize>, &mut Points<T>),
        image: usize,
        range: Range<usize>,
        points: &mut Points<T>,
    ) {
        let n = range.len();
        find(image, range, points);
        assert!(points.n == n && points.plane <= self.plane, "points of planes of this size");
    }

    /// Writes the values at all points, which `find` finds for an image and some of their numbers.
    pub fn forward<T: Float>(
        &self,
        x: &[T],
        y: &mut [T],
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
    ) {
        let (channels, to) = (self.channels, Shared::new(y.as_mut_ptr()));
        assert!(y.len() == self.images * channels * self.points);
        self.parts(find, |image, range, points| {
            // SAFETY: the elements lie within `y`, and come once.
            let part = |at: usize, n: usize| unsafe { std::slice::from_raw_parts_mut(to.get().add(at), n) };
            if self.channel_last {
                let x = &x[self.source(image, 0)..][..self.plane * channels];
                let y = part(self.target(image, 0, range.start), points.n * channels);
                for (i, y) in y.chunks_exact_mut(channels.max(1)).enumerate() {
                    y.fill(T::ZERO);
                    for k in 0..points.neighbours {
                        let (at, weight) = (points.at[k][i] as usize * channels, points.weight[k][i]);
                        if weight != T::ZERO {
                            y.iter_mut().zip(&x[at..][..channels]).for_each(|(y, x)| *y = *y + *x * weight);
                        }
                    }
                }
                return;
            }
            for channel in 0..channels {
                let plane = &x[self.source(image, channel)..][..self.plane];
                let to = part(self.target(image, channel, range.start), points.n);
                by_neighbours!(points, read[](points, plane, to));
            }
        });
    }

    /// Adds what the values at all points give back to the elements.
    pub fn give_back<T: Float>(
        &self,
        gy: &[T],
        gx: &mut [T],
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
    ) {
        let (channels, len, to) = (self.channels, gx.len(), Shared::new(gx.as_mut_ptr()));
        assert!(len == self.images * channels * self.plane);
        let blocks = channels.div_ceil(CHANNELS);
        threads::ranges(self.images * blocks, 1, |range| {
            let mut points = Points::NONE;
            for i in range {
                let (image, first) = (i / blocks, i % blocks * CHANNELS);
                let own = first..channels.min(first + CHANNELS);
                threads::in_turn(self.points.div_ceil(POINTS), GRAIN / POINTS, |parts| {
                    for start in parts.map(|part| part * POINTS) {
                        let range = start..self.points.min(start + POINTS);
                        self.found(&find, image, range, &mut points);
                        if self.channel_last {
                            self.add_rows(gy, to, (image, start), own.clone(), &points);
                        } else {
                            self.add_planes(gy, to, (image, start), own.clone(), &points);
                        }
                    }
                });
            }
        });
    }

    /// [`Sampling::give_back`] of some points and channels, whose planes no other thread has.
    fn add_planes<T: Float>(
        &self,
        gy: &[T],
        to: Shared<T>,
        (image, start): (usize, usize),
        channels: Range<usize>,
        points: &Points<T>,
    ) {
        let size = self.plane;
        for first in channels.clone().step_by(TOGETHER) {
            let n = TOGETHER.min(channels.end - first);
            let g = (&gy[self.target(image, first, start)..], self.points);
            // SAFETY: the planes lie within the array.
            let planes =
                unsafe { std::slice::from_raw_parts_mut(to.get().add(self.source(image, first)), n * size) };
            match n {
                1 => by_neighbours!(points, add[1](points, planes, size, g)),
                2 => by_neighbours!(points, add[2](points, planes, size, g)),
                3 => by_neighbours!(points, add[3](points, planes, size, g)),
                _ => by_neighbours!(points, add[TOGETHER](points, planes, size, g)),
            }
        }
    }

    /// As [`Sampling::add_planes`], of channels that are the last axis.
    fn add_rows<T: Float>(
        &self,
        gy: &[T],
        to: Shared<T>,
        (image, start): (usize, usize),
        channels: Range<usize>,
        points: &Points<T>,
    ) {
        let n = channels.len();
        for i in 0..points.n {
            let g = &gy[self.target(image, 0, start + i) + channels.start..][..n];
            for k in (0..points.neighbours).filter(|k| points.weight[*k][i] != T::ZERO) {
                let at = self.source(image, 0) + points.at[k][i] as usize * self.channels + channels.start;
                // SAFETY: `Lookup` named no element beyond a plane; no other thread has these channels of this image.
                let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(at), n) };
                to.iter_mut().zip(g).for_each(|(to, g)| *to = *to + *g * points.weight[k][i]);
            }
        }
    }

    /// Writes [`Sampling::slopes`] to `to`, or adds them: the first `axes` of each point, side by side if they are the last axis
    /// of `to` as they are the second one otherwise.
    pub fn put_slopes<T: Float>(
        &self,
        given: [&[T]; 2],
        (to, accumulate): (&mut [T], bool),
        (axes, are_last): (usize, bool),
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
    ) {
        assert!(axes <= 3 && to.len() == self.images * axes * self.points, "a place for each slope");
        let to = Shared::new(to.as_mut_ptr());
        self.slopes(given, axes, find, |image, first, slopes| {
            let n = slopes.first().map_or(0, |slopes| slopes.len());
            for (i, (axis, slopes)) in (0..n).flat_map(|i| slopes.iter().enumerate().map(move |of| (i, of))) {
                let at = match are_last {
                    true => (image * self.points + first + i) * axes + axis,
                    false => (image * axes + axis) * self.points + first + i,
                };
                // SAFETY: there are as many places as points of images and axes, and each comes once.
                unsafe {
                    let to = to.get().add(at);
                    to.write(if accumulate { to.read() + slopes[i] } else { slopes[i] });
                }
            }
        });
    }

    /// Calls `put` with an image, the number of the first of some points, and for each of the first `axes` axes, the last first, the
    /// derivatives of the sum of their values times those of `gy`; if there are more axes than three, the fourth are these sums
    /// themselves. `find` has to find slopes.
    pub fn slopes<T: Float>(
        &self,
        [x, gy]: [&[T]; 2],
        axes: usize,
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
        put: impl Fn(usize, usize, &[&[T]]) + Sync,
    ) {
        self.parts(find, |image, range, points| {
            let mut sums = [[T::ZERO; POINTS]; NEIGHBOURS];
            self.sums([x, gy], (image, range.start), points, &mut sums);
            let mut slopes = [[T::ZERO; POINTS]; 4];
            let [along, across, beyond] = &points.slopes;
            let weights = [along, across, beyond, &points.weight];
            for (slopes, weights) in slopes.iter_mut().zip(weights).take(axes) {
                for (sums, weights) in sums.iter().zip(weights).take(points.neighbours) {
                    add_products(slopes, sums, weights);
                }
            }
            let all = slopes.each_ref().map(|slopes| &slopes[..points.n]);
            put(image, range.start, &all[..axes]);
        });
    }

    /// For each neighbour of points from `start` on, the sum of products of its values and those of `gy` over all channels.
    fn sums<T: Float>(
        &self,
        [x, gy]: [&[T]; 2],
        (image, start): (usize, usize),
        points: &Points<T>,
        sums: &mut [PerPoint<T>; NEIGHBOURS],
    ) {
        let channels = self.channels;
        if !self.channel_last {
            for channel in 0..channels {
                let plane = &x[self.source(image, channel)..][..self.plane];
                let g = &gy[self.target(image, channel, start)..][..points.n];
                by_neighbours!(points, meet[](points, plane, g, sums));
            }
            return;
        }
        let x = &x[self.source(image, 0)..][..self.plane * channels];
        for i in 0..points.n {
            let g = &gy[self.target(image, 0, start + i)..][..channels];
            for k in 0..points.neighbours {
                let x = &x[points.at[k][i] as usize * channels..][..channels];
                sums[k][i] = x.iter().zip(g).map(|(x, g)| *x * *g).sum();
            }
        }
    }
}

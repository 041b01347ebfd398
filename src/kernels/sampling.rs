//! Reads images at fractional points, and computes the gradients. Knows points and weights, not the operations that
//! define them.

mod axis;
mod planes;
mod points;

use std::ops::Range;

use planes::{add, by_neighbours, meet, read, total};
pub use points::{Border, GivenPlace, LARGEST_PLANE, Lookup, POINTS, Points};

use super::Float;
use super::map::GRAIN;
use super::simd::vectorised_for;
use super::threads::{self, Shared};

/// The number of channels that a thread processes for the gradient of the image.
const CHANNELS: usize = 16;
/// The number of channels that are added to together.
const TOGETHER: usize = 4;

/// The shapes of images and of their points.
#[derive(Clone, Copy)]
pub struct Sampling {
    /// The number of images.
    pub images: usize,
    /// The number of planes of an image.
    pub channels: usize,
    /// The number of elements of a plane.
    pub plane: usize,
    /// The number of points for each image.
    pub points: usize,
    /// True if channels are the last axis of images and of values at points.
    pub channel_last: bool,
}

impl Sampling {
    /// The start of the plane of a channel, or of an image if channels are last.
    fn source(&self, image: usize, channel: usize) -> usize {
        if self.channel_last {
            image * self.plane * self.channels
        } else {
            (image * self.channels + channel) * self.plane
        }
    }

    /// The start of the values of points from `first` on, for a channel, or for all if channels are last.
    fn target(&self, image: usize, channel: usize, first: usize) -> usize {
        if self.channel_last {
            (image * self.points + first) * self.channels
        } else {
            (image * self.channels + channel) * self.points + first
        }
    }

    /// Calls `work` in parallel with images and their points, which `find` computes.
    fn parts<T: Float>(
        &self,
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
        work: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
    ) {
        let parts = self.points.div_ceil(POINTS);
        let grain = (8 * GRAIN / (POINTS * (self.channels + 4))).max(1);
        threads::ranges(self.images * parts, grain, |range| {
            let mut points = Points::NONE;
            for i in range {
                let start = i % parts * POINTS;
                let range = start..self.points.min(start + POINTS);
                self.found(&find, i / parts, range.clone(), &mut points);
                work(i / parts, range, &mut points);
            }
        });
    }

    /// Computes points with `find`, and checks that they are within planes of this size.
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

    /// Writes the values at all points. `find` computes a range of the points of an image.
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
                    for (at, weight) in points.neighbours(i) {
                        y.iter_mut()
                            .zip(&x[at * channels..][..channels])
                            .for_each(|(y, x)| *y = *y + *x * weight);
                    }
                }
                return;
            }
            for channel in 0..channels {
                let plane = &x[self.source(image, channel)..][..self.plane];
                let to = part(self.target(image, channel, range.start), points.n);
                match points.rows {
                    0 => to.fill(T::ZERO),
                    _ => by_neighbours!(points, read[](points, plane, to)),
                }
            }
        });
    }

    /// Adds the gradients of the values at all points to the gradient of the images.
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

    /// [`Sampling::give_back`] for some points and channels, whose planes belong to this thread.
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

    /// As [`Sampling::add_planes`], with channels last.
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
            for (at, weight) in points.neighbours(i) {
                let at = self.source(image, 0) + at * self.channels + channels.start;
                // SAFETY: `Lookup` named no element beyond a plane; no other thread has these channels of this image.
                let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(at), n) };
                to.iter_mut().zip(g).for_each(|(to, g)| *to = *to + *g * weight);
            }
        }
    }

    /// Writes or adds [`Sampling::slopes`] along the first `axes` axes, two or three. `to` has shape (images, points,
    /// axes) if the axes are last, otherwise (images, axes, points).
    pub fn put_slopes<T: Float>(
        &self,
        given: [&[T]; 2],
        (to, accumulate): (&mut [T], bool),
        (axes, are_last): (usize, bool),
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
    ) {
        assert!(
            matches!(axes, 2 | 3) && to.len() == self.images * axes * self.points,
            "a place for each slope"
        );
        let to = Shared::new(to.as_mut_ptr());
        self.slopes(given, axes, find, |image, first, slopes| {
            let n = slopes.first().map_or(0, |slopes| slopes.len());
            // SAFETY: there are as many places as points of images and axes, and each comes once.
            let part = |at: usize, n: usize| unsafe { std::slice::from_raw_parts_mut(to.get().add(at), n) };
            if are_last {
                let to = part((image * self.points + first) * axes, n * axes);
                match axes {
                    2 => put_rows::<T, 2>(slopes, (to, accumulate)),
                    _ => put_rows::<T, 3>(slopes, (to, accumulate)),
                }
                return;
            }
            for (axis, slopes) in slopes.iter().enumerate() {
                let to = part((image * axes + axis) * self.points + first, n);
                put_rows::<T, 1>(std::slice::from_ref(slopes), (to, accumulate));
            }
        });
    }

    /// Calls `put` with an image, the number of the first of some points, and an array for each of the first `axes`
    /// axes. The last axis comes first. An array holds the derivatives of the sum over channels of the values times
    /// `gy`. With four axes, the fourth array holds the sum itself. `find` must compute slopes.
    pub fn slopes<T: Float>(
        &self,
        [x, gy]: [&[T]; 2],
        axes: usize,
        find: impl Fn(usize, Range<usize>, &mut Points<T>) + Sync,
        put: impl Fn(usize, usize, &[&[T]]) + Sync,
    ) {
        self.parts(find, |image, range, points| {
            self.sums([x, gy], (image, range.start), points);
            let (n, mut slopes) = (points.n, [[T::ZERO; POINTS]; 4]);
            let [along, across, beyond] = &points.slopes;
            for (to, factors) in slopes.iter_mut().zip([along, across, beyond, &points.weight]).take(axes) {
                by_neighbours!(points, total[](&points.sums, factors, &mut to[..n]));
            }
            let all = slopes.each_ref().map(|slopes| &slopes[..n]);
            put(image, range.start, &all[..axes]);
        });
    }

    /// Computes for each neighbour of the points from `start` on the sum over all channels of its value times `gy`.
    fn sums<T: Float>(&self, [x, gy]: [&[T]; 2], (image, start): (usize, usize), points: &mut Points<T>) {
        let (channels, side_by_side) = (self.channels, points.side_by_side);
        for sums in &mut points.sums[..points.rows] {
            sums.fill(T::ZERO);
        }
        if !self.channel_last {
            for channel in 0..channels {
                let plane = &x[self.source(image, channel)..][..self.plane];
                let g = &gy[self.target(image, channel, start)..][..points.n];
                by_neighbours!(points, meet[](points, plane, g));
            }
            return;
        }
        let x = &x[self.source(image, 0)..][..self.plane * channels];
        for i in 0..points.n {
            let g = &gy[self.target(image, 0, start + i)..][..channels];
            for (sums, at) in points.sums.iter_mut().zip(&points.at).take(points.rows) {
                for (side, sum) in sums[i * side_by_side..][..side_by_side].iter_mut().enumerate() {
                    let x = &x[(at[i] as usize + side) * channels..][..channels];
                    *sum = x.iter().zip(g).map(|(x, g)| *x * *g).sum();
                }
            }
        }
    }
}

/// Writes or adds the numbers of `A` slices, interleaved.
fn put_rows<T: Float, const A: usize>(of: &[&[T]], (to, accumulate): (&mut [T], bool)) {
    let (to, _) = to.as_chunks_mut::<A>();
    let of: [&[T]; A] = std::array::from_fn(|a| &of[a][..to.len()]);
    vectorised_for::<T, _>(
        #[inline(always)]
        move || {
            for (i, to) in to.iter_mut().enumerate() {
                for (to, of) in to.iter_mut().zip(of) {
                    *to = if accumulate { *to + of[i] } else { of[i] };
                }
            }
        },
    );
}

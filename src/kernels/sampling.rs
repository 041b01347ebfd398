//! Reading images between their elements, at points that are given, and the way back. Knows points with weights; knows
//! nothing of where they come from.

use std::ops::Range;

use super::Float;
use super::map::GRAIN;
use super::scratch::List;
use super::threads::{self, Shared};

/// Neighbours of a point in up to three dimensions.
pub const NEIGHBOURS: usize = 8;
/// Points that are looked up together.
const POINTS: usize = 64;
/// Channels that one thread takes on the way back.
const CHANNELS: usize = 16;

/// A point: which elements of a plane it lies between.
#[derive(Clone, Copy)]
pub struct Point<T> {
    /// Where these are.
    pub at: [usize; NEIGHBOURS],
    /// The share of each.
    pub weight: [T; NEIGHBOURS],
    /// How many there are.
    pub n: usize,
}

impl<T: Float> Point<T> {
    /// One that lies nowhere.
    pub const NOWHERE: Self = Self { at: [0; NEIGHBOURS], weight: [T::ZERO; NEIGHBOURS], n: 0 };

    /// With another neighbour.
    #[inline(always)]
    pub fn push(&mut self, at: usize, weight: T) {
        self.at[self.n] = at;
        self.weight[self.n] = weight;
        self.n += 1;
    }
}

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

impl Sampling {
    /// Where element `at` of a plane is.
    #[inline(always)]
    fn source(&self, image: usize, channel: usize, at: usize) -> usize {
        if self.channel_last {
            (image * self.plane + at) * self.channels + channel
        } else {
            (image * self.channels + channel) * self.plane + at
        }
    }

    /// Where the value of a point is.
    #[inline(always)]
    fn target(&self, image: usize, channel: usize, point: usize) -> usize {
        if self.channel_last {
            (image * self.points + point) * self.channels + channel
        } else {
            (image * self.channels + channel) * self.points + point
        }
    }

    /// Calls `work` with images and ranges of their points, in parallel.
    fn parts(&self, work: impl Fn(usize, Range<usize>) + Sync) {
        let parts = self.points.div_ceil(POINTS);
        let grain = (GRAIN / (POINTS * (self.channels + 4) * 4)).max(1);
        threads::ranges(self.images * parts, grain, |range| {
            for i in range {
                let start = i % parts * POINTS;
                work(i / parts, start..self.points.min(start + POINTS));
            }
        });
    }

    /// Writes the values at all points.
    pub fn forward<T: Float>(&self, x: &[T], y: &mut [T], point: impl Fn(usize, usize) -> Point<T> + Sync) {
        let (len, to) = (y.len(), Shared::new(y.as_mut_ptr()));
        assert!(len == self.images * self.channels * self.points);
        self.parts(|image, range| {
            let found: List<_> = range.map(|i| (point(image, i), i)).collect();
            self.meet(&found, 0..self.channels, |_, (point, i), channel| {
                let mut sum = T::ZERO;
                for k in 0..point.n {
                    sum = sum + x[self.source(image, channel, point.at[k])] * point.weight[k];
                }
                // SAFETY: the element lies within `y`, and comes once.
                unsafe { to.get().add(self.target(image, channel, *i)).write(sum) };
            });
        });
    }

    /// Adds what the values at all points give back to the elements.
    pub fn give_back<T: Float>(
        &self,
        gy: &[T],
        gx: &mut [T],
        point: impl Fn(usize, usize) -> Point<T> + Sync,
    ) {
        let (len, to) = (gx.len(), Shared::new(gx.as_mut_ptr()));
        assert!(len == self.images * self.channels * self.plane);
        let blocks = self.channels.div_ceil(CHANNELS);
        threads::ranges(self.images * blocks, 1, |range| {
            for i in range {
                let (image, first) = (i / blocks, i % blocks * CHANNELS);
                let channels = first..self.channels.min(first + CHANNELS);
                let add = |_: usize, (point, i): &(Point<T>, usize), channel: usize| {
                    let g = gy[self.target(image, channel, *i)];
                    for k in 0..point.n {
                        let at = self.source(image, channel, point.at[k]);
                        assert!(at < len);
                        // SAFETY: it lies within `gx`, and no other thread has these channels of this image.
                        unsafe {
                            let to = to.get().add(at);
                            to.write(to.read() + g * point.weight[k]);
                        }
                    }
                };
                threads::in_turn(self.points.div_ceil(POINTS), GRAIN / POINTS, |parts| {
                    for start in parts.map(|part| part * POINTS) {
                        let found = start..self.points.min(start + POINTS);
                        let found: List<_> = found.map(|i| (point(image, i), i)).collect();
                        self.meet(&found, channels.clone(), add);
                    }
                });
            }
        });
    }

    /// Calls `f` with the number of each point, the point and each channel, in the order in which images hold them.
    #[inline(always)]
    fn meet<P>(&self, points: &[P], channels: Range<usize>, mut f: impl FnMut(usize, &P, usize)) {
        if self.channel_last {
            for (n, point) in points.iter().enumerate() {
                for channel in channels.clone() {
                    f(n, point, channel);
                }
            }
        } else {
            for channel in channels {
                for (n, point) in points.iter().enumerate() {
                    f(n, point, channel);
                }
            }
        }
    }

    /// Writes [`Sampling::slopes`] to `to`, or adds them: the first `axes` of each point, side by side if they are the last axis
    /// of `to` as they are the second one otherwise.
    pub fn put_slopes<T: Float, const N: usize>(
        &self,
        [x, gy]: [&[T]; 2],
        (to, accumulate): (&mut [T], bool),
        (axes, are_last): (usize, bool),
        point: impl Fn(usize, usize) -> (Point<T>, [[T; NEIGHBOURS]; N]) + Sync,
    ) {
        assert!(axes <= N && to.len() == self.images * axes * self.points, "a place for each slope");
        let to = Shared::new(to.as_mut_ptr());
        self.slopes(x, gy, point, |image, i, slopes| {
            for (axis, g) in slopes.into_iter().take(axes).enumerate() {
                let at = match are_last {
                    true => (image * self.points + i) * axes + axis,
                    false => (image * axes + axis) * self.points + i,
                };
                // SAFETY: there are as many places as points of images and axes, and each comes once.
                unsafe {
                    let to = to.get().add(at);
                    to.write(if accumulate { to.read() + g } else { g });
                }
            }
        });
    }

    /// Calls `put` with each point and, for each of `N` lists of weights in the place of its own, the sum of products of
    /// the values then and `gy`: the derivative, where the weights are derivatives.
    pub fn slopes<T: Float, const N: usize>(
        &self,
        x: &[T],
        gy: &[T],
        point: impl Fn(usize, usize) -> (Point<T>, [[T; NEIGHBOURS]; N]) + Sync,
        put: impl Fn(usize, usize, [T; N]) + Sync,
    ) {
        self.parts(|image, range| {
            let found: List<_> = range.map(|i| (point(image, i), i)).collect();
            let mut sums = List::repeat([T::ZERO; NEIGHBOURS], found.len());
            self.meet(&found, 0..self.channels, |n, ((point, _), i), channel| {
                let g = gy[self.target(image, channel, *i)];
                for k in 0..point.n {
                    sums[n][k] = sums[n][k] + x[self.source(image, channel, point.at[k])] * g;
                }
            });
            for (((point, weights), i), sums) in found.iter().zip(&*sums) {
                let mut slopes = [T::ZERO; N];
                for k in 0..point.n {
                    for (slope, weights) in slopes.iter_mut().zip(weights) {
                        *slope = *slope + sums[k] * weights[k];
                    }
                }
                put(image, *i, slopes);
            }
        });
    }
}

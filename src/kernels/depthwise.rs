//! Convolution with one input channel in each group, summed directly: row by row, a row of the output being a sum of
//! shifted rows of the input.

use super::Float;
use super::convolution::{Geometry, Reach};

/// Where the elements of one channel lie: the first one, and how far neighbours are apart.
#[derive(Clone, Copy)]
struct Plane {
    at: usize,
    step: usize,
}

impl Plane {
    fn new(channel_last: bool, image: usize, channels: usize, channel: usize, area: usize) -> Self {
        let image = image * channels * area;
        if channel_last {
            Self { at: image + channel, step: channels }
        } else {
            Self { at: image + channel * area, step: 1 }
        }
    }
}

/// Calls `f(map, plane of the input, plane of the output)` for each output channel of each image.
fn for_each_plane(g: &Geometry, mut f: impl FnMut(usize, Plane, Plane)) {
    let multiplier = g.maps / g.channels;
    for image in 0..g.images {
        for map in 0..g.maps {
            let x = Plane::new(g.channel_last, image, g.channels, map / multiplier, g.area());
            let y = Plane::new(g.channel_last, image, g.maps, map, g.positions());
            f(map, x, y);
        }
    }
}

/// `y[i] += a * x[i]` for `n` elements, each slice with its own step.
#[inline(always)]
fn add_scaled<T: Float>(n: usize, a: T, x: &[T], x_step: usize, y: &mut [T], y_step: usize) {
    if x_step == 1 && y_step == 1 {
        y[..n].iter_mut().zip(&x[..n]).for_each(|(y, x)| *y = *y + a * *x);
    } else {
        let x = x.iter().step_by(x_step);
        y.iter_mut().step_by(y_step).zip(x).take(n).for_each(|(y, x)| *y = *y + a * *x);
    }
}

/// The sum of `x[i] * y[i]` over `n` elements, each slice with its own step.
#[inline(always)]
fn product<T: Float>(n: usize, x: &[T], x_step: usize, y: &[T], y_step: usize) -> T {
    let mut sums = [T::ZERO; 8];
    let pairs = x.iter().step_by(x_step).zip(y.iter().step_by(y_step)).take(n);
    for (i, (x, y)) in pairs.enumerate() {
        sums[i % 8] = sums[i % 8] + *x * *y;
    }
    ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))
}

/// Where a reach starts on the input and on the output.
fn starts(r: &Reach, x: Plane, y: Plane) -> (usize, usize) {
    (x.at + r.from * x.step, y.at + (r.at + r.inside.start) * y.step)
}

fn reaches(g: &Geometry) -> Vec<Reach> {
    let mut reaches = g.reaches(&(0..g.positions()));
    reaches.retain(|r| !r.inside.is_empty());
    reaches
}

pub(super) fn add_output<T: Float>(g: &Geometry, x: &[T], w: &[T], y: &mut [T]) {
    if x.is_empty() {
        return;
    }
    let (reaches, taps, step) = (reaches(g), g.taps(), g.step());
    for_each_plane(g, |map, xp, yp| {
        for r in &reaches {
            let (from, to) = starts(r, xp, yp);
            add_scaled(
                r.inside.len(),
                w[map * taps + r.tap],
                &x[from..],
                step * xp.step,
                &mut y[to..],
                yp.step,
            );
        }
    });
}

pub(super) fn add_input_gradient<T: Float>(g: &Geometry, gy: &[T], w: &[T], gx: &mut [T]) {
    let (reaches, taps, step) = (reaches(g), g.taps(), g.step());
    for_each_plane(g, |map, xp, yp| {
        for r in &reaches {
            let (to, from) = starts(r, xp, yp);
            add_scaled(
                r.inside.len(),
                w[map * taps + r.tap],
                &gy[from..],
                yp.step,
                &mut gx[to..],
                step * xp.step,
            );
        }
    });
}

pub(super) fn add_weight_gradient<T: Float>(g: &Geometry, x: &[T], gy: &[T], gw: &mut [T]) {
    let (reaches, taps, step) = (reaches(g), g.taps(), g.step());
    // One sum an image and weight, so that no running sum is long.
    let mut sums = vec![T::ZERO; taps];
    for_each_plane(g, |map, xp, yp| {
        sums.fill(T::ZERO);
        for r in &reaches {
            let (from, to) = starts(r, xp, yp);
            let sum = product(r.inside.len(), &x[from..], step * xp.step, &gy[to..], yp.step);
            sums[r.tap] = sums[r.tap] + sum;
        }
        let gw = &mut gw[map * taps..][..taps];
        gw.iter_mut().zip(&sums).for_each(|(g, s)| *g = *g + *s);
    });
}

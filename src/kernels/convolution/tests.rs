//! The three sums against loops over every image, group, map, channel, position and tap.

use std::marker::PhantomData;

use half::bf16;

use super::descriptor::Pass;
use super::select::{Method, WINOGRAD_CHANNELS, WINOGRAD_WEIGHT_CHANNELS, select, takes_winograd};
use super::{
    DerivedCache, Fingerprint, Geometry, Spatial, Weight, caches_weight, forward, input_gradient, pairs,
    weight_gradient,
};
use crate::kernels::Float;
use crate::kernels::epilogue::{Activation, Epilogue, Tail, Twice};
use crate::kernels::gemm::tiles;
use crate::kernels::sixteen_bits::{Values, ValuesMut};
use crate::kernels::threads::{num_threads, set_num_threads};

/// Images; channels, maps and groups; and for each axis the input, kernel, pad, stride and dilation.
pub(super) fn geometry(images: usize, [channels, maps, group]: [usize; 3], axes: &[[usize; 5]]) -> Geometry {
    let all = |f: fn(&[usize; 5]) -> usize| axes.iter().map(f).collect::<Spatial>();
    Geometry {
        images,
        channels,
        maps,
        group,
        input: all(|a| a[0]),
        kernel: all(|a| a[1]),
        output: all(|a| (a[0] + 2 * a[2] - a[4] * (a[1] - 1) - 1) / a[3] + 1),
        pad: all(|a| a[2]),
        stride: all(|a| a[3]),
        dilation: all(|a| a[4]),
        channel_last: false,
    }
}

/// Convolutions that every algorithm but depthwise is tested on.
fn geometries() -> Vec<Geometry> {
    vec![
        geometry(33, [16, 16, 1], &[[4, 3, 1, 1, 1]; 2]),
        geometry(7, [33, 25, 1], &[[9, 3, 0, 1, 1], [7, 3, 2, 1, 1]]),
        geometry(11, [24, 40, 1], &[[3, 3, 1, 1, 1], [8, 3, 3, 1, 1]]),
        geometry(2, [48, 50, 2], &[[33, 3, 1, 1, 1], [18, 3, 1, 1, 1]]),
        geometry(2, [70, 102, 2], &[[9, 3, 1, 1, 1], [6, 3, 0, 1, 1]]),
        geometry(8, [40, 130, 1], &[[8, 3, 1, 1, 1]; 2]),
        // Rows of several phases, of equal and of different heights, with few tiles and with many.
        geometry(2, [25, 30, 1], &[[23, 3, 1, 1, 2], [9, 3, 1, 1, 1]]),
        geometry(3, [24, 70, 1], &[[32, 3, 3, 1, 2], [18, 3, 0, 1, 1]]),
        geometry(1, [48, 50, 2], &[[19, 3, 3, 1, 3], [41, 3, 2, 1, 1]]),
        geometry(5, [40, 24, 1], &[[11, 3, 0, 1, 2], [7, 3, 1, 1, 1]]),
        // Several phases of columns, alone and with phases of rows, of equal and of different widths.
        geometry(2, [25, 30, 1], &[[9, 3, 1, 1, 1], [23, 3, 1, 1, 2]]),
        geometry(3, [24, 70, 1], &[[18, 3, 0, 1, 1], [32, 3, 3, 1, 2]]),
        geometry(1, [48, 50, 2], &[[19, 3, 3, 1, 3], [41, 3, 5, 1, 4]]),
        geometry(5, [40, 24, 1], &[[11, 3, 2, 1, 2], [13, 3, 2, 1, 2]]),
        geometry(1, [30, 33, 1], &[[34, 3, 8, 1, 8], [33, 3, 8, 1, 8]]),
        geometry(2, [26, 24, 1], &[[16, 3, 4, 1, 4], [49, 3, 9, 1, 4]]),
        // Few tiles of the output, and many of the input.
        geometry(12, [24, 25, 1], &[[6, 3, 0, 1, 1]; 2]),
        geometry(4, [33, 66, 1], &[[8, 3, 1, 1, 1], [7, 3, 1, 1, 1]]),
        geometry(2, [1, 1, 1], &[[1, 1, 0, 1, 1]]),
        geometry(3, [2, 5, 1], &[[37, 3, 1, 1, 1]]),
        geometry(2, [1, 16, 1], &[[28, 5, 0, 1, 1]; 2]),
        geometry(2, [3, 7, 1], &[[33, 3, 1, 1, 1], [35, 3, 1, 1, 1]]),
        geometry(1, [17, 33, 1], &[[14, 3, 1, 1, 1]; 2]),
        geometry(9, [20, 40, 1], &[[5, 3, 1, 1, 1]; 2]),
        geometry(2, [16, 18, 2], &[[13, 3, 1, 2, 1], [16, 3, 0, 2, 1]]),
        geometry(2, [6, 4, 2], &[[19, 4, 3, 3, 2], [40, 3, 2, 2, 2]]),
        geometry(2, [4, 6, 1], &[[12, 1, 0, 1, 1]; 2]),
        geometry(2, [4, 6, 1], &[[12, 1, 0, 2, 1]; 2]),
        geometry(2, [4, 6, 1], &[[12, 1, 1, 5, 1]; 2]),
        geometry(19, [40, 36, 2], &[[7, 1, 0, 1, 1], [9, 1, 0, 1, 1]]),
        geometry(17, [12, 40, 1], &[[7, 1, 0, 2, 1], [9, 1, 0, 3, 1]]),
        geometry(3, [3, 5, 1], &[[5, 1, 0, 2, 1], [6, 1, 0, 1, 1], [7, 1, 0, 3, 1]]),
        geometry(8, [130, 70, 1], &[[4, 3, 1, 1, 1], [5, 2, 1, 1, 1]]),
        geometry(1, [3, 2, 1], &[[8, 7, 6, 2, 1], [5, 5, 4, 1, 1]]),
        geometry(1, [2, 3, 1], &[[9, 2, 0, 4, 3], [17, 3, 1, 3, 3]]),
        geometry(2, [3, 5, 1], &[[5, 3, 1, 1, 1], [6, 2, 0, 2, 1], [7, 3, 1, 1, 2]]),
        geometry(1, [300, 9, 1], &[[9, 5, 2, 1, 1]; 2]),
        geometry(0, [2, 3, 1], &[[9, 3, 1, 1, 1]; 2]),
        geometry(1, [8, 8, 8], &[[21, 3, 1, 1, 1]; 2]),
        geometry(2, [5, 10, 5], &[[21, 3, 1, 2, 1], [18, 5, 2, 1, 1]]),
        geometry(2, [6, 6, 6], &[[9, 3, 3, 2, 2], [40, 3, 2, 1, 3]]),
        geometry(2, [5, 5, 5], &[[19, 5, 1, 3, 3], [15, 1, 1, 4, 1]]),
        geometry(2, [3, 3, 3], &[[50, 4, 1, 3, 1]]),
        // One long row, and dilated rows.
        geometry(2, [3, 6, 3], &[[400, 31, 15, 1, 1]]),
        geometry(3, [5, 5, 5], &[[150, 3, 9, 1, 9]]),
        geometry(1, [4, 4, 4], &[[1, 3, 1, 1, 1], [300, 9, 2, 1, 3]]),
        geometry(2, [6, 12, 6], &[[21, 3, 2, 1, 2], [35, 3, 4, 1, 4]]),
        geometry(2, [7, 7, 7], &[[13, 4, 6, 1, 5], [70, 5, 3, 1, 2]]),
        geometry(7, [24, 40, 1], &[[1, 1, 0, 1, 1]; 2]),
        geometry(3, [30, 50, 1], &[[1, 1, 1, 3, 1]; 2]),
        geometry(1, [70, 66, 1], &[[4, 3, 1, 1, 1], [5, 3, 1, 1, 1]]),
        geometry(3, [40, 50, 1], &[[7, 3, 2, 2, 2], [6, 3, 1, 3, 1]]),
        geometry(2, [80, 60, 1], &[[3, 1, 0, 2, 1], [3, 1, 0, 1, 1]]),
        geometry(2, [60, 80, 1], &[[5, 1, 1, 3, 1], [4, 1, 2, 3, 1]]),
        geometry(5, [40, 30, 1], &[[2, 2, 1, 1, 1], [2, 2, 0, 1, 1], [3, 2, 0, 1, 1]]),
        // Kernels as large as their stride.
        geometry(3, [6, 10, 1], &[[8, 2, 0, 2, 1], [42, 2, 0, 2, 1]]),
        geometry(2, [4, 6, 2], &[[9, 3, 0, 3, 1], [8, 4, 0, 4, 1]]),
        geometry(2, [3, 2, 1], &[[35, 5, 0, 5, 1]]),
        geometry(1, [2, 3, 1], &[[4, 2, 0, 2, 1], [3, 1, 0, 1, 1], [6, 2, 0, 2, 1]]),
        // Strides with many sources, many targets, and rows of several blocks.
        geometry(1, [4, 130, 1], &[[9, 3, 1, 2, 1], [10, 3, 1, 2, 1]]),
        geometry(1, [60, 3, 1], &[[41, 3, 1, 2, 1], [40, 4, 1, 2, 1]]),
        geometry(1, [2, 3, 1], &[[3, 2, 1, 2, 1], [1101, 3, 1, 2, 1]]),
        geometry(3, [1, 16, 1], &[[14, 4, 1, 2, 1]; 2]),
        geometry(2, [3, 2, 1], &[[11, 3, 1, 3, 1], [7, 2, 0, 1, 1]]),
        // Kernels of one element whose positions fill tiles badly.
        geometry(1, [70, 96, 1], &[[7, 1, 0, 1, 1]; 2]),
        geometry(3, [96, 70, 1], &[[13, 1, 0, 2, 1], [7, 1, 0, 1, 1]]),
        // Rows that leave out taps.
        geometry(2, [7, 9, 1], &[[11, 5, 0, 1, 1], [36, 5, 0, 1, 1]]),
        geometry(1, [3, 14, 1], &[[12, 7, 3, 1, 1], [64, 3, 1, 1, 1]]),
        // Few positions for many elements.
        geometry(3, [5, 20, 1], &[[12, 5, 0, 1, 1], [11, 7, 0, 1, 1]]),
        geometry(2, [6, 40, 2], &[[12, 7, 0, 2, 1], [17, 5, 0, 2, 2]]),
        geometry(5, [40, 13, 1], &[[9, 5, 1, 1, 1], [8, 4, 0, 1, 2]]),
        geometry(2, [3, 30, 1], &[[6, 3, 0, 1, 1], [7, 4, 1, 2, 1], [9, 5, 0, 1, 1]]),
        geometry(2, [4, 40, 1], &[[30, 25, 3, 1, 1]]),
        geometry(1, [2, 12, 1], &[[9, 5, 0, 3, 1], [31, 13, 2, 4, 2]]),
        // Long rows whose elements are read through one tap each.
        geometry(1, [3, 33, 1], &[[20, 3, 1, 4, 1], [128, 3, 1, 4, 1]]),
        geometry(2, [20, 25, 1], &[[9, 3, 1, 4, 1], [150, 3, 1, 4, 1]]),
        geometry(2, [9, 20, 1], &[[12, 2, 1, 2, 1], [45, 2, 1, 2, 1]]),
        geometry(3, [6, 7, 1], &[[90, 2, 0, 2, 1]]),
        // Many taps read padding. Some read nothing else, and some positions have no tap that reads the input.
        geometry(2, [40, 26, 1], &[[13, 3, 6, 1, 6], [17, 3, 7, 1, 7]]),
        geometry(1, [26, 48, 2], &[[9, 3, 8, 1, 8], [21, 3, 12, 1, 12]]),
        geometry(2, [12, 30, 1], &[[7, 3, 9, 1, 9], [20, 3, 5, 1, 5]]),
        geometry(1, [20, 40, 1], &[[9, 4, 6, 1, 3], [33, 5, 20, 1, 9]]),
        geometry(3, [14, 25, 1], &[[50, 3, 23, 1, 23]]),
        geometry(1, [9, 26, 1], &[[5, 3, 2, 1, 2], [6, 3, 4, 1, 4], [19, 3, 6, 1, 6]]),
        geometry(1, [16, 30, 1], &[[6, 2, 4, 1, 7], [18, 3, 9, 1, 8]]),
        // Rows that are read far apart.
        geometry(2, [12, 9, 1], &[[60, 3, 20, 1, 20], [40, 3, 1, 1, 1]]),
        geometry(1, [26, 10, 2], &[[61, 4, 17, 1, 17], [37, 1, 0, 1, 1]]),
        geometry(1, [13, 7, 1], &[[40, 3, 7, 1, 9], [3, 2, 0, 1, 1], [14, 2, 1, 2, 1]]),
        // One channel along the last axis.
        geometry(3, [1, 7, 1], &[[90, 5, 0, 3, 1]]),
        geometry(2, [1, 20, 1], &[[1, 1, 0, 1, 1], [64, 10, 7, 2, 3]]),
        geometry(1, [1, 6, 1], &[[40, 25, 30, 1, 1]]),
        geometry(17, [1, 5, 1], &[[1, 1, 0, 1, 1], [1, 1, 0, 1, 1], [33, 4, 1, 9, 2]]),
        // Short rows of many channels.
        geometry(3, [20, 20, 20], &[[9, 3, 1, 2, 1], [8, 5, 2, 1, 1]]),
        geometry(2, [37, 37, 37], &[[4, 3, 1, 1, 1]; 2]),
        geometry(2, [18, 18, 18], &[[16, 5, 2, 2, 1], [15, 5, 2, 2, 1]]),
        geometry(2, [33, 33, 33], &[[7, 2, 0, 1, 2], [5, 3, 3, 3, 2]]),
        geometry(1, [17, 17, 17], &[[5, 3, 4, 3, 2]]),
        geometry(2, [12, 12, 12], &[[2, 3, 1, 1, 1]; 2]),
    ]
}

/// Convolutions that are products with a row for each position: padded and in place, with long sums, many maps, and
/// several groups.
fn position_row_geometries() -> Vec<Geometry> {
    vec![
        geometry(5, [16, 32, 1], &[[14, 4, 1, 2, 1]; 2]),
        geometry(7, [21, 33, 1], &[[12, 7, 0, 1, 1], [13, 7, 0, 1, 1]]),
        geometry(3, [8, 64, 2], &[[11, 4, 1, 2, 1], [15, 4, 1, 2, 1]]),
        geometry(1, [65, 64, 1], &[[13, 4, 1, 2, 1], [16, 4, 1, 2, 1]]),
    ]
}

/// Random depthwise geometries: planes of one element, kernels larger than the input without padding, padding larger
/// than kernels, steps beyond them, and several maps for each channel.
fn depthwise_geometries() -> Vec<Geometry> {
    let mut numbers = noise::<f64>(10_000, 6).into_iter().map(|v| (v.abs() * f64::from(1 << 20)) as usize);
    let mut below = |n: usize| numbers.next().map_or(0, |v| v % n);
    let mut one = || {
        let channels = 2 + below(3);
        let maps = channels * (1 + below(5) / 3 + below(5) / 4);
        let n_axes = [1, 2, 2, 2, 2, 2, 2, 3][below(8)];
        let axes: Vec<[usize; 5]> = (0..n_axes)
            .map(|i| {
                let longest = if n_axes == 3 { 6 } else { [18, 40][i % 2] };
                let (kernel, dilation) =
                    (1 + [below(3), below(8)][below(2)], 1 + below(6) / 4 + below(6) / 5);
                let (pad, stride) = (below(kernel + 3), [1, 1, 2, 2, 3, 4, 9][below(7)]);
                let least = (dilation * (kernel - 1) + 1).saturating_sub(2 * pad).max(1);
                let input = if below(6) == 0 { least } else { least.max(1 + below(longest)) };
                [input, kernel, pad, stride, dilation]
            })
            .collect();
        geometry(1 + below(3), [channels, maps, channels], &axes)
    };
    (0..150).map(|_| one()).collect()
}

/// The geometries of all algorithms.
fn all_geometries() -> Vec<Geometry> {
    [geometries(), position_row_geometries(), depthwise_geometries()].concat()
}

/// True if Winograd's algorithm computes any of the sums, so that results are rounded.
fn rounds<T: Float>(g: &Geometry) -> bool {
    takes_winograd::<T>(g, WINOGRAD_CHANNELS.min(WINOGRAD_WEIGHT_CHANNELS))
}

/// Small whole numbers, whose sums are exact in any order.
fn values<T: Float>(n: usize, seed: usize) -> Vec<T> {
    (0..n).map(|i| T::of(((i * 7 + i / 11 + seed * 5) % 9) as f64 - 4.0)).collect()
}

/// Input, weight and output of a convolution, or gradients of them.
pub(super) struct Arrays<T> {
    /// The input.
    pub(super) x: Vec<T>,
    /// The weight.
    pub(super) w: Vec<T>,
    /// The output.
    pub(super) y: Vec<T>,
}

impl<T: Float> Arrays<T> {
    /// Arrays of a geometry, filled by number of elements and seed.
    pub(super) fn new(g: &Geometry, fill: impl Fn(usize, usize) -> Vec<T>) -> Self {
        Self {
            x: fill(g.images * g.channels * g.area(), 1),
            w: fill(g.maps * (g.channels / g.group) * g.taps(), 2),
            y: fill(g.images * g.maps * g.positions(), 3),
        }
    }

    /// The output, the gradient of the input and the gradient of the weight
    pub(super) fn sums(&self, g: &Geometry, accumulate: bool) -> [Vec<T>; 3] {
        let [mut y, mut gx, mut gw] = [&self.y, &self.x, &self.w].map(Clone::clone);
        forward(g, &self.x, &self.w, &mut y, Epilogue::plain(accumulate)).expect("memory");
        input_gradient(g, &self.y, &self.w, &mut gx, Epilogue::plain(accumulate)).expect("memory");
        weight_gradient(g, &self.x, &self.y, &mut gw, accumulate).expect("memory");
        [y, gx, gw]
    }

    /// The same arrays with absolute values.
    fn magnitudes(&self) -> Self {
        let [x, w, y] = [&self.x, &self.w, &self.y].map(|v| v.iter().map(|v| v.abs()).collect());
        Self { x, w, y }
    }

    /// As [`Arrays::sums`], loop by loop in double precision. Plain loops over slices: tests are not optimized.
    pub(super) fn naive(&self, g: &Geometry, accumulate: bool) -> [Vec<f64>; 3] {
        let [x, w, gy] = [&self.x, &self.w, &self.y].map(|v| v.iter().map(|v| v.real()).collect::<Vec<_>>());
        let (x, w, gy) = (&x[..], &w[..], &gy[..]);
        let [mut y, mut gx, mut gw] =
            [gy, x, w].map(|v| if accumulate { v.to_vec() } else { vec![0.0; v.len()] });
        let (channels, maps) = (g.channels / g.group, g.maps / g.group);
        let (area, taps, positions) = (g.area(), g.taps(), g.positions());
        let x_step = if g.channel_last { 1 } else { area };
        let w_step = if g.channel_last { 1 } else { taps };
        for (place, t, o) in meetings(g) {
            for (image, map) in (0..g.images).flat_map(|image| (0..g.maps).map(move |map| (image, map))) {
                let iy = at(g, image, g.maps, map, positions, o);
                let (mut ix, mut iw) = (
                    at(g, image, g.channels, map / maps * channels, area, place),
                    at(g, map, channels, 0, taps, t),
                );
                let (of_y, mut sum, mut c) = (gy[iy], 0.0, 0);
                let (gx, gw) = (&mut gx[..], &mut gw[..]);
                while c < channels {
                    sum += x[ix] * w[iw];
                    gx[ix] += of_y * w[iw];
                    gw[iw] += of_y * x[ix];
                    (ix, iw, c) = (ix + x_step, iw + w_step, c + 1);
                }
                y[iy] += sum;
            }
        }
        [y, gx, gw]
    }
}

/// The index of element `i` of a channel's area. `image` is the image, or the output map of a weight.
fn at(g: &Geometry, image: usize, channels: usize, channel: usize, area: usize, i: usize) -> usize {
    if g.channel_last {
        (image * area + i) * channels + channel
    } else {
        (image * channels + channel) * area + i
    }
}

/// The indices of input elements, taps and positions that are multiplied: `(element, tap, position)`.
fn meetings(g: &Geometry) -> Vec<(usize, usize, usize)> {
    let (taps, positions) = (g.taps(), g.positions());
    let mut found = Vec::new();
    for (o, t) in (0..positions).flat_map(|o| (0..taps).map(move |t| (o, t))) {
        let (mut rest_o, mut rest_t, mut place, mut step, mut inside) = (o, t, 0, 1, true);
        for i in (0..g.input.len()).rev() {
            let p = (rest_o % g.output[i] * g.stride[i] + rest_t % g.kernel[i] * g.dilation[i])
                .wrapping_sub(g.pad[i]);
            (rest_o, rest_t) = (rest_o / g.output[i], rest_t / g.kernel[i]);
            inside &= p < g.input[i];
            place = p.wrapping_mul(step).wrapping_add(place);
            step *= g.input[i];
        }
        if inside {
            found.push((place, t, o));
        }
    }
    found
}

/// Compares output and gradients with plain loops.
fn check<T: Float>(g: &Geometry, accumulate: bool) {
    let arrays = Arrays::<T>::new(g, values);
    let names = ["output", "gradient of the input", "gradient of the weight"];
    let sums = arrays.sums(g, accumulate);
    // Winograd's way rounds, in proportion to what is summed.
    let slacks = if rounds::<T>(g) {
        let largest = |sizes: Vec<f64>| sizes.into_iter().fold(0.0, f64::max);
        arrays.magnitudes().naive(g, accumulate).map(|sizes| 8.0 * T::EPSILON.real() * largest(sizes))
    } else {
        [0.0; 3]
    };
    let expected = arrays.naive(g, accumulate).into_iter().zip(slacks);
    for ((name, got), (expected, slack)) in names.into_iter().zip(&sums).zip(expected) {
        for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
            let error = (got.real() - expected).abs();
            assert!(
                error <= slack,
                "{name}, element {i}: {got:?} for {expected}, accumulate {accumulate}, {g:?}"
            );
        }
    }
}

/// Compares all geometries in both layouts, written and added to.
fn sums_are_exact_for_whole_numbers<T: Float>() {
    for mut g in all_geometries() {
        for (channel_last, accumulate) in [(false, false), (false, true), (true, false), (true, true)] {
            g.channel_last = channel_last;
            check::<T>(&g, accumulate);
        }
    }
}

#[test]
fn windows_of_large_dilations_are_split() {
    let of = |rows: [usize; 5]| geometry(1, [12, 12, 1], &[rows, [40, 3, 1, 1, 1]]);
    for (rows, n) in
        [([60, 3, 20, 1, 20], 20), ([60, 3, 2, 1, 2], 1), ([60, 3, 1, 1, 1], 1), ([60, 3, 20, 2, 20], 1)]
    {
        assert_eq!(of(rows).descriptors(Pass::Output).each.len(), n, "{rows:?}");
    }
}

#[test]
fn sums_in_f32_are_exact_for_whole_numbers() {
    sums_are_exact_for_whole_numbers::<f32>();
}

#[test]
fn sums_in_f64_are_exact_for_whole_numbers() {
    sums_are_exact_for_whole_numbers::<f64>();
}

#[test]
fn a_bias_is_added_to_each_channel() {
    /// An epilogue that only adds a bias.
    fn with(bias: &[f32]) -> Epilogue<'_, f32> {
        Epilogue { row_bias: Some(bias), ..Epilogue::plain(true) }
    }
    for mut g in all_geometries() {
        for channel_last in [false, true] {
            g.channel_last = channel_last;
            let Arrays { x, w, y } = Arrays::<f32>::new(&g, values);
            let (of_maps, of_channels) = (values::<f32>(g.maps, 4), values::<f32>(g.channels, 5));
            let [plain_y, plain_x, _] = Arrays { x: x.clone(), w: w.clone(), y: y.clone() }.sums(&g, true);
            let (mut with_y, mut with_x) = (y.clone(), x.clone());
            forward(&g, &x, &w, &mut with_y, with(&of_maps)).expect("memory");
            input_gradient(&g, &y, &w, &mut with_x, with(&of_channels)).expect("memory");
            let channel =
                |i: usize, all: usize, area: usize| if channel_last { i % all } else { i / area % all };
            // In Winograd's way the bias comes before what the target holds.
            let slack = if rounds::<f32>(&g) { 1e-3 } else { 0.0 };
            for (i, (a, b)) in with_y.iter().zip(&plain_y).enumerate() {
                let b = b + of_maps[channel(i, g.maps, g.positions())];
                assert!((a - b).abs() <= slack, "output {i}: {a} for {b}, {g:?}");
            }
            for (i, (a, b)) in with_x.iter().zip(&plain_x).enumerate() {
                let b = b + of_channels[channel(i, g.channels, g.area())];
                assert!((a - b).abs() <= slack, "input {i}: {a} for {b}, {g:?}");
            }
        }
    }
}

#[test]
fn a_tail_is_applied_after_bias_and_accumulation() {
    for mut g in all_geometries() {
        for (channel_last, accumulate) in [(false, false), (false, true), (true, false), (true, true)] {
            g.channel_last = channel_last;
            let Arrays { x, w, y } = Arrays::<f32>::new(&g, noise);
            let bias = noise::<f32>(g.maps, 4);
            let plain = Epilogue { row_bias: Some(&bias), ..Epilogue::plain(accumulate) };
            let [mut expected, mut got] = [y.clone(), y];
            forward(&g, &x, &w, &mut expected, plain).expect("memory");
            let tail = Tail { activation: Activation::Relu, rows: Some(&Twice::<f32>(PhantomData)) };
            forward(&g, &x, &w, &mut got, Epilogue { tail, ..plain }).expect("memory");
            let expected: Vec<f32> = expected.iter().map(|v| 2.0 * v.max(0.0)).collect();
            assert!(got == expected, "{g:?}");
            let plain = Epilogue::plain(accumulate);
            let [mut expected, mut back] = [x.clone(), x];
            input_gradient(&g, &got, &w, &mut expected, plain).expect("memory");
            input_gradient(&g, &got, &w, &mut back, Epilogue { tail, ..plain }).expect("memory");
            let expected: Vec<f32> = expected.iter().map(|v| 2.0 * v.max(0.0)).collect();
            assert!(back == expected, "{g:?}");
        }
    }
}

/// Numbers between -1 and 1 that are no whole multiples of anything.
pub(super) fn noise<T: Float>(n: usize, seed: usize) -> Vec<T> {
    let mut state = (seed as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1 << 23) - 1.0
    };
    (0..n).map(|_| T::of(next())).collect()
}

/// Convolutions for words of two channels, or two images: with steps, distances between taps, groups, one to three
/// axes, several chunks of channels, and without padding.
fn geometries_of_words() -> Vec<Geometry> {
    vec![
        geometry(5, [16, 20, 1], &[[9, 3, 1, 1, 1]; 2]),
        geometry(3, [3, 33, 1], &[[12, 3, 1, 1, 1], [35, 3, 1, 1, 1]]),
        geometry(2, [32, 40, 1], &[[11, 3, 0, 1, 1], [9, 3, 0, 1, 1]]),
        geometry(2, [64, 18, 2], &[[9, 3, 1, 2, 1], [12, 3, 1, 2, 1]]),
        geometry(2, [35, 6, 1], &[[13, 3, 2, 2, 2], [10, 2, 1, 1, 3]]),
        geometry(2, [260, 5, 1], &[[4, 3, 1, 1, 1], [5, 3, 1, 1, 1]]),
        geometry(4, [6, 70, 1], &[[40, 5, 2, 1, 1]]),
        geometry(2, [6, 5, 1], &[[5, 3, 1, 1, 1], [6, 2, 0, 2, 1], [7, 3, 1, 1, 2]]),
        geometry(2, [8, 9, 1], &[[20, 3, 1, 3, 1], [20, 3, 1, 3, 1]]),
    ]
}

/// The sums of values in bfloat16 by words, in tiles of AMX if they fit and `by_tiles` is set: the output, the gradient
/// of the input and the gradient of the weight. None where words do not compute one. Output and gradient of the input
/// are in bfloat16 if `is_narrow`.
fn sums_of_words(
    g: &Geometry,
    arrays: &Arrays<f32>,
    (accumulate, is_narrow, by_tiles): (bool, bool, bool),
) -> [Option<Vec<f32>>; 3] {
    let narrowed = |v: &[f32]| v.iter().map(|v| bf16::from_f32(*v)).collect::<Vec<_>>();
    let [x, gy] = [&arrays.x, &arrays.y].map(|v| narrowed(v));
    let epilogue = Epilogue::plain(accumulate);
    let written = |before: &[f32], compute: &dyn Fn(&mut ValuesMut<'_, f32>) -> bool| {
        let (mut wide, mut narrow) = (before.to_vec(), narrowed(before));
        let mut to = if is_narrow { ValuesMut::BFloat16(&mut narrow) } else { ValuesMut::Exact(&mut wide) };
        let is_computed = compute(&mut to);
        let values = if is_narrow { narrow.iter().map(|v| v.to_f32()).collect() } else { wide };
        is_computed.then_some(values)
    };
    let (x, gy, w) = (Values::BFloat16(&x), Values::BFloat16(&gy), &arrays.w);
    let mut gw = w.clone();
    let has_gw = pairs::weight_gradient(g, x, gy, &mut gw, accumulate, by_tiles).expect("memory");
    [
        written(&arrays.y, &|y| pairs::forward(g, x, w, y, epilogue, by_tiles).expect("memory")),
        written(&arrays.x, &|gx| pairs::input_gradient(g, gy, w, gx, epilogue, by_tiles).expect("memory")),
        has_gw.then_some(gw),
    ]
}

#[test]
fn sums_of_words_are_exact_for_whole_numbers_in_registers_and_in_tiles() {
    let mut computed = 0;
    for g in geometries_of_words() {
        for flags in 0..8 {
            let [accumulate, is_narrow, by_tiles] = [1, 2, 4].map(|bit| flags & bit != 0);
            if by_tiles && !tiles::trap() {
                continue;
            }
            let arrays = Arrays::<f32>::new(&g, values);
            let expected = arrays.naive(&g, accumulate);
            let sums = sums_of_words(&g, &arrays, (accumulate, is_narrow, by_tiles));
            for (i, (got, expected)) in sums.into_iter().zip(expected).enumerate() {
                let Some(got) = got else { continue };
                let stored = |v: f64| if is_narrow && i < 2 { bf16::from_f64(v).to_f64() } else { v };
                let expected: Vec<f64> = expected.into_iter().map(stored).collect();
                assert!(got.iter().map(|v| f64::from(*v)).eq(expected), "sum {i}, flags {flags:#b}, {g:?}");
                computed += 1;
            }
        }
    }
    assert!(computed > 150 || !tiles::trap(), "{computed} sums");
}

#[test]
fn an_infinite_pixel_stays_where_words_read_it() {
    for g in geometries_of_words() {
        let mut arrays = Arrays::<f32>::new(&g, values);
        let plain = arrays.naive(&g, false);
        let last = arrays.x.len() - 1;
        arrays.x[last] = f32::INFINITY;
        let reached = arrays.naive(&g, false);
        for by_tiles in [false, true] {
            if by_tiles && !tiles::trap() {
                continue;
            }
            let sums = sums_of_words(&g, &arrays, (false, false, by_tiles));
            for i in [0, 2] {
                let Some(got) = &sums[i] else { continue };
                for (j, got) in got.iter().enumerate() {
                    let is_right = reached[i][j] != plain[i][j] || f64::from(*got) == plain[i][j];
                    assert!(is_right, "sum {i}, element {j} is {got}, by tiles {by_tiles}, {g:?}");
                }
            }
        }
    }
}

#[test]
fn the_number_of_threads_changes_no_bit_of_sums_of_words() {
    let threads = num_threads();
    for g in geometries_of_words() {
        let arrays = Arrays::<f32>::new(&g, noise);
        for by_tiles in [false, true] {
            if by_tiles && !tiles::trap() {
                continue;
            }
            let bits = |n: usize| {
                set_num_threads(n);
                let sums = sums_of_words(&g, &arrays, (false, false, by_tiles));
                sums.map(|v| v.map(|v| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>()))
            };
            assert!(bits(1) == bits(4), "by tiles {by_tiles}, {g:?}");
        }
    }
    set_num_threads(threads);
}

#[test]
fn rare_methods_are_selected_for_some_geometries() {
    let geometries = geometries();
    let count =
        |pass, method| geometries.iter().filter(|g| select::<f32>(g, pass, false, true) == method).count();
    assert!(count(Pass::Output, Method::GemmRows) >= 5);
    assert!(count(Pass::InputGradient, Method::ScatteredTaps) >= 5);
    let of_positions = position_row_geometries();
    for g in &of_positions {
        assert!(g.descriptors(Pass::Output).each[0].position_rows.is_some(), "{g:?}");
    }
    let is_chosen = |g: &&Geometry| select::<f32>(g, Pass::Output, false, true) == Method::ImplicitGemm;
    assert!(of_positions.iter().filter(is_chosen).count() >= 3);
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let threads = num_threads();
    for mut g in all_geometries() {
        for channel_last in [false, true] {
            g.channel_last = channel_last;
            let arrays = Arrays::<f32>::new(&g, noise);
            let bits = |n: usize| {
                set_num_threads(n);
                arrays.sums(&g, false).map(|v| v.iter().map(|v| v.to_bits()).collect::<Vec<_>>())
            };
            assert!(bits(1) == bits(4), "{g:?}");
        }
    }
    set_num_threads(threads);
}

#[test]
fn cached_packed_weights_change_no_bit() {
    /// The bits of the numbers, for exact comparison.
    fn bits(v: &[f32]) -> Vec<u32> {
        v.iter().map(|v| v.to_bits()).collect()
    }
    for g in geometries().iter().filter(|g| caches_weight::<f32>(g)) {
        let Arrays { x, w, y } = Arrays::<f32>::new(g, noise);
        let others = noise::<f32>(w.len(), 9);
        let (mut of_y, mut of_x) = (DerivedCache::default(), DerivedCache::default());
        // A weight comes three times, then another one, then the first again.
        for (w, n) in [(&w, 1), (&w, 1), (&w, 1), (&others, 2), (&others, 2), (&others, 2), (&w, 1)] {
            let of = Fingerprint::from_number(n);
            let [mut plain_y, mut plain_x] = [y.clone(), x.clone()];
            let [mut got_y, mut got_x] = [y.clone(), x.clone()];
            let finish = Epilogue::plain(false);
            forward(g, &x, w, &mut plain_y, finish).expect("memory");
            input_gradient(g, &y, w, &mut plain_x, finish).expect("memory");
            forward(g, &x, Weight::cached(w, of, &mut of_y), &mut got_y, finish).expect("memory");
            input_gradient(g, &y, Weight::cached(w, of, &mut of_x), &mut got_x, finish).expect("memory");
            assert!(bits(&got_y) == bits(&plain_y) && bits(&got_x) == bits(&plain_x), "{g:?}");
        }
    }
}

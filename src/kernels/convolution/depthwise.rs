//! Convolution of each channel with kernels of its own, channels first: sums over the taps of a plane, a register of
//! columns at a time.

use super::direct::Correlation;
use super::plane::{LayPlane, Plane};
use super::tables::{All, Tables};
use super::weight::WeightGradient;
use crate::kernels::gemm::Activation;
use crate::kernels::simd::Vector;
use crate::kernels::threads::{Shared, ranges};
use crate::kernels::{Float, scratch};

/// Elements of planes that a thread takes at a time.
const GRAIN: usize = 1 << 13;
/// Taps whose sums are kept in registers together.
const TAPS: usize = 9;
/// Numbers in the longest register.
pub(super) const LANES: usize = 16;

/// An order to sum up the taps of rows of positions: `to[i, j] = sum over t of weights[t] from[i row + j + taps[t]]`, plus
/// a bias and what is there.
pub(in crate::kernels) struct Slide<'a, T> {
    from: *const T,
    row: usize,
    taps: &'a [isize],
    weights: *const T,
    rows: usize,
    width: usize,
    to: *mut T,
    /// The distance of rows of results and of neighbours in them.
    to_row: usize,
    apart: usize,
    bias: Option<T>,
    accumulate: bool,
    activation: Activation,
}

impl<T: Float> Slide<'_, T> {
    /// Computes the sums.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory, with two registers behind what is read.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&self) {
        let mut row = 0;
        while row < self.rows {
            // SAFETY: the caller's promise.
            unsafe {
                match self.rows - row {
                    4.. => {
                        self.band::<V, 4>(row);
                        row += 4;
                    }
                    2.. => {
                        self.band::<V, 2>(row);
                        row += 2;
                    }
                    _ => {
                        self.band::<V, 1>(row);
                        row += 1;
                    }
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn band<V: Vector<T = T>, const M: usize>(&self, row: usize) {
        for j in (0..self.width).step_by(2 * V::WIDTH) {
            // SAFETY: as above.
            unsafe {
                if self.width - j > V::WIDTH {
                    self.tile::<V, M, 2>(row, j);
                } else {
                    self.tile::<V, M, 1>(row, j);
                }
            }
        }
    }

    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // counts from the compiler, so that sums stay in registers
    unsafe fn tile<V: Vector<T = T>, const M: usize, const N: usize>(&self, row: usize, j: usize) {
        // SAFETY: as above; masks keep within the results.
        unsafe {
            let mut sums = [[V::zero(); N]; M];
            let from = self.from.add(row * self.row + j);
            for (t, tap) in self.taps.iter().enumerate() {
                let (weight, from) = (V::all(*self.weights.add(t)), from.offset(*tap));
                for i in 0..M {
                    for k in 0..N {
                        let x = V::load(from.add(i * self.row + k * V::WIDTH));
                        sums[i][k] = x.mul_add(weight, sums[i][k]);
                    }
                }
            }
            for i in 0..M {
                for k in 0..N {
                    let j = j + k * V::WIDTH;
                    let to = self.to.add((row + i) * self.to_row + j * self.apart);
                    let mut v = sums[i][k];
                    if let Some(bias) = self.bias {
                        v = v.add(V::all(bias));
                    }
                    if self.apart == 1 {
                        let mask = V::first(self.width - j);
                        if self.accumulate {
                            v = v.add(V::load_masked(to, mask));
                        }
                        self.activation.on(v).store_masked(to, mask);
                        continue;
                    }
                    let mut lanes = [T::ZERO; LANES];
                    v.store(lanes.as_mut_ptr());
                    for (l, v) in lanes.iter().enumerate().take(V::WIDTH.min(self.width - j)) {
                        let to = to.add(l * self.apart);
                        *to = self.activation.of(if self.accumulate { *v + *to } else { *v });
                    }
                }
            }
        }
    }
}

/// An order to add to register `t` of `sums` the products of rows of `gy` with what tap `t` sees of `x`.
pub(in crate::kernels) struct Dots<'a, T> {
    x: *const T,
    x_row: usize,
    gy: *const T,
    gy_row: usize,
    rows: usize,
    width: usize,
    taps: &'a [isize],
    sums: *mut T,
}

impl<T: Float> Dots<'_, T> {
    /// Adds the products.
    ///
    /// # Safety
    /// The instructions of `V` are there, and so is the memory, with a register behind what is read of `x`.
    #[inline(always)]
    pub(in crate::kernels) unsafe fn run<V: Vector<T = T>>(&mut self) {
        for (chunk, taps) in self.taps.chunks(TAPS).enumerate() {
            // The last of several chunks sees some taps twice rather than having code of its own.
            let at: [isize; TAPS] = std::array::from_fn(|t| taps[t % taps.len()]);
            // SAFETY: the caller's promise; masks keep within the rows of `gy`, and what is behind them counts for nothing.
            unsafe {
                let mut parts = [V::zero(); TAPS];
                for i in 0..self.rows {
                    let (x, gy) = (self.x.add(i * self.x_row), self.gy.add(i * self.gy_row));
                    for j in (0..self.width).step_by(V::WIDTH) {
                        let mask = V::first(self.width - j);
                        let g = V::load_masked(gy.add(j), mask);
                        for (part, tap) in parts.iter_mut().zip(at) {
                            *part = V::load_masked(x.offset(tap).add(j), mask).mul_add(g, *part);
                        }
                    }
                }
                for (t, part) in parts.into_iter().enumerate().take(taps.len()) {
                    let to = self.sums.add((chunk * TAPS + t) * LANES);
                    part.add(V::load(to)).store(to);
                }
            }
        }
    }
}

impl<T: Float> Correlation<'_, T> {
    /// Computes the sums if each group has a single channel and there is a way of its own for that.
    ///
    /// # Safety
    /// As [`Correlation::run`].
    pub(super) unsafe fn run_depthwise(&self, all: &All) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match &all.plane {
                Some(plane) => self.slide(plane, &all.each),
                None if self.g.is_pixelwise() => self.slide_pixels(),
                None => return false,
            }
        }
        true
    }

    /// Channels first, all windows.
    unsafe fn slide(&self, plane: &Plane, all: &[Tables]) {
        let (g, kernels) = (self.g, T::kernels());
        let (sources, targets) = (self.sources.channels, self.targets.channels);
        let (taps, of_group) = (g.taps(), g.maps / g.group * g.taps());
        let area = plane.room();
        let grain = (GRAIN / (area * sources.max(targets))).max(1);
        ranges(g.images * g.group, grain, |some| {
            scratch::with(area + taps, |memory: &mut [T]| {
                let (strip, weights) = memory.split_at_mut(area);
                for i in some {
                    let (image, group) = (i / g.group, i % g.group);
                    let (rows, last) = (&plane.blocks, sources - 1);
                    for (block, source) in
                        (0..rows.parts()).flat_map(|block| (0..sources).map(move |source| (block, source)))
                    {
                        let from = self.source(image, group, source);
                        // SAFETY: there is room for the plane; each task has its own targets.
                        unsafe {
                            (kernels.lay_plane)(&LayPlane { plane, block, from, to: strip.as_mut_ptr() });
                            // Elements that no tap reaches are what they are, but for a bias.
                            let seeing = |t: &&Tables| !t.taps.is_empty() || self.finish.bias.is_some();
                            for (tables, target) in all
                                .iter()
                                .filter(seeing)
                                .flat_map(|tables| (0..targets).map(move |target| (tables, target)))
                            {
                                let w = &tables.window;
                                let height = w.targets.len();
                                let positions = rows.part(block);
                                let positions = positions.start..positions.end.min(height);
                                if positions.is_empty() {
                                    continue;
                                }
                                let first = group * of_group + (source + target) * taps;
                                for (to, tap) in weights.iter_mut().zip(&w.taps) {
                                    *to = *self.weight.add(first + tap);
                                }
                                let row =
                                    if w.axes.len() > 1 { w.axes[0].apart * w.axes[1].target } else { 0 };
                                let at = w.targets[0] + positions.start * row;
                                let to = self.target(image, group, target).add(at);
                                (kernels.slide)(&Slide {
                                    from: strip.as_ptr(),
                                    row: plane.row(),
                                    taps: &tables.taps,
                                    weights: weights.as_ptr(),
                                    rows: positions.len(),
                                    width: w.width,
                                    to,
                                    to_row: row,
                                    apart: w.apart,
                                    bias: self.bias_of(group, target).filter(|_| source == last),
                                    accumulate: self.finish.accumulate || source > 0,
                                    activation: self.finish.then.activation.only_if(source == last),
                                });
                                if source == last {
                                    self.finish.then.finish(to, row, positions.len(), w.width);
                                }
                            }
                        }
                    }
                }
            });
        });
    }

    fn bias_of(&self, group: usize, target: usize) -> Option<T> {
        self.finish.bias.map(|b| b[group * self.targets.channels + target])
    }
}

impl<T: Float> WeightGradient<'_, T> {
    /// As for the sums; there is one window.
    ///
    /// # Safety
    /// As [`WeightGradient::run`].
    pub(super) unsafe fn run_depthwise(&self, all: &All) -> bool {
        // SAFETY: the caller's promise.
        unsafe {
            match &all.plane {
                Some(plane) => self.slide(plane, &all.each[0].taps),
                None if self.g.is_pixelwise() => self.slide_pixels(&all.each[0].window),
                None => return false,
            }
        }
        true
    }

    /// Channels first; `seen` is where the first position sees each tap.
    unsafe fn slide(&self, plane: &Plane, seen: &[isize]) {
        let (g, kernels, gw) = (self.g, T::kernels(), Shared::new(self.gw));
        let (maps, taps, area) = (g.maps / g.group, g.taps(), plane.room());
        let lanes = T::kernels().panel() / 2;
        let grain = (GRAIN / (area * g.images)).max(1);
        ranges(g.group, grain, |channels| {
            scratch::with(area + maps * taps * LANES, |memory: &mut [T]| {
                let (strip, sums) = memory.split_at_mut(area);
                for channel in channels {
                    sums.fill(T::ZERO);
                    for (image, block) in
                        (0..g.images).flat_map(|n| (0..plane.blocks.parts()).map(move |b| (n, b)))
                    {
                        let from = self.x.wrapping_add((image * g.channels + channel) * g.area());
                        let rows = plane.blocks.part(block);
                        // SAFETY: there is room for the plane and the sums; the arrays are there.
                        unsafe {
                            (kernels.lay_plane)(&LayPlane { plane, block, from, to: strip.as_mut_ptr() });
                            for map in 0..maps {
                                let at = (image * g.maps + channel * maps + map) * g.positions();
                                (kernels.dots)(&mut Dots {
                                    x: strip.as_ptr(),
                                    x_row: plane.row(),
                                    gy: self.gy.add(at + rows.start * plane.width()),
                                    gy_row: plane.width(),
                                    rows: rows.len(),
                                    width: plane.width(),
                                    taps: seen,
                                    sums: sums.as_mut_ptr().add(map * taps * LANES),
                                });
                            }
                        }
                    }
                    for (i, sums) in sums.chunks_exact(LANES).enumerate() {
                        let sum = sums[..lanes].iter().fold(T::ZERO, |s, v| s + *v);
                        // SAFETY: each channel has its own part of the gradient.
                        unsafe {
                            let to = gw.get().add(channel * maps * taps + i);
                            *to = if self.accumulate { *to + sum } else { sum };
                        }
                    }
                }
            });
        });
    }
}

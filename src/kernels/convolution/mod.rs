//! The three sums over `x[c, o * stride + t * dilation - pad] * w[k, c, t] * gy[k, o]` that make up convolution: the
//! one over inputs is its output, and the other two are its gradients. Deconvolution is the same with the names moved.
//!
//! The sums are products of matrices, of blocks of an image that are laid out in the cache.

mod depthwise;
mod descriptor;
mod gemm_rows;
mod implicit_gemm;
mod isa;
mod modulated;
mod pointwise;
mod stride_equals_kernel;
mod window;
mod winograd;

use smallvec::SmallVec;

pub use crate::array::DerivedCache;
use crate::array::{Lasting, OutOfMemory};
use crate::kernels::Float;
use crate::kernels::epilogue::{Epilogue, Tail};
use crate::kernels::threads::{Shared, ranges};
pub(super) use descriptor::begin_thread;
use descriptor::{Tables, WhichSum};
use implicit_gemm::Correlation;
use implicit_gemm::weight_gradient::WeightGradient;
pub use modulated::modulated;
use pointwise::Pointwise;
use std::sync::atomic::{AtomicU8, Ordering};
use stride_equals_kernel::Patches;
use winograd::uneven::have_one_sign;
use winograd::{Winograd, transforms};

/// Elements that a thread sets to zero at a time.
const ZEROS: usize = 1 << 15;

/// How convolutions are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// As is quickest for the shape.
    Auto,
    /// One multiplication for each that the definition has.
    Direct,
    /// Winograd's F(4, 3) wherever it can be: for kernels of 3 x 3 that move by one.
    Winograd,
}

static ALGORITHM: AtomicU8 = AtomicU8::new(Algorithm::Auto as u8);

/// How convolutions are computed from now on, in all threads.
pub fn set_algorithm(algorithm: Algorithm) {
    ALGORITHM.store(algorithm as u8, Ordering::Relaxed);
}

/// How convolutions are computed.
pub fn algorithm() -> Algorithm {
    match ALGORITHM.load(Ordering::Relaxed) {
        1 => Algorithm::Direct,
        2 => Algorithm::Winograd,
        _ => Algorithm::Auto,
    }
}

/// Channels and maps of a group from which on Winograd's way is quicker; for the gradient of the weight.
const WINOGRAD_CHANNELS: usize = 24;
const WINOGRAD_CHANNELS_OF_WEIGHT: usize = 16;
/// Tiles of all images from which on it is worth its transform of the weights.
const WINOGRAD_TILES: usize = 4;

/// Tiles of all images up to which its transform of the weights, four times as long as they are, is kept for the next run.
const KEPT_TILES: usize = 12;

/// Whether Winograd's way is taken, which pays from so many channels on. In double precision, only on request: there it is
/// exactness that is wanted.
fn winograd<T: Float>(g: &Geometry, least: usize) -> bool {
    let pays = || {
        let enough = |channels: usize| channels / g.group >= least;
        let tiles = |n: usize| n.div_ceil(transforms::OUT);
        size_of::<T>() == size_of::<f32>()
            && enough(g.channels)
            && enough(g.maps)
            && g.images * tiles(g.output[0]) * tiles(g.output[1]) >= WINOGRAD_TILES
    };
    g.fits_winograd()
        && match algorithm() {
            Algorithm::Auto => pays(),
            Algorithm::Direct => false,
            Algorithm::Winograd => true,
        }
}

/// Whether it pays to keep what is made of the weight until the next run: of so few tiles it takes up to 60 % of a run, of
/// 16 a third and of 64 a tenth.
pub fn keeps_weight<T: Float>(g: &Geometry) -> bool {
    let tiles = |n: usize| n.div_ceil(transforms::OUT);
    winograd::<T>(g, WINOGRAD_CHANNELS) && g.images * tiles(g.output[0]) * tiles(g.output[1]) <= KEPT_TILES
}

/// Lengths or steps along spatial axes.
pub type Spatial = SmallVec<[usize; 3]>;

/// The sizes of a convolution. Each channel of the input has its own group of weights and outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Geometry {
    pub images: usize,
    /// Channels of the input, of all groups.
    pub channels: usize,
    /// Channels of the output, of all groups.
    pub maps: usize,
    pub group: usize,
    pub input: Spatial,
    pub kernel: Spatial,
    pub output: Spatial,
    pub pad: Spatial,
    pub stride: Spatial,
    pub dilation: Spatial,
    /// Whether channels are the last axis of the input, the weight and the output rather than the one before space.
    pub channel_last: bool,
}

impl Geometry {
    pub(super) fn area(&self) -> usize {
        self.input.iter().product()
    }
    pub(super) fn taps(&self) -> usize {
        self.kernel.iter().product()
    }
    pub(super) fn positions(&self) -> usize {
        self.output.iter().product()
    }
    /// Every access stands on this.
    fn check(&self, x: usize, w: usize, y: usize) {
        let (channels, maps) = (self.channels / self.group, self.maps / self.group);
        let fits = x == self.images * self.channels * self.area()
            && w == self.group * maps * channels * self.taps()
            && y == self.images * self.maps * self.positions();
        assert!(fits, "arrays of {x}, {w} and {y} elements for {self:?}");
    }

    fn is_depthwise(&self) -> bool {
        self.channels == self.group && self.group > 1
    }

    /// Whether each group has one channel and one map, and channels are last.
    fn is_pixelwise(&self) -> bool {
        self.is_depthwise() && self.channel_last && self.maps == self.group
    }
}

/// What a function keeps of its weight for the sum that gives its output, and for the gradient of its input.
#[derive(Default)]
pub struct KeptWeight {
    /// For the output.
    pub forward: DerivedCache,
    /// For the gradient.
    pub backward: DerivedCache,
}

/// The weight of a convolution.
pub struct Weight<'a, T> {
    values: &'a [T],
    known: Known<'a>,
    lasting: Option<Lasting<'a>>,
}

/// The name of the values of a weight, and what its function keeps of them.
type Known<'a> = Option<(u64, &'a mut DerivedCache)>;

impl<'a, T> Weight<'a, T> {
    /// A weight by name, of which the function may keep what it makes of it.
    pub fn known(values: &'a [T], name: u64, kept: &'a mut DerivedCache) -> Self {
        Self { values, known: Some((name, kept)), lasting: None }
    }

    /// The same weight, which is all of an array: it may be kept packed with the array.
    pub fn of(self, lasting: Option<Lasting<'a>>) -> Self {
        Self { lasting, ..self }
    }
}

impl<'a, T> From<&'a [T]> for Weight<'a, T> {
    fn from(values: &'a [T]) -> Self {
        Self { values, known: None, lasting: None }
    }
}

impl<'a, T> From<&'a Vec<T>> for Weight<'a, T> {
    fn from(values: &'a Vec<T>) -> Self {
        Self::from(&values[..])
    }
}

/// Computes the output.
///
/// # Errors
/// There is no memory for what is packed.
pub fn forward<'w, T: Float>(
    g: &Geometry,
    x: &[T],
    w: impl Into<Weight<'w, T>>,
    y: &mut [T],
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    let w = w.into();
    g.check(x.len(), w.values.len(), y.len());
    let by_winograd = winograd::<T>(g, WINOGRAD_CHANNELS);
    if gemm_rows::takes_rows(g, by_winograd) {
        gemm_rows::forward(g, x, w, y, epilogue);
        return Ok(());
    }
    let Weight { values: w, known, .. } = w;
    if let Some(products) = Pointwise::new(g) {
        products.forward(x, w, y, epilogue);
        return Ok(());
    }
    if by_winograd {
        let sum = Winograd::forward(g, x.as_ptr(), w.as_ptr(), y.as_mut_ptr(), epilogue);
        // SAFETY: the slices are as large as the geometry says, which was checked; `y` is borrowed alone.
        if unsafe { sum.run(known)? } {
            return Ok(());
        }
    }
    let all = g.tables(WhichSum::Output);
    let sum = Correlation {
        g,
        tables: &all.each[0],
        source: x.as_ptr(),
        sources: g.inputs(),
        target: y.as_mut_ptr(),
        targets: g.outputs(),
        weight: w.as_ptr(),
        forward: true,
        epilogue,
    };
    // SAFETY: as above.
    unsafe { sum.run(&all) }
}

/// Computes the gradient of the input, or the output of a deconvolution, which is the same sum.
///
/// # Errors
/// As [`forward`].
pub fn input_gradient<'w, T: Float>(
    g: &Geometry,
    gy: &[T],
    w: impl Into<Weight<'w, T>>,
    gx: &mut [T],
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    let w = w.into();
    g.check(gx.len(), w.values.len(), gy.len());
    if g.stride.iter().any(|s| *s > 1) {
        // What is written with gaps has no rows that could be finished before all is there.
        spread_gradient(g, gy, w, gx, Epilogue { tail: Tail::NOTHING, ..epilogue })?;
        epilogue.tail.finish_all(gx);
        return Ok(());
    }
    spread_gradient(g, gy, w, gx, epilogue)
}

fn spread_gradient<T: Float>(
    g: &Geometry,
    gy: &[T],
    Weight { values: w, known, .. }: Weight<'_, T>,
    gx: &mut [T],
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    if let Some(products) = Pointwise::new(g).filter(|p| epilogue.row_bias.is_none() || !p.is_strided()) {
        products.input_gradient(gy, w, gx, epilogue);
        return Ok(());
    }
    if let Some(patches) = Patches::new(g) {
        patches.input_gradient(gy, w, gx, epilogue);
        return Ok(());
    }
    if winograd::<T>(g, WINOGRAD_CHANNELS) {
        let sum = Winograd::backward(g, gy.as_ptr(), w.as_ptr(), gx.as_mut_ptr(), epilogue);
        // SAFETY: as above.
        if unsafe { sum.run(known)? } {
            return Ok(());
        }
    }
    let (all, to) = (g.tables(WhichSum::InputGradient), Shared::new(gx.as_mut_ptr()));
    // Elements that no tap reaches.
    let is_left_out = |tables: &&Tables| epilogue.row_bias.is_none() && tables.window.taps.is_empty();
    if !epilogue.accumulate && all.each.iter().any(|tables| is_left_out(&tables)) {
        ranges(gx.len(), ZEROS, |some| {
            // SAFETY: the ranges are parts of the gradient, each its own.
            unsafe { to.get().add(some.start).write_bytes(0, some.len()) };
        });
    }
    for tables in all.each.iter().filter(|tables| !is_left_out(tables)) {
        let sum = Correlation {
            g,
            tables,
            source: gy.as_ptr(),
            sources: g.outputs(),
            target: to.get(),
            targets: g.inputs(),
            weight: w.as_ptr(),
            forward: false,
            epilogue,
        };
        // SAFETY: as above.
        unsafe { sum.run(&all)? };
        if all.is_planar() {
            break; // which has all windows
        }
    }
    Ok(())
}

/// Writes the gradient of the weight, or adds it to `gw` where `accumulate` is set.
///
/// # Errors
/// As [`forward`].
pub fn weight_gradient<T: Float>(
    g: &Geometry,
    x: &[T],
    gy: &[T],
    gw: &mut [T],
    accumulate: bool,
) -> Result<(), OutOfMemory> {
    if x.is_empty() || gy.is_empty() {
        if !accumulate {
            gw.fill(T::ZERO);
        }
        return Ok(());
    }
    g.check(x.len(), gw.len(), gy.len());
    if let Some(products) = Pointwise::new(g) {
        return products.weight_gradient(x, gy, gw, accumulate);
    }
    // Numbers of one sign must give gradients of one sign.
    let has_sign = || have_one_sign(gy) && have_one_sign(x);
    let by_winograd = winograd::<T>(g, WINOGRAD_CHANNELS_OF_WEIGHT);
    if let (true, Some(parts), false) = (by_winograd, g.winograd_parts(), by_winograd && has_sign()) {
        let (x, gy, gw) = (x.as_ptr(), gy.as_ptr(), gw.as_mut_ptr());
        // SAFETY: as above.
        return unsafe { winograd::weight_gradient::weight_gradient(g, parts, x, gy, gw, accumulate) };
    }
    let sum = WeightGradient { g, x: x.as_ptr(), gy: gy.as_ptr(), gw: gw.as_mut_ptr(), accumulate };
    // SAFETY: as above.
    unsafe { sum.run() }
}

#[cfg(test)]
mod tests;

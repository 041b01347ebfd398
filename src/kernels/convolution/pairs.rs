//! Implicit GEMM of values in bfloat16, with sums in `f32`. Two neighbouring channels become one channel of words of
//! two numbers. For the gradient of the weight, two images become one. Kernels for pairs multiply such words, so the
//! rest of the algorithm is the one for `f32` with half as many channels or images.

use std::sync::atomic::{AtomicBool, Ordering};

use super::correlation::{Correlation, WeightGradient};
use super::descriptor::{Descriptor, Pass};
use super::geometry::Geometry;
use super::implicit_gemm::in_tiles;
use super::select::{Method, takes_pairs};
use super::{implicit_gemm, run_windows};
use crate::array::{OutOfMemory, Workspace};
use crate::kernels::Float;
use crate::kernels::epilogue::Epilogue;
use crate::kernels::gemm::kernels_of_pairs;
use crate::kernels::simd::vectorised;
use crate::kernels::sixteen_bits::{Values, ValuesMut, bits_of};
use crate::kernels::threads::{Shared, parallel};

/// Words that a task makes.
const GRAIN: usize = 1 << 13;

/// Words that tiles may read beyond the last one. They are zeros.
const EXCESS: usize = 32;

/// Words of two numbers.
struct Words<T> {
    /// The words.
    memory: Workspace<T>,
    /// True if no number is infinite or NaN.
    are_finite: bool,
}

/// Makes words of rows `2 i` and `2 i + 1` of each matrix of `rows` x `len` numbers. A missing last row is zeros.
fn words<T: Float>(from: Values<'_, T>, rows: usize, len: usize) -> Result<Words<T>, OutOfMemory> {
    assert!(size_of::<T>() == size_of::<u32>(), "words of two numbers");
    let (pairs, pieces) = (rows.div_ceil(2), len.div_ceil(GRAIN));
    let matrices = from.len().checked_div(rows * len).unwrap_or(0);
    let all = matrices * pairs * len;
    let memory = Workspace::<T>::new(all + EXCESS)?;
    let (to, are_finite) = (Shared::new(memory.ptr().cast::<u32>()), AtomicBool::new(true));
    // SAFETY: the memory has these elements.
    unsafe { to.get().add(all).write_bytes(0, EXCESS) };
    parallel(matrices * pairs * pieces, |task| {
        let (pair, piece) = (task / pieces, task % pieces);
        let (start, n) = (piece * GRAIN, GRAIN.min(len - piece * GRAIN));
        let (matrix, row) = (pair / pairs, pair % pairs * 2);
        let part = |row: usize| from.part((matrix * rows + row) * len + start, n);
        // SAFETY: the memory holds all words, and each task writes its own.
        let to = unsafe { std::slice::from_raw_parts_mut(to.get().add(pair * len + start), n) };
        weave(part(row), (row + 1 < rows).then(|| part(row + 1)), to);
        if !have_finite_numbers(to) {
            are_finite.store(false, Ordering::Relaxed);
        }
    });
    Ok(Words { memory, are_finite: are_finite.into_inner() })
}

/// True if no number in these words is infinite or NaN.
fn have_finite_numbers(words: &[u32]) -> bool {
    /// The exponent of a number in bfloat16, all ones if it is not finite.
    const EXPONENT: u32 = 0x7F80;
    vectorised(
        #[inline(always)]
        || {
            let is_special = |exponent: u32| u32::from(exponent == EXPONENT);
            let found = |w: &u32| is_special(w & EXPONENT) | is_special(w >> 16 & EXPONENT);
            words.iter().fold(0, |all, w| all | found(w)) == 0
        },
    )
}

/// Writes words of the numbers of two rows, or of one row and zeros.
fn weave<T: Float>(low: Values<'_, T>, high: Option<Values<'_, T>>, to: &mut [u32]) {
    let word = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    vectorised(
        #[inline(always)]
        || match (low, high) {
            (Values::BFloat16(low), Some(Values::BFloat16(high))) => {
                let rows = low.iter().zip(high);
                to.iter_mut().zip(rows).for_each(|(to, (a, b))| *to = word(a.to_bits(), b.to_bits()));
            }
            (Values::BFloat16(low), _) => {
                to.iter_mut().zip(low).for_each(|(to, a)| *to = word(a.to_bits(), 0));
            }
            (
                Values::Exact(low) | Values::Rounded(low),
                Some(Values::Exact(high) | Values::Rounded(high)),
            ) => {
                let (rows, round) = (low.iter().zip(high), |v: T| bits_of(v.real() as f32));
                to.iter_mut().zip(rows).for_each(|(to, (a, b))| *to = word(round(*a), round(*b)));
            }
            (Values::Exact(low) | Values::Rounded(low), _) => {
                to.iter_mut().zip(low).for_each(|(to, a)| *to = word(bits_of(a.real() as f32), 0));
            }
        },
    );
}

/// The convolution of words of two channels, of the input, or of the output for the gradient by the input.
fn paired(g: &Geometry, of: Pass) -> Geometry {
    let pair = |channels: usize| (channels / g.group).div_ceil(2) * g.group;
    match of {
        Pass::Output => Geometry { channels: pair(g.channels), ..g.clone() },
        Pass::InputGradient => Geometry { maps: pair(g.maps), ..g.clone() },
        Pass::WeightGradient => Geometry { images: g.images.div_ceil(2), ..g.clone() },
    }
}

/// True if a pass is computed by products of pairs. No row functions can follow it.
fn is_computed<T: Float>(
    g: &Geometry,
    of: Pass,
    values: Values<'_, T>,
    epilogue: Epilogue<'_, T>,
    by_tiles: bool,
) -> bool {
    !matches!(values, Values::Exact(_))
        && kernels_of_pairs::<T>().is_some()
        && epilogue.tail.rows.is_none()
        && takes_pairs::<T>(g, of, epilogue.row_bias.is_some(), by_tiles)
        && !paired(g, of).is_depthwise()
}

/// True if tiles can multiply words of this many source channels of a group.
fn tiles_fit(descriptor: &Descriptor, channels: usize) -> bool {
    descriptor.layout.as_ref().is_some_and(|layout| in_tiles::fit(layout, channels))
}

/// As [`super::forward`]. Returns false, and does nothing, if products of pairs do not compute the output. Tiles of AMX
/// multiply if `by_tiles` is set and they fit.
///
/// # Errors
/// As [`super::forward`].
pub(super) fn forward<T: Float>(
    g: &Geometry,
    x: Values<'_, T>,
    w: &[T],
    y: &mut ValuesMut<'_, T>,
    epilogue: Epilogue<'_, T>,
    by_tiles: bool,
) -> Result<bool, OutOfMemory> {
    let computed = is_computed(g, Pass::Output, x, epilogue, by_tiles);
    let Some(kernels) = kernels_of_pairs::<T>().filter(|_| computed) else {
        return Ok(false);
    };
    g.check(x.len(), w.len(), y.len());
    let (channels, wide) = (g.channels / g.group, paired(g, Pass::Output));
    let x = words(x, channels, g.area())?.memory;
    let descriptors = wide.descriptors_of_words(Pass::Output);
    let of_group = wide.channels / g.group;
    let in_tiles = by_tiles && descriptors.each.iter().all(|each| tiles_fit(each, of_group));
    let woven = if in_tiles { None } else { Some(words(Values::Rounded(w), channels, g.taps())?.memory) };
    let sum = Correlation {
        g: &wide,
        descriptor: &descriptors.each[0],
        kernels,
        source: x.ptr(),
        sources: wide.inputs(),
        is_narrow: matches!(y, ValuesMut::BFloat16(_)),
        target: y.ptr().cast(),
        targets: wide.outputs(),
        weight: woven.as_ref().map_or(w.as_ptr(), |w| w.ptr()),
        in_tiles: in_tiles.then_some(channels),
        forward: true,
        epilogue,
    };
    // SAFETY: the arrays have the sizes of the geometry, and `y` is borrowed alone.
    unsafe { run_windows(&sum, Method::ImplicitGemm, &descriptors, y.len(), None)? };
    Ok(true)
}

/// As [`super::input_gradient`]. Returns false, and does nothing, if products of pairs do not compute the gradient.
///
/// # Errors
/// As [`super::forward`].
pub(super) fn input_gradient<T: Float>(
    g: &Geometry,
    gy: Values<'_, T>,
    w: &[T],
    gx: &mut ValuesMut<'_, T>,
    epilogue: Epilogue<'_, T>,
    by_tiles: bool,
) -> Result<bool, OutOfMemory> {
    let computed = is_computed(g, Pass::InputGradient, gy, epilogue, by_tiles);
    let Some(kernels) = kernels_of_pairs::<T>().filter(|_| computed) else {
        return Ok(false);
    };
    g.check(gx.len(), w.len(), gy.len());
    let (maps, wide) = (g.maps / g.group, paired(g, Pass::InputGradient));
    let gy = words(gy, maps, g.positions())?.memory;
    let descriptors = wide.descriptors_of_words(Pass::InputGradient);
    let of_group = wide.maps / g.group;
    let in_tiles = by_tiles && descriptors.each.iter().all(|each| tiles_fit(each, of_group));
    let taps = g.channels / g.group * g.taps();
    let woven = if in_tiles { None } else { Some(words(Values::Rounded(w), maps, taps)?.memory) };
    let Some(descriptor) = descriptors.each.first() else { return Ok(true) };
    let sum = Correlation {
        g: &wide,
        descriptor,
        kernels,
        source: gy.ptr(),
        sources: wide.outputs(),
        is_narrow: matches!(gx, ValuesMut::BFloat16(_)),
        target: gx.ptr().cast(),
        targets: wide.inputs(),
        weight: woven.as_ref().map_or(w.as_ptr(), |w| w.ptr()),
        in_tiles: in_tiles.then_some(maps),
        forward: false,
        epilogue,
    };
    // SAFETY: as in `forward`.
    unsafe { run_windows(&sum, Method::ImplicitGemm, &descriptors, gx.len(), None)? };
    Ok(true)
}

/// As [`super::weight_gradient`]. Returns false, and does nothing, if products of pairs do not compute the gradient.
///
/// # Errors
/// As [`super::forward`].
pub(super) fn weight_gradient<T: Float>(
    g: &Geometry,
    x: Values<'_, T>,
    gy: Values<'_, T>,
    gw: &mut [T],
    accumulate: bool,
    by_tiles: bool,
) -> Result<bool, OutOfMemory> {
    let computed = is_computed(g, Pass::WeightGradient, x, Epilogue::NONE, by_tiles);
    let Some(kernels) = kernels_of_pairs::<T>().filter(|_| computed && x.len() > 0 && gy.len() > 0) else {
        return Ok(false);
    };
    g.check(x.len(), gw.len(), gy.len());
    let wide = paired(g, Pass::WeightGradient);
    let x = words(x, g.images, g.channels * g.area())?;
    let gy = words(gy, g.images, g.maps * g.positions())?;
    let descriptors = wide.descriptors_of_words(Pass::WeightGradient);
    let in_tiles =
        by_tiles && x.are_finite && gy.are_finite && tiles_fit(&descriptors.each[0], g.channels / g.group);
    let (x, gy, gw) = (x.memory.ptr(), gy.memory.ptr(), gw.as_mut_ptr());
    let gradient = WeightGradient { g: &wide, kernels, x, gy, gw, in_tiles, accumulate };
    // SAFETY: as in `forward`.
    unsafe { implicit_gemm::weight_gradient::run(&gradient, &descriptors.each[0])? };
    Ok(true)
}

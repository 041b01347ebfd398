//! Convolution: the output and both gradients. Each is a sum over `x[c, o * stride + t * dilation - pad] * w[k, c, t]
//! * gy[k, o]`. Deconvolution is the same with other names.
//!
//! `select.rs` chooses the algorithm of each sum.

mod correlation;
mod depthwise;
mod descriptor;
mod gemm_rows;
mod geometry;
mod implicit_gemm;
pub mod in_bfloat16;
pub mod in_sixteen_bits;
mod isa;
mod modulated;
mod pairs;
mod pointwise;
mod scattered_taps;
mod select;
mod stride_equals_kernel;
mod weight;
mod window;
mod winograd;

use crate::array::OutOfMemory;
use crate::kernels::Float;
use crate::kernels::epilogue::{Epilogue, Tail};
use crate::kernels::gemm::kernels;
use crate::kernels::threads::{Shared, ranges};
use correlation::{Correlation, WeightGradient};
pub(super) use descriptor::begin_thread;
use descriptor::{Descriptor, Descriptors, Division, Pass};
pub use geometry::{Geometry, Spatial};
pub use modulated::modulated;
use pointwise::Pointwise;
pub use select::{Algorithm, algorithm, caches_weight, set_algorithm};
use select::{Method, select, winograd_parts};
use stride_equals_kernel::StrideEqualsKernel;
use weight::WeightCache;
pub use weight::{CachedWeight, DerivedCache, Fingerprint, Weight};
use winograd::Winograd;
use winograd::weight_scales::{are_coarse, have_one_sign};

/// The number of elements that a thread sets to zero at a time.
const ZEROS: usize = 1 << 15;

/// Computes the output.
///
/// # Errors
/// [`OutOfMemory`] if packed data cannot be allocated.
pub fn forward<'w, T: Float>(
    g: &Geometry,
    x: &[T],
    w: impl Into<Weight<'w, T>>,
    y: &mut [T],
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    let w = w.into();
    g.check(x.len(), w.values.len(), y.len());
    let mut method = select::<T>(g, Pass::Output, epilogue.row_bias.is_some(), true);
    if method == Method::GemmRows {
        gemm_rows::forward(g, x, w, y, epilogue);
        return Ok(());
    }
    let Weight { values: w, mut known, .. } = w;
    if method == Method::Pointwise {
        Pointwise::new(g).forward(x.into(), w, y.into(), epilogue);
        return Ok(());
    }
    if method == Method::Winograd {
        let sum = Winograd::forward(g, x.as_ptr(), w.as_ptr(), y.as_mut_ptr(), epilogue);
        // SAFETY: the slices are as large as the geometry says, which was checked; `y` is borrowed alone.
        if unsafe { sum.run(known.take())? } {
            return Ok(());
        }
        method = select::<T>(g, Pass::Output, epilogue.row_bias.is_some(), false);
    }
    let descriptors = g.descriptors(Pass::Output);
    let sum = Correlation {
        g,
        descriptor: &descriptors.each[0],
        kernels: kernels(),
        source: x.as_ptr(),
        sources: g.inputs(),
        target: y.as_mut_ptr(),
        is_narrow: false,
        targets: g.outputs(),
        weight: w.as_ptr(),
        in_tiles: None,
        forward: true,
        epilogue,
    };
    // SAFETY: as above.
    unsafe { run_windows(&sum, method, &descriptors, y.len(), known) }
}

/// Computes the sums of one window, or of all windows with [`Method::DepthwiseNchw`].
///
/// # Safety
/// The arrays must have the sizes of the geometry, and nothing else may use the target meanwhile.
unsafe fn run<T: Float>(
    sum: &Correlation<'_, T>,
    method: Method,
    descriptors: &Descriptors,
) -> Result<(), OutOfMemory> {
    if sum.window().positions() == 0 || sum.targets.channels == 0 || sum.g.images == 0 {
        return Ok(());
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match method {
            Method::DepthwiseNchw => depthwise::nchw::run(sum, descriptors),
            Method::DepthwiseNhwc => depthwise::nhwc::run(sum),
            _ => implicit_gemm::run(sum)?,
        }
    }
    Ok(())
}

/// Computes the gradient of the input, which is also the output of a deconvolution.
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
        if by_stride_phases(g, gy, w.values, gx, epilogue)? {
            return Ok(());
        }
        // Windows write with gaps, so no row is complete before all windows are done.
        spread_gradient(g, gy, w, gx, Epilogue { tail: Tail::NOTHING, ..epilogue })?;
        epilogue.tail.finish_all(gx);
        return Ok(());
    }
    spread_gradient(g, gy, w, gx, epilogue)
}

/// Computes the gradient of a strided input by implicit GEMM, for all phases of the stride together. Returns false if
/// another method is faster.
fn by_stride_phases<T: Float>(
    g: &Geometry,
    gy: &[T],
    w: &[T],
    gx: &mut [T],
    epilogue: Epilogue<'_, T>,
) -> Result<bool, OutOfMemory> {
    if select::<T>(g, Pass::InputGradient, epilogue.row_bias.is_some(), true) != Method::ImplicitGemm {
        return Ok(false);
    }
    let descriptors = g.descriptors(Pass::InputGradient);
    let (Some(phases), [first, ..]) = (&descriptors.stride, &descriptors.each[..]) else { return Ok(false) };
    let sum = of_input_gradient(g, first, (gy, w, gx), epilogue);
    // SAFETY: the slices are as large as the geometry says, and `gx` is borrowed alone.
    unsafe { implicit_gemm::stride_phases::run(&sum, &descriptors.each, phases)? };
    Ok(true)
}

/// The sums of a window of the gradient of the input.
fn of_input_gradient<'a, T: Float>(
    g: &'a Geometry,
    descriptor: &'a Descriptor,
    (gy, w, gx): (&[T], &[T], &mut [T]),
    epilogue: Epilogue<'a, T>,
) -> Correlation<'a, T> {
    Correlation {
        g,
        descriptor,
        kernels: kernels(),
        source: gy.as_ptr(),
        sources: g.outputs(),
        target: gx.as_mut_ptr(),
        is_narrow: false,
        targets: g.inputs(),
        weight: w.as_ptr(),
        in_tiles: None,
        forward: false,
        epilogue,
    }
}

/// Computes the gradient of the input, by the method for this geometry.
fn spread_gradient<T: Float>(
    g: &Geometry,
    gy: &[T],
    Weight { values: w, mut known, .. }: Weight<'_, T>,
    gx: &mut [T],
    epilogue: Epilogue<'_, T>,
) -> Result<(), OutOfMemory> {
    let has_bias = epilogue.row_bias.is_some();
    let mut method = select::<T>(g, Pass::InputGradient, has_bias, true);
    match method {
        Method::Pointwise => {
            Pointwise::new(g).input_gradient(gy.into(), w, gx.into(), epilogue);
            return Ok(());
        }
        Method::StrideEqualsKernel => {
            StrideEqualsKernel::new(g).input_gradient(gy, w, gx, epilogue);
            return Ok(());
        }
        Method::ScatteredTaps => {
            scattered_taps::input_gradient(g, gy, w, gx, epilogue);
            return Ok(());
        }
        Method::Winograd => {
            let sum = Winograd::backward(g, gy.as_ptr(), w.as_ptr(), gx.as_mut_ptr(), epilogue);
            // SAFETY: as above.
            if unsafe { sum.run(known.take())? } {
                return Ok(());
            }
            method = select::<T>(g, Pass::InputGradient, has_bias, false);
        }
        _ => {}
    }
    let descriptors = g.descriptors(Pass::InputGradient);
    let Some(descriptor) = descriptors.each.first() else { return Ok(()) };
    let sum = of_input_gradient(g, descriptor, (gy, w, gx), epilogue);
    // SAFETY: as above.
    unsafe { run_windows(&sum, method, &descriptors, gx.len(), known) }
}

/// Computes the sums of all windows, which are parts of a target of `n` elements. Packed weights are cached in `known`.
///
/// # Safety
/// As [`run`].
unsafe fn run_windows<T: Float>(
    sum: &Correlation<'_, T>,
    method: Method,
    descriptors: &Descriptors,
    n: usize,
    known: WeightCache<'_>,
) -> Result<(), OutOfMemory> {
    if descriptors.division == Division::Regions && method == Method::ImplicitGemm {
        // SAFETY: guaranteed by the caller.
        return unsafe { implicit_gemm::regions::run(sum, &descriptors.each, known) };
    }
    if descriptors.division == Division::Phases && method == Method::ImplicitGemm {
        if sum.targets.channels == 0 {
            return Ok(());
        }
        // SAFETY: guaranteed by the caller.
        return unsafe { implicit_gemm::run_phases(sum, &descriptors.each) };
    }
    let epilogue = sum.epilogue;
    // True for elements that no tap reaches.
    let is_left_out =
        |descriptor: &&Descriptor| epilogue.row_bias.is_none() && descriptor.window.taps.is_empty();
    if !epilogue.accumulate && descriptors.each.iter().any(|descriptor| is_left_out(&descriptor)) {
        let (to, size) =
            (Shared::new(sum.target.cast::<u8>()), if sum.is_narrow { 2 } else { size_of::<T>() });
        ranges(n, ZEROS, |some| {
            // SAFETY: the ranges are parts of the gradient, each its own.
            unsafe { to.get().add(size * some.start).write_bytes(0, size * some.len()) };
        });
    }
    for descriptor in descriptors.each.iter().filter(|descriptor| !is_left_out(descriptor)) {
        let sum = Correlation { descriptor, ..*sum };
        // SAFETY: guaranteed by the caller.
        unsafe { run(&sum, method, descriptors)? };
        if method == Method::DepthwiseNchw {
            break; // it has computed all windows
        }
    }
    Ok(())
}

/// Writes the gradient of the weight, or adds it to `gw` if `accumulate` is set.
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
    let mut method = select::<T>(g, Pass::WeightGradient, false, true);
    // The rounding errors of Winograd's algorithm must not change the sign of a gradient.
    let is_direct = || (have_one_sign(gy) && have_one_sign(x)) || (are_coarse(gy) && are_coarse(x));
    if method == Method::Winograd && is_direct() {
        method = select::<T>(g, Pass::WeightGradient, false, false);
    }
    match (method, winograd_parts(g)) {
        (Method::Pointwise, _) => {
            return Pointwise::new(g).weight_gradient(x.into(), gy.into(), gw, accumulate);
        }
        (Method::Winograd, Some(parts)) => {
            let (x, gy, gw) = (x.as_ptr(), gy.as_ptr(), gw.as_mut_ptr());
            // SAFETY: as above.
            return unsafe { winograd::weight_gradient::weight_gradient(g, parts, x, gy, gw, accumulate) };
        }
        _ => {}
    }
    let (x, gy, gw) = (x.as_ptr(), gy.as_ptr(), gw.as_mut_ptr());
    let gradient = WeightGradient { g, kernels: kernels(), x, gy, gw, in_tiles: false, accumulate };
    let descriptors = g.descriptors(Pass::WeightGradient);
    let descriptor = &descriptors.each[0];
    // SAFETY: as above.
    unsafe {
        match method {
            Method::DepthwiseNchw => depthwise::nchw::weight_gradient(&gradient, descriptor),
            Method::DepthwiseNhwc => depthwise::nhwc::weight_gradient(&gradient, &descriptor.window),
            _ => implicit_gemm::weight_gradient::run(&gradient, descriptor)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

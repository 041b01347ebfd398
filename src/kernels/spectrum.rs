//! Discrete Fourier transforms by `rustfft`. Works on lines of complex numbers with interleaved real and imaginary
//! parts.

use std::any::TypeId;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use rustfft::num_complex::Complex;
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};

use super::threads::{self, Shared};
use super::{Float, scratch};

/// Columns of a strided axis that are gathered together.
const COLUMNS: usize = 8;
/// Minimum number of elements of a task.
const GRAIN: usize = 1 << 13;

/// The transform of lines of a length. Plans are cached by length.
fn plan<T: Float>(n: usize, direction: FftDirection) -> impl Fn(&mut [T]) + Sync {
    /// Plans of transforms in single precision, kept for later calls.
    static SINGLE: LazyLock<Mutex<FftPlanner<f32>>> = LazyLock::new(|| Mutex::new(FftPlanner::new()));
    /// Plans of transforms in double precision, kept for later calls.
    static DOUBLE: LazyLock<Mutex<FftPlanner<f64>>> = LazyLock::new(|| Mutex::new(FftPlanner::new()));
    let (mut single, mut double) = (None, None);
    if TypeId::of::<T>() == TypeId::of::<f32>() {
        single = Some(SINGLE.lock().plan_fft(n, direction));
    } else {
        double = Some(DOUBLE.lock().plan_fft(n, direction));
    }
    move |lines| match (&single, &double) {
        (Some(plan), _) => process(plan, lines),
        (_, Some(plan)) => process(plan, lines),
        _ => {}
    }
}

/// Transforms lines of numbers of the plan's type.
fn process<T: Float, F: FftNum>(plan: &Arc<dyn Fft<F>>, lines: &mut [T]) {
    assert!(size_of::<T>() == size_of::<F>());
    scratch::with(2 * plan.get_inplace_scratch_len(), |buffer: &mut [T]| {
        // SAFETY: both types are equal, as `plan` chose, and a complex number is two of them.
        let complex = |of: &mut [T]| unsafe {
            std::slice::from_raw_parts_mut(of.as_mut_ptr().cast::<Complex<F>>(), of.len() / 2)
        };
        plan.process_with_scratch(complex(lines), complex(buffer));
    });
}

/// Transforms lines of `n` complex numbers in place: `y[k] = sum x[t] exp(-2 pi i k t / n)`, with the opposite sign
/// if `inverse`.
pub fn lines<T: Float>(n: usize, inverse: bool) -> impl Fn(&mut [T]) + Sync {
    plan::<T>(n.max(1), if inverse { FftDirection::Inverse } else { FftDirection::Forward })
}

/// Transforms an array in place along an axis of length `n`, between `outer` and `inner` elements; see [`lines`].
pub fn along<T: Float>(x: &mut [T], (outer, n, inner): (usize, usize, usize), inverse: bool) {
    assert!(x.len() == 2 * outer * n * inner);
    if x.is_empty() || n == 1 {
        return;
    }
    let transform = lines::<T>(n, inverse);
    let x = Shared::new(x.as_mut_ptr());
    if inner == 1 {
        return threads::ranges(outer, (GRAIN / n).max(1), |some| {
            // SAFETY: each range has lines of its own.
            let lines = unsafe {
                std::slice::from_raw_parts_mut(x.get().add(2 * n * some.start), 2 * n * some.len())
            };
            transform(lines);
        });
    }
    let blocks = inner.div_ceil(COLUMNS);
    threads::ranges(outer * blocks, (GRAIN / n / COLUMNS).max(1), |some| {
        scratch::with(2 * n * COLUMNS, |buffer: &mut [T]| {
            for block in some {
                let (o, first) = (block / blocks, block % blocks * COLUMNS);
                let columns = COLUMNS.min(inner - first);
                let buffer = &mut buffer[..2 * n * columns];
                let numbers = buffer.as_mut_ptr().cast::<[T; 2]>();
                // SAFETY: each block has columns of its own within the array, and the buffer holds all of them.
                let row = |t: usize| unsafe { x.get().cast::<[T; 2]>().add((o * n + t) * inner + first) };
                for t in 0..n {
                    // SAFETY: as above.
                    (0..columns).for_each(|c| unsafe { *numbers.add(c * n + t) = *row(t).add(c) });
                }
                transform(buffer);
                let numbers = buffer.as_ptr().cast::<[T; 2]>();
                for t in 0..n {
                    // SAFETY: as above.
                    (0..columns).for_each(|c| unsafe { *row(t).add(c) = *numbers.add(c * n + t) });
                }
            }
        });
    });
}

//! Sums over all axes but the channels, for arrays of (outer, channels, inner) elements.
//!
//! Several partial sums in a fixed order are more exact than one running sum, and faster.

use super::simd::{Vector, Work, row, vectorised};
use super::sixteen_bits::{Values, is_narrow};
use super::threads::{Shared, ranges, row_ranges_mut};
use super::{Float, Movable, Number, Stored, scratch};
use crate::array::Element;

/// Elements that one lane sums before its sum moves to the next level.
const BLOCK: usize = 256;

/// The number of parallel sums of a slice.
const LANES: usize = 16;

/// The sum of a slice.
pub fn sum<E: Stored>(x: &[E]) -> E::Wide {
    if x.len() > LANES * BLOCK {
        // Split at whole blocks, so that no running sum is long.
        let (left, right) = x.split_at((x.len() / 2).next_multiple_of(LANES * BLOCK).min(x.len() - 1));
        return sum(left) + sum(right);
    }
    vectorised(
        #[inline(always)]
        || sum_in_lanes(x),
    )
}

/// The sum of a few elements.
#[inline(always)]
fn sum_in_lanes<E: Stored>(x: &[E]) -> E::Wide {
    let mut lanes = [E::Wide::ZERO; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        for l in 0..LANES {
            lanes[l] = lanes[l] + chunk[l].wide();
        }
    }
    let mut rest = E::Wide::ZERO;
    for x in chunks.remainder() {
        rest = rest + x.wide();
    }
    let mut n = LANES / 2;
    while n > 0 {
        for l in 0..n {
            lanes[l] = lanes[l] + lanes[l + n];
        }
        n /= 2;
    }
    lanes[0] + rest
}

/// Writes the mean of each row of `n` elements, also where its sum is beyond the range of the elements.
pub fn means<E: Stored>(x: &[E], n: usize, y: &mut [E]) {
    row_ranges_mut(y, 1, (GRAIN / n.max(1)).max(1), |some, y| {
        let x = &x[some.start * n..some.end * n];
        if is_narrow::<E>() {
            return E::with_registers(Means { x, n, y });
        }
        for (x, y) in x.chunks_exact(n.max(1)).zip(y) {
            *y = E::narrowed(quotient(sum(x), x));
        }
    });
}

/// The means of rows of elements of 16 bits.
struct Means<'a, E> {
    /// The elements.
    x: &'a [E],
    /// The number of elements of a row.
    n: usize,
    /// A mean for each row.
    y: &'a mut [E],
}

impl<E: Stored> Work<E::Wide> for Means<'_, E> {
    type Output = ();

    #[inline(always)]
    unsafe fn run<V: Vector<T = E::Wide>>(self) {
        for (x, y) in self.x.chunks_exact(self.n.max(1)).zip(self.y) {
            // SAFETY: the instructions are available, and the row has the elements.
            *y = E::narrowed(quotient(E::Wide::of(unsafe { row::sum::<V, E>(x.as_ptr(), x.len()) }), x));
        }
    }
}

/// The mean of a row with this sum.
#[inline(always)]
fn quotient<E: Stored>(sum: E::Wide, x: &[E]) -> E::Wide {
    if sum.abs() <= E::Wide::MAX { sum / E::Wide::of(x.len() as f64) } else { wide_mean(x) }
}

/// The mean of a row by way of float64.
#[cold]
fn wide_mean<E: Stored>(x: &[E]) -> E::Wide {
    // Numbers of float64 are scaled, so that their sum stays finite.
    /// The factor by which float64 numbers are scaled, so that their sum stays finite.
    const DOWN: f64 = f64::from_bits((1023 - 64) << 52);
    let factor = if size_of::<E>() == size_of::<f64>() { DOWN } else { 1.0 };
    let all: f64 = x.iter().map(|x| x.wide().real() * factor).sum();
    E::Wide::of(all / x.len() as f64 / factor)
}

/// Elements that are widened at a time.
const WIDENED: usize = 1 << 15;

/// As [`add_sums`], for values of any type.
pub fn add_sums_of<T: Float>(gy: Values<'_, T>, gb: &mut [T], inner: usize) {
    let row = gb.len() * inner;
    match gy {
        Values::Exact(gy) | Values::Rounded(gy) => add_sums(gy, gb, inner),
        Values::BFloat16(_) if row == 0 => {}
        Values::BFloat16(_) => {
            let some = (WIDENED / row).max(1) * row;
            for start in (0..gy.len()).step_by(some) {
                gy.part(start, some.min(gy.len() - start)).widened(|gy| add_sums(gy, gb, inner));
            }
        }
    }
}

/// Elements that are worth handing over to a thread.
const GRAIN: usize = 1 << 14;

/// Adds the sum of the elements of channel `c` to `gb[c]`: the gradient of a bias.
pub fn add_sums<T: Float>(gy: &[T], gb: &mut [T], inner: usize) {
    let channels = gb.len();
    if channels == 0 || inner == 0 || gy.is_empty() {
        return;
    }
    let gb_at = Shared::new(gb.as_mut_ptr());
    if inner > 1 {
        let outer = gy.len() / (channels * inner);
        ranges(channels, GRAIN / (outer * inner), |some| {
            for c in some {
                // SAFETY: each channel has an element of its own.
                let g = unsafe { &mut *gb_at.get().add(c) };
                for o in 0..outer {
                    *g = *g + sum(&gy[(o * channels + c) * inner..][..inner]);
                }
            }
        });
        return;
    }
    let blocks = gy.len().div_ceil(channels * BLOCK);
    scratch::with(blocks * channels, |parts: &mut [T]| {
        let parts_at = Shared::new(parts.as_mut_ptr());
        ranges(blocks, GRAIN / (BLOCK * channels), |some| {
            for block in some {
                // SAFETY: each block has a part of its own.
                let part =
                    unsafe { std::slice::from_raw_parts_mut(parts_at.get().add(block * channels), channels) };
                part.fill(T::ZERO);
                let rows = &gy[block * channels * BLOCK..];
                for row in rows[..rows.len().min(channels * BLOCK)].chunks_exact(channels) {
                    part.iter_mut().zip(row).for_each(|(p, g)| *p = *p + *g);
                }
            }
        });
        for part in parts.chunks_exact(channels) {
            gb.iter_mut().zip(part).for_each(|(g, p)| *g = *g + *p);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::{add_sums, sum};

    #[test]
    fn long_sums_stay_exact_to_a_few_units() {
        for n in [0, 1, 15, 16, 17, 4096, 4097, 100_003] {
            let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 / 101.0).collect();
            let exact: f64 = x.iter().map(|x| f64::from(*x)).sum();
            assert!((f64::from(sum(&x)) - exact).abs() <= 1e-6 * exact, "{n}: {} against {exact}", sum(&x));
            let mut g = [1.0_f32];
            add_sums(&x, &mut g, 1);
            assert!((f64::from(g[0]) - 1.0 - exact).abs() <= 2e-6 * (1.0 + exact), "{n}");
        }
    }
}

//! A number for each channel of an array, and sums over the rest. Knows arrays of (outer, channels, inner) elements.
//!
//! Sums keep several partial ones in a fixed order: closer to the exact sum than one running sum, and quicker.

use super::Float;

/// Elements that one lane may sum up before its sum is added to the next level.
const BLOCK: usize = 256;

/// The sum of a slice.
pub fn sum<T: Float>(x: &[T]) -> T {
    const LANES: usize = 16;
    if x.len() > LANES * BLOCK {
        // Halves of whole blocks, so that no running sum is long.
        let (left, right) = x.split_at((x.len() / 2).next_multiple_of(LANES * BLOCK).min(x.len() - 1));
        return sum(left) + sum(right);
    }
    let mut lanes = [T::ZERO; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(l, x)| *l = *l + *x);
    }
    let rest = chunks.remainder().iter().fold(T::ZERO, |s, x| s + *x);
    let mut n = LANES / 2;
    while n > 0 {
        (0..n).for_each(|i| lanes[i] = lanes[i] + lanes[i + n]);
        n /= 2;
    }
    lanes[0] + rest
}

/// Adds `b[c]` to each element of channel `c`.
pub fn add_bias<T: Float>(y: &mut [T], b: &[T], inner: usize) {
    if b.is_empty() || inner == 0 {
        return;
    }
    for y in y.chunks_exact_mut(b.len() * inner) {
        if inner == 1 {
            y.iter_mut().zip(b).for_each(|(y, b)| *y = *y + *b);
        } else {
            y.chunks_exact_mut(inner).zip(b).for_each(|(y, b)| y.iter_mut().for_each(|y| *y = *y + *b));
        }
    }
}

/// Adds to `gb[c]` the sum of the elements of channel `c`: the gradient of [`add_bias`].
pub fn add_sums<T: Float>(gy: &[T], gb: &mut [T], inner: usize) {
    let channels = gb.len();
    if channels == 0 || inner == 0 {
        return;
    }
    if inner > 1 {
        for gy in gy.chunks_exact(channels * inner) {
            gb.iter_mut().zip(gy.chunks_exact(inner)).for_each(|(g, gy)| *g = *g + sum(gy));
        }
        return;
    }
    let mut part = vec![T::ZERO; channels];
    for rows in gy.chunks(channels * BLOCK) {
        part.fill(T::ZERO);
        for row in rows.chunks_exact(channels) {
            part.iter_mut().zip(row).for_each(|(p, g)| *p = *p + *g);
        }
        gb.iter_mut().zip(&part).for_each(|(g, p)| *g = *g + *p);
    }
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

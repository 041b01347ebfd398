//! Normalised exponentials along one axis. Knows slices; knows no shapes, graphs or Python.
//!
//! Sums run in float64 and in a fixed order.

use super::Float;

/// The lines of an array along one axis: `outer * inner` of them, of `n` elements `inner` apart.
#[derive(Clone, Copy)]
pub struct Lines {
    /// Elements before the axis.
    pub outer: usize,
    /// Elements along the axis.
    pub n: usize,
    /// Elements after the axis.
    pub inner: usize,
}

impl Lines {
    /// Number of lines.
    pub fn count(self) -> usize {
        self.outer * self.inner
    }

    /// Where element `k` of line `line` is.
    #[inline(always)]
    pub fn at(self, line: usize, k: usize) -> usize {
        (line / self.inner * self.n + k) * self.inner + line % self.inner
    }

    /// Calls `f(element, line)` for each element, in memory's order.
    #[inline(always)]
    pub fn each(self, mut f: impl FnMut(usize, usize)) {
        if self.inner == 1 {
            (0..self.outer).for_each(|line| (line * self.n..(line + 1) * self.n).for_each(|i| f(i, line)));
            return;
        }
        for row in 0..self.outer * self.n {
            let (first, line) = (row * self.inner, row / self.n * self.inner);
            (0..self.inner).for_each(|j| f(first + j, line + j));
        }
    }

    /// The sum of `f(element, line)` along each line.
    #[inline(always)]
    pub fn sums(self, mut f: impl FnMut(usize, usize) -> f64) -> Vec<f64> {
        let mut sums = vec![0.0; self.count()];
        if self.inner != 1 {
            self.each(|i, line| sums[line] += f(i, line));
            return sums;
        }
        for (line, sum) in sums.iter_mut().enumerate() {
            let first = line * self.n;
            let mut lanes = [0.0; 8];
            for block in (0..self.n / 8 * 8).step_by(8) {
                (0..8).for_each(|k| lanes[k] += f(first + block + k, line));
            }
            (self.n / 8 * 8..self.n).for_each(|k| lanes[k % 8] += f(first + k, line));
            *sum = lanes.iter().sum();
        }
        sums
    }

    /// The largest element of each line.
    pub fn max<T: Float>(self, x: &[T]) -> Vec<T> {
        let mut max = vec![T::NEG_INFINITY; self.count()];
        self.each(|i, line| max[line] = if x[i] > max[line] { x[i] } else { max[line] });
        max
    }
}

/// `y = exp(x) / sum(exp(x))` along each line.
pub fn softmax<T: Float>(lines: Lines, x: &[T], y: &mut [T]) {
    let max = lines.max(x);
    let sums = lines.sums(|i, line| {
        y[i] = (x[i] - max[line]).exp();
        y[i].real()
    });
    let scale: Vec<T> = sums.iter().map(|sum| T::of(1.0 / sum)).collect();
    lines.each(|i, line| y[i] = y[i] * scale[line]);
}

/// The largest element of each line, and the logarithm of the sum of `exp(x - max)`.
pub fn log_sums<T: Float>(lines: Lines, x: &[T]) -> Vec<(T, T)> {
    let max = lines.max(x);
    let sums = lines.sums(|i, line| (x[i] - max[line]).exp().real());
    max.into_iter().zip(sums).map(|(max, sum)| (max, T::of(sum.ln()))).collect()
}

/// `y = x - log(sum(exp(x)))` along each line.
pub fn log_softmax<T: Float>(lines: Lines, x: &[T], y: &mut [T]) {
    let logs = log_sums(lines, x);
    lines.each(|i, line| y[i] = (x[i] - logs[line].0) - logs[line].1);
}

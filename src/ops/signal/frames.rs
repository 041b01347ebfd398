//! Framing, windowing and Fourier transform of signals, and the reverse: two linear maps and their adjoints. Knows
//! slices; knows no graphs.

use crate::kernels::scratch::{self, List, Zeros};
use crate::kernels::simd::vectorised;
use crate::kernels::threads;
use crate::kernels::{Float, spectrum};
use crate::{Error, Result};

/// A sum of windows below this is too small to divide by.
const LEAST: f64 = 1e-11;
/// The most samples of a frame.
const LONGEST: i64 = 1 << 24;
/// Pairs of frames that are transformed together.
const PAIRS: usize = 8;

/// The checked arguments of a short-time Fourier transform.
pub(super) struct Frames {
    /// The window, padded to the length of a transform.
    window: List<f64>,
    /// Samples from one frame to the next.
    stride: usize,
    /// Padding at either end of a signal, in samples.
    pub(super) pad: usize,
    /// True to pad with the mirrored signal, false to pad with zeros.
    reflect: bool,
    /// True for the inverse transform and its adjoint: frequencies are weighted, and sums are divided by the sums of
    /// windows.
    inverse: bool,
}

impl Frames {
    /// Reads the arguments of the transform `op`.
    pub(super) fn new(
        op: &str,
        [window, stride, fft]: [i64; 3],
        window_type: &str,
        center: bool,
        pad_mode: &str,
        inverse: bool,
    ) -> Result<Self> {
        for (arg, value) in [("window_size", window), ("stride", stride), ("fft_size", fft)] {
            if !(1..=LONGEST).contains(&value) {
                return Err(Error::argument(op, arg, "1 to 16,777,216", value));
            }
        }
        if fft < window {
            return Err(Error::argument(
                op,
                "fft_size",
                format!("at least `window_size`, which is {window}"),
                fft,
            ));
        }
        if inverse && fft % stride != 0 {
            return Err(Error::argument(
                op,
                "fft_size",
                format!("a multiple of `stride`, which is {stride}"),
                fft,
            ));
        }
        let wave = match window_type {
            "hanning" => Some((0.5, 0.5)),
            "hamming" => Some((0.54, 0.46)),
            "rectangular" => None,
            other => {
                return Err(Error::argument(
                    op,
                    "window_type",
                    "`hanning`, `hamming` or `rectangular`",
                    other,
                ));
            }
        };
        if !matches!(pad_mode, "constant" | "reflect") {
            return Err(Error::argument(op, "pad_mode", "`constant` or `reflect`", pad_mode));
        }
        let (n, fft) = (window as usize, fft as usize);
        let angle = |i: usize| 2.0 * std::f64::consts::PI * i as f64 / n as f64;
        let weight = |i: usize| wave.map_or(1.0, |(a, b)| a - b * angle(i).cos());
        let before = (fft - n) / 2;
        let window =
            (0..fft).map(|t| if (before..before + n).contains(&t) { weight(t - before) } else { 0.0 });
        Ok(Self {
            window: window.collect(),
            stride: stride as usize,
            pad: if center { fft / 2 } else { 0 },
            reflect: pad_mode == "reflect" && !inverse,
            inverse,
        })
    }

    /// Samples of a frame.
    fn n(&self) -> usize {
        self.window.len()
    }

    /// Frequencies of a frame.
    pub(super) fn bins(&self) -> usize {
        self.n() / 2 + 1
    }

    /// Frames of a signal of `samples` samples, if it is long enough.
    pub(super) fn frames(&self, samples: usize) -> Option<usize> {
        if self.reflect && self.pad > 0 && samples <= self.pad {
            return None;
        }
        Some((samples + 2 * self.pad).checked_sub(self.n())? / self.stride + 1)
    }

    /// Samples of the signal that `frames` frames make.
    pub(super) fn samples(&self, frames: usize) -> Option<usize> {
        ((frames.checked_sub(1)?) * self.stride + self.n()).checked_sub(2 * self.pad)
    }

    /// The weight of frequency `k`.
    fn weight(&self, k: usize) -> f64 {
        match self.inverse {
            false => 1.0,
            true if k == 0 || 2 * k == self.n() => 1.0 / self.n() as f64,
            true => 2.0 / self.n() as f64,
        }
    }

    /// One over the sum of squared windows at each sample of a padded signal. Ones for the forward transform.
    pub(super) fn scales(&self, op: &str, samples: usize, frames: usize) -> Result<Zeros<f64>> {
        let mut sums = Zeros::new(samples + 2 * self.pad);
        if !self.inverse {
            sums.fill(1.0);
            return Ok(sums);
        }
        for f in 0..frames {
            let part = &mut sums[f * self.stride..];
            part.iter_mut().zip(&*self.window).for_each(|(sum, w)| *sum += w * w);
        }
        if let Some(at) = sums[self.pad..self.pad + samples].iter().position(|sum| *sum < LEAST) {
            return Err(Error::Value(format!(
                "{op}: NOLA(Nonzero Overlap Add) condition is not met. Expected windows whose squares add up to more \
                 than zero at each sample, got {:e} at sample {at}",
                sums[self.pad + at]
            )));
        }
        sums.iter_mut().for_each(|sum| *sum = if *sum < LEAST { 0.0 } else { 1.0 / *sum });
        Ok(sums)
    }

    /// The sample of a signal at position `s` of the padded signal. None for a zero.
    fn source(&self, s: usize, samples: usize) -> Option<usize> {
        match s.checked_sub(self.pad) {
            Some(i) if i < samples => Some(i),
            _ if !self.reflect => None,
            Some(i) => (2 * (samples - 1)).checked_sub(i),
            None => Some(self.pad - s),
        }
    }

    /// The frequencies of the frames of `count` signals. `re` and `im` have `bins` x `frames` numbers for each signal.
    pub(super) fn analyse<T: Float>(
        &self,
        x: &[T],
        (count, samples, frames): (usize, usize, usize),
        scales: &[f64],
        re: &mut [T],
        im: &mut [T],
    ) {
        let (n, bins) = (self.n(), self.bins());
        assert!(x.len() == count * samples && re.len() == count * bins * frames && im.len() == re.len());
        let transform = spectrum::lines::<T>(n, false);
        let weights: List<T> = (0..bins).map(|k| T::of(0.5 * self.weight(k))).collect();
        let window: List<T> = self.window.iter().map(|w| T::of(*w)).collect();
        threads::columns_mut([re, im], [bins, frames], 2 * PAIRS, 1, |signal, some, [mut re, mut im]| {
            scratch::with(2 * n * PAIRS, |buffer: &mut [T]| {
                let x = &x[signal * samples..(signal + 1) * samples];
                // One complex transform computes two frames, as its real and imaginary parts.
                let buffer = &mut buffer[..2 * n * some.len().div_ceil(2)];
                for (line, f) in buffer.chunks_exact_mut(2 * n).zip(some.clone().step_by(2)) {
                    let two = f + 1 < some.end;
                    if !(two && self.cut_two(x, &window, f, line)) {
                        line.fill(T::ZERO);
                        (f..some.end.min(f + 2))
                            .for_each(|f| self.cut(x, scales, f, line, (f - some.start) % 2));
                    }
                }
                transform(buffer);
                for (k, half) in weights.iter().enumerate() {
                    let (a, b) = (2 * k, 2 * if k == 0 { 0 } else { n - k });
                    let numbers = re.row(k).chunks_mut(2).zip(im.row(k).chunks_mut(2));
                    for ((re, im), line) in numbers.zip(buffer.chunks_exact(2 * n)) {
                        let (a, b) = (&line[a..a + 2], &line[b..b + 2]);
                        (re[0], im[0]) = ((a[0] + b[0]) * *half, (a[1] - b[1]) * *half);
                        if let ([_, re], [_, im]) = (re, im) {
                            (*re, *im) = ((a[1] + b[1]) * *half, (b[0] - a[0]) * *half);
                        }
                    }
                }
            });
        });
    }

    /// Fast path: writes frames `f` and `f + 1` of a signal to the real and imaginary parts of a line. Returns false if
    /// a frame contains padding or is scaled.
    fn cut_two<T: Float>(&self, x: &[T], window: &[T], f: usize, line: &mut [T]) -> bool {
        let n = window.len();
        let start = |f: usize| (f * self.stride).checked_sub(self.pad).filter(|start| start + n <= x.len());
        let (false, Some(first), Some(second)) = (self.inverse, start(f), start(f + 1)) else { return false };
        let (first, second) = (&x[first..first + n], &x[second..second + n]);
        vectorised(
            #[inline(always)]
            move || {
                let numbers = first.iter().zip(second).zip(window);
                for (to, ((a, b), w)) in line.as_chunks_mut::<2>().0.iter_mut().zip(numbers) {
                    *to = [*a * *w, *b * *w];
                }
            },
        );
        true
    }

    /// Writes frame `f` of a signal to every second element of `line`, starting at element `first`.
    fn cut<T: Float>(&self, x: &[T], scales: &[f64], f: usize, line: &mut [T], first: usize) {
        let start = f * self.stride;
        for (t, w) in self.window.iter().enumerate().filter(|(_, w)| **w != 0.0) {
            let v = self.source(start + t, x.len()).map_or(T::ZERO, |i| x[i]);
            line[2 * t + first] = v * T::of(w * scales[start + t]);
        }
    }

    /// The adjoint of [`Frames::analyse`]: writes or adds the sums of windowed frames, computed from their frequencies,
    /// to `x`.
    pub(super) fn synthesise<T: Float>(
        &self,
        re: &[T],
        im: &[T],
        (count, samples, frames): (usize, usize, usize),
        scales: &[f64],
        x: &mut [T],
    ) {
        let (n, bins) = (self.n(), self.bins());
        assert!(x.len() == count * samples && re.len() == count * bins * frames && im.len() == re.len());
        let transform = spectrum::lines::<T>(n, true);
        let weights: List<T> = (0..bins).map(|k| T::of(0.5 * self.weight(k))).collect();
        threads::row_ranges_mut(x, samples, 1, |some, x| {
            let mut sums = Zeros::<T>::new(samples + 2 * self.pad);
            for (signal, x) in some.zip(x.chunks_exact_mut(samples)) {
                sums.fill(T::ZERO);
                scratch::with(2 * n * PAIRS, |buffer: &mut [T]| {
                    for first in (0..frames).step_by(2 * PAIRS) {
                        buffer.fill(T::ZERO);
                        let last = frames.min(first + 2 * PAIRS);
                        for (k, half) in weights.iter().enumerate() {
                            let row = (signal * bins + k) * frames;
                            let numbers =
                                re[row + first..row + last].iter().zip(&im[row + first..row + last]);
                            let (a, b) = (2 * k, 2 * if k == 0 { 0 } else { n - k });
                            for (i, (re, im)) in numbers.enumerate() {
                                let (real, imaginary) = (*re * *half, *im * *half);
                                let line = &mut buffer[i / 2 * 2 * n..][..2 * n];
                                let mut add = |at: usize, v: T| line[at] = line[at] + v;
                                if i.is_multiple_of(2) {
                                    [(a, real), (a + 1, imaginary), (b, real), (b + 1, -imaginary)]
                                } else {
                                    [(a, -imaginary), (a + 1, real), (b, imaginary), (b + 1, real)]
                                }
                                .into_iter()
                                .for_each(|(at, v)| add(at, v));
                            }
                        }
                        transform(buffer);
                        for f in first..last {
                            let line = &buffer[(f - first) / 2 * 2 * n + (f - first) % 2..];
                            for (t, w) in self.window.iter().enumerate().filter(|(_, w)| **w != 0.0) {
                                let s = f * self.stride + t;
                                sums[s] = sums[s] + line[2 * t] * T::of(w * scales[s]);
                            }
                        }
                    }
                });
                x.copy_from_slice(&sums[self.pad..self.pad + samples]);
                if self.reflect {
                    for s in (0..self.pad).chain(self.pad + samples..samples + 2 * self.pad) {
                        if let Some(i) = self.source(s, samples) {
                            x[i] = x[i] + sums[s];
                        }
                    }
                }
            }
        });
    }
}

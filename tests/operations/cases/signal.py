"""Rows of Fourier transforms."""

from __future__ import annotations

import numpy as np

from . import Row, sample


def transform(f):
    """Returns the reference of `fft` or `ifft`, with real and imaginary parts on the last axis."""

    def reference(x, signal_ndim, normalized=False):
        """NumPy reference of the transform."""
        axes = tuple(range(x.ndim - 1 - signal_ndim, x.ndim - 1))
        y = f(x[..., 0] + 1j * x[..., 1], axes=axes, norm="ortho" if normalized else "backward")
        return np.stack([y.real, y.imag], -1)

    return reference


def window(window_size, fft_size, window_type):
    """Returns a window, padded on both sides to `fft_size`."""
    t = np.arange(window_size)
    wave = {"hanning": (0.5, 0.5), "hamming": (0.54, 0.46), "rectangular": (1.0, 0.0)}[window_type]
    before = (fft_size - window_size) // 2
    shape = wave[0] - wave[1] * np.cos(2 * np.pi * t / window_size)
    return np.pad(shape, (before, fft_size - window_size - before))


def squares(w, stride, frames):
    """Returns the squared window, overlap-added for all frames: the divisor of the inverse transform."""
    y = np.zeros((frames - 1) * stride + w.size)
    for i in range(frames):
        y[i * stride : i * stride + w.size] += w * w
    return y


def weights(fft_size):
    """Returns how often the spectrum of a real signal holds each frequency, over the number of samples."""
    k = np.arange(fft_size // 2 + 1)
    return np.where((k == 0) | (2 * k == fft_size), 1.0, 2.0)[:, None] / fft_size


def stft(
    x, window_size, stride, fft_size, window_type="hanning", center=True, pad_mode="reflect", as_istft_backward=False
):
    """NumPy reference of `stft`."""
    w, half = window(window_size, fft_size, window_type), fft_size // 2
    if center:
        x = np.pad(x, ((0, 0), (half, half)), mode="constant" if as_istft_backward else pad_mode)
    frames = (x.shape[1] - fft_size) // stride + 1
    if as_istft_backward:
        sums = squares(w, stride, frames)
        x = x[:, : sums.size] * np.where(sums > 1e-11, 1 / np.maximum(sums, 1e-300), 0)
    parts = np.stack([x[:, i * stride : i * stride + fft_size] for i in range(frames)], 1) * w
    y = np.fft.rfft(parts).transpose(0, 2, 1)
    if as_istft_backward:
        y = y * weights(fft_size)
    return y.real, y.imag


def istft(
    y_r,
    y_i,
    window_size,
    stride,
    fft_size,
    window_type="hanning",
    center=True,
    pad_mode="reflect",
    as_stft_backward=False,
):
    """NumPy reference of `istft`."""
    w, half = window(window_size, fft_size, window_type), fft_size // 2
    frames = y_r.shape[2]
    angle = 2 * np.pi * np.outer(np.arange(half + 1), np.arange(fft_size)) / fft_size
    weight = np.full((half + 1, 1), 1.0)
    if not as_stft_backward:
        weight[:] = 2 / fft_size
        weight[[0, half]] = 1 / fft_size
    parts = np.einsum("bkf,kt->bft", y_r, weight * np.cos(angle)) - np.einsum(
        "bkf,kt->bft", y_i, weight * np.sin(angle)
    )
    x = np.zeros((y_r.shape[0], (frames - 1) * stride + fft_size))
    for i in range(frames):
        x[:, i * stride : i * stride + fft_size] += parts[:, i] * w
    n = x.shape[1] - 2 * half if center else x.shape[1]
    at = half if center else 0
    if not as_stft_backward:
        x[:, at : at + n] /= squares(w, stride, frames)[at : at + n]
    y = x[:, at : at + n].copy()
    if as_stft_backward and center and pad_mode == "reflect":
        y[:, 1 : half + 1] += x[:, :half][:, ::-1]
        y[:, n - half - 1 : n - 1] += x[:, half + n :][:, ::-1]
    return y


def parts(frames, fft_size, batch=2):
    """Returns random real and imaginary parts of spectra, shape (batch, fft_size / 2 + 1, frames)."""
    return sample(batch, fft_size // 2 + 1, frames), sample(batch, fft_size // 2 + 1, frames, seed=1)


ROWS: list[Row] = [
    *(
        Row(name, (sample(*x),), transform(f), args, tolerance=5e-6)
        for name, f in (("fft", np.fft.fftn), ("ifft", np.fft.ifftn))
        for x, args in (
            ((2, 5, 2), {"signal_ndim": 1}),
            ((8, 2), {"signal_ndim": 1, "normalized": True}),
            ((2, 3, 4, 2), {"signal_ndim": 2}),
            ((2, 3, 4, 2), {"signal_ndim": 3, "normalized": True}),
            ((1, 2), {"signal_ndim": 1}),
            ((0, 3, 2), {"signal_ndim": 1}),
        )
    ),
    *(
        Row("stft", (sample(*x),), stft, args, tolerance=5e-6)
        for x, args in (
            ((2, 12), {"window_size": 4, "stride": 2, "fft_size": 4}),
            ((1, 12), {"window_size": 3, "stride": 2, "fft_size": 8, "window_type": "hamming"}),
            ((2, 13), {"window_size": 5, "stride": 3, "fft_size": 5, "window_type": "rectangular", "center": False}),
            ((2, 13), {"window_size": 4, "stride": 2, "fft_size": 6, "pad_mode": "constant"}),
            ((2, 12), {"window_size": 4, "stride": 2, "fft_size": 4, "as_istft_backward": True}),
            ((1, 1), {"window_size": 1, "stride": 1, "fft_size": 1, "window_type": "rectangular"}),
            ((0, 12), {"window_size": 4, "stride": 2, "fft_size": 4}),
        )
    ),
    *(
        Row("istft", parts(*y), istft, args, tolerance=5e-6)
        for y, args in (
            ((7, 4), {"window_size": 4, "stride": 2, "fft_size": 4}),
            (
                (5, 8, 1),
                {"window_size": 6, "stride": 2, "fft_size": 8, "window_type": "hamming", "pad_mode": "constant"},
            ),
            ((4, 4), {"window_size": 4, "stride": 2, "fft_size": 4, "window_type": "rectangular", "center": False}),
            ((7, 4), {"window_size": 4, "stride": 2, "fft_size": 4, "as_stft_backward": True}),
            ((7, 4, 0), {"window_size": 4, "stride": 2, "fft_size": 4}),
        )
    ),
]

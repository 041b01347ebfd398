"""Sounds in files, by the package soundfile: the extra `audio`.

Knows samples and channels; knows no data sets.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .._core import ArgumentError, Error
from .packages import needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

__all__ = ["AudioError", "checked_samples", "read_audio", "resized"]

KINDS = {"PCM_U8": "int16", "PCM_S8": "int16", "PCM_16": "int16", "PCM_24": "int32", "PCM_32": "int32"}
"""The element type that soundfile reads each subtype of whole numbers as. Others are `float32`."""


class AudioError(Error, ValueError):
    """A file has no sound that can be read."""


def read_audio(
    path: str | os.PathLike[str] | IO[bytes],
    channel_first: bool = False,
    raw_format_param: Mapping[str, int] | None = None,
) -> NDArray[Any]:
    """Reads a sound: see `kinnor.utils.audio_utils.auread`."""
    if isinstance(path, (str, os.PathLike)):
        with Path(path).open("rb") as file:
            return read_audio(file, channel_first, raw_format_param)
    name = getattr(path, "name", "")
    if isinstance(name, str) and name.lower().endswith(".raw"):
        samples = _bare(path, raw_format_param)
    else:
        soundfile = needed("auread", "soundfile", "sounds", "audio")
        try:
            with soundfile.SoundFile(path) as found:
                samples = found.read(dtype=KINDS.get(found.subtype, "float32"), always_2d=True)
                if found.subtype in ("PCM_U8", "PCM_S8"):
                    samples = ((samples >> 8) + 128).astype(np.uint8)
        except RuntimeError as error:  # soundfile's own derives from it.
            raise AudioError(f"auread: expected a sound, got {name or path}: {error}") from error
    return np.ascontiguousarray(samples.T) if channel_first else samples


def _bare(file: IO[bytes], told: Mapping[str, int] | None) -> NDArray[Any]:
    """Returns the samples of a file without a header, shape (n, channels), in the format that the caller describes."""
    wanted = {"sample_width", "channels", "frame_rate"}
    kinds = {1: np.uint8, 2: np.int16, 4: np.int32}
    if told is None or not wanted <= set(told) or told["sample_width"] not in kinds or told["channels"] < 1:
        raise ArgumentError(
            f"auread: expected `raw_format_param` with sample_width (1, 2 or 4), channels and frame_rate, got {told!r}"
        )
    content = file.read()
    kind = np.dtype(kinds[told["sample_width"]])
    if len(content) % (kind.itemsize * told["channels"]):
        raise AudioError(f"auread: expected whole samples of {told['channels']} channels, got {len(content)} bytes")
    return np.frombuffer(content, kind.newbyteorder("<")).astype(kind).reshape(-1, told["channels"])


def resized(audio_arr: NDArray[Any], size: Sequence[int], channel_first: bool = False) -> NDArray[Any]:
    """Returns a sound of another size: see `kinnor.utils.audio_utils.auresize`."""
    samples = checked_samples("auresize", audio_arr, channel_first)
    if len(size) != 2 or min(size) < 1:
        raise ArgumentError(f"auresize: expected `size` to be samples and channels above 0, got {size!r}")
    n, channels = size
    if channels != samples.shape[1] and 1 not in (channels, samples.shape[1]):
        raise ArgumentError(f"auresize: expected to go from or to one channel, got {samples.shape[1]} to {channels}")
    values = samples.astype(np.float64)
    if channels == 1:
        values = values.mean(axis=1, keepdims=True)
    if n != len(values):
        at = np.arange(n) * (len(values) / n)
        values = np.stack([np.interp(at, np.arange(len(values)), one) for one in values.T], axis=1)
    values = np.broadcast_to(values, (n, channels))
    found = (np.floor(values) if samples.dtype.kind in "iu" else values).astype(samples.dtype)
    return np.ascontiguousarray(found.T) if channel_first else found


def checked_samples(op: str, samples: Any, channel_first: bool) -> NDArray[Any]:
    """Returns samples with the channels last; refuses all but an array of samples and channels."""
    if not isinstance(samples, np.ndarray) or samples.ndim != 2 or 0 in samples.shape:
        told = samples.shape if isinstance(samples, np.ndarray) else type(samples).__name__
        raise ArgumentError(f"{op}: expected an array of samples and channels, got {told}")
    return samples.T if channel_first else samples

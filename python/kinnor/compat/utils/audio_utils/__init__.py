"""Reads and writes audio files, under NNabla's names. The package soundfile does the work: the extra `audio`.

Knows samples and channels, but no data sets.
"""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ...._core import ArgumentError
from ....files.atomic import replacing
from ....files.audio import AudioError, checked_samples, read_audio, resized
from ....files.packages import needed
from .backend_manager import backend_manager
from .common import rescale_intensity

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import DTypeLike, NDArray

__all__ = [
    "AudioError",
    "auload",
    "auread",
    "auresize",
    "ausave",
    "auwrite",
    "backend_manager",
    "get_available_backends",
    "get_backend",
    "minmax_auto_scale",
    "rescale_intensity",
    "set_backend",
]

WRITTEN = {"uint8": "PCM_U8", "int16": "PCM_16", "int32": "PCM_32", "float32": "FLOAT"}
"""The file format of samples by element type."""


def set_backend(backend: str) -> None:
    """Set the package that reads and writes audio: `"soundfile"`, or NNabla's `"pydub"` as a synonym.

    Args:
        backend: The name.

    Raises:
        ArgumentError: If the name is unknown.
    """
    backend_manager.backend = backend


def get_backend() -> str:
    """The name of the backend, as it was set.

    >>> get_backend()
    'soundfile'
    """
    return backend_manager.backend


def get_available_backends() -> list[str]:
    """The backends that can be set; empty if soundfile is not installed."""
    return backend_manager.get_available_backends()


def auread(
    path: str | os.PathLike[str] | IO[bytes],
    channel_first: bool = False,
    raw_format_param: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> NDArray[Any]:
    """Read an audio file: WAV, FLAC, OGG, AIFF, another format of soundfile, or raw samples.

    Args:
        path: Path, or a file open for reading bytes.
        channel_first: Whether the result has shape (channels, samples) instead of (samples, channels).
        raw_format_param: Format of a file `.raw`: `sample_width` in bytes (1, 2 or 4), `channels`, and `frame_rate` in
            samples per second.
        **kwargs: Not accepted.

    Returns:
        The samples: `uint8` (centered at 128) for 8 bits, `int16` for 16, `int32` for 24 and 32, else `float32`.

    Raises:
        AudioError: If the file has no audio that can be read.
        ArgumentError: If the file has raw samples and `raw_format_param` is missing or wrong.
        OSError: If the file cannot be opened.
        ImportError: If soundfile is not installed.

    Examples:
        >>> import io
        >>> file = io.BytesIO(np.array([[0, 1], [2, 3]], np.int16).tobytes())
        >>> file.name = "a.raw"
        >>> auread(file, raw_format_param={"sample_width": 2, "channels": 2, "frame_rate": 8000})
        array([[0, 1],
               [2, 3]], dtype=int16)
    """
    if kwargs:
        raise ArgumentError(f"auread: expected no other arguments, got {sorted(kwargs)}")
    return read_audio(path, channel_first, raw_format_param)


auload = auread


def ausave(
    path: str | os.PathLike[str],
    audio_arr: NDArray[Any],
    channel_first: bool = False,
    frame_rate: int = 48000,
    **kwargs: Any,
) -> None:
    """Write an audio file, whole or not at all.

    Args:
        path: The file. Its extension selects the format: `.wav`, `.flac`, `.ogg` or another of soundfile's.
        audio_arr: The samples, shape (samples, channels): `uint8` centered at 128, `int8`, `int16`, `uint16` (treated
            as `int16`, as in NNabla), `int32`, or `float32` from -1 to 1.
        channel_first: Whether the shape is (channels, samples).
        frame_rate: Samples per second.
        **kwargs: Not accepted.

    Raises:
        ArgumentError: If the samples have another type, or if the extension is unknown.
        AudioError: If the format cannot store these samples.
        OSError: If the file cannot be written.
        ImportError: If soundfile is not installed.
    """
    if kwargs:
        raise ArgumentError(f"ausave: expected no other arguments, got {sorted(kwargs)}")
    samples = checked_samples("ausave", audio_arr, channel_first)
    if samples.dtype.itemsize > 4:
        raise ArgumentError(f"ausave: expected samples of at most 4 bytes, got {samples.dtype}; cast them before")
    soundfile = needed("ausave", "soundfile", "sounds", "audio")
    kind = Path(path).suffix.lstrip(".").upper()
    kind = {"AIF": "AIFF", "OGA": "OGG"}.get(kind, kind)
    if kind not in soundfile.available_formats():
        raise ArgumentError(f"ausave: expected an audio file extension such as .wav, got {os.fspath(path)!r}")
    if samples.dtype == np.int8:
        samples = (samples.astype(np.int16) + 128).astype(np.uint8)
    elif samples.dtype.kind == "u" and samples.dtype.itemsize > 1:
        samples = samples.view(f"i{samples.dtype.itemsize}")
    subtype = WRITTEN.get(str(samples.dtype))
    if samples.dtype == np.uint8:
        samples = (samples.astype(np.int16) - 128) << 8
    if subtype is None:
        raise ArgumentError(f"ausave: expected one of the types {list(WRITTEN)}, got {samples.dtype}")
    if not soundfile.check_format(kind, subtype):
        subtype = None  # The default of the format, such as Vorbis.
    content = io.BytesIO()
    try:
        soundfile.write(content, samples, frame_rate, subtype=subtype, format=kind)
    except (RuntimeError, TypeError, ValueError) as error:
        raise AudioError(f"ausave: expected samples that {kind} has, got {samples.dtype}: {error}") from error
    # soundfile does not report the system's error, so open the file here first.
    with replacing(path, durable=False) as temporary:
        Path(temporary).write_bytes(content.getbuffer())


auwrite = ausave


def auresize(audio_arr: NDArray[Any], size: Sequence[int], channel_first: bool = False, **kwargs: Any) -> NDArray[Any]:
    """Resample audio to another number of samples and channels.

    Samples are interpolated linearly: the sampling rate becomes `n / n_samples` of the old rate. Several channels are
    averaged into one; one channel is repeated.

    Args:
        audio_arr: The samples, shape (samples, channels).
        size: Samples and channels of the result.
        channel_first: Whether the shapes are (channels, samples); `size` keeps its order.
        **kwargs: Not accepted.

    Returns:
        The samples, of the same type.

    Raises:
        ArgumentError: If both numbers of channels are above one and differ, or if an argument is wrong.

    Examples:
        >>> auresize(np.array([[0, 10], [100, 110], [200, 210], [300, 310]], np.int16), (2, 1)).tolist()
        [[5], [205]]
    """
    if kwargs:
        raise ArgumentError(f"auresize: expected no other arguments, got {sorted(kwargs)}")
    return resized(audio_arr, size, channel_first)


def minmax_auto_scale(audio_arr: NDArray[Any], out_datatype: DTypeLike) -> NDArray[Any]:
    """Scale audio to the full range of a type.

    Args:
        audio_arr: The samples. If all are equal, zeros become the smallest value and others the largest.
        out_datatype: The type, with at most 4 bytes.

    Raises:
        ArgumentError: If the type is larger.

    Examples:
        >>> minmax_auto_scale(np.array([-1.0, 0.0, 1.0]), np.uint8)
        array([  0, 127, 255], dtype=uint8)
    """
    kind = np.dtype(out_datatype)
    if kind.itemsize > 4:
        raise ArgumentError(f"minmax_auto_scale: expected a type of at most 4 bytes, got {kind}")
    ends = np.finfo(kind) if kind.kind == "f" else np.iinfo(kind)
    values = np.asarray(audio_arr, np.float64)
    return rescale_intensity(values, values.min(), values.max(), float(ends.min), float(ends.max), kind)

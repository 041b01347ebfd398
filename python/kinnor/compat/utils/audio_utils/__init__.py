"""Sounds from files and to files, by NNabla's names: the package soundfile reads and writes them.

Knows samples and channels; knows no data sets. The extra `audio` installs soundfile.
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
"""How samples of a type stand in a file."""


def set_backend(backend: str) -> None:
    """Say what reads and writes sounds: `"soundfile"`; NNabla's `"pydub"` is taken for it.

    Args:
        backend: The name.

    Raises:
        ArgumentError: If it is another name.
    """
    backend_manager.backend = backend


def get_backend() -> str:
    """The name of what reads and writes sounds, as it was set.

    >>> get_backend()
    'soundfile'
    """
    return backend_manager.backend


def get_available_backends() -> list[str]:
    """The names that `set_backend` takes: none if soundfile is not installed."""
    return backend_manager.get_available_backends()


def auread(
    path: str | os.PathLike[str] | IO[bytes],
    channel_first: bool = False,
    raw_format_param: Mapping[str, int] | None = None,
    **kwargs: Any,
) -> NDArray[Any]:
    """Read a sound from a file: WAV, FLAC, OGG, AIFF or what else soundfile knows, or bare samples.

    Args:
        path: Path, or a file open for reading bytes.
        channel_first: Whether the result has shape (channels, samples) instead of (samples, channels).
        raw_format_param: What is in a file `.raw` of bare samples: `sample_width`, the bytes of a sample (1, 2 or 4),
            `channels`, and `frame_rate`, samples a second.
        **kwargs: None.

    Returns:
        The samples: `uint8` of 8 bits, around 128, `int16` of 16 bits, `int32` of 24 and 32 bits, `float32` of others.

    Raises:
        AudioError: If the file has no sound that can be read.
        ArgumentError: If it has bare samples, and it is not said which.
        OSError: If it cannot be opened.
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
    """Write a sound to a file, whole or not at all.

    Args:
        path: The file; its ending says the format: `.wav`, `.flac`, `.ogg` or what else soundfile knows.
        audio_arr: The samples, shape (samples, channels): `uint8` around 128, `int8`, `int16`, `uint16` (taken for
            `int16`, as in NNabla), `int32`, or `float32` from -1 to 1.
        channel_first: Whether the shape is (channels, samples).
        frame_rate: Samples a second.
        **kwargs: None.

    Raises:
        ArgumentError: If the samples are others, or the ending is not that of a format.
        AudioError: If the format has no such samples.
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
        raise ArgumentError(f"ausave: expected an ending of a format such as .wav, got {os.fspath(path)!r}")
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
        subtype = None  # The format's own, such as that of Vorbis.
    content = io.BytesIO()
    try:
        soundfile.write(content, samples, frame_rate, subtype=subtype, format=kind)
    except (RuntimeError, TypeError, ValueError) as error:
        raise AudioError(f"ausave: expected samples that {kind} has, got {samples.dtype}: {error}") from error
    # What the system says of the file does not come through soundfile.
    with replacing(path) as temporary:
        Path(temporary).write_bytes(content.getbuffer())


auwrite = ausave


def auresize(audio_arr: NDArray[Any], size: Sequence[int], channel_first: bool = False, **kwargs: Any) -> NDArray[Any]:
    """A sound with another number of samples and channels.

    Values between samples are interpolated linearly: the sound becomes as long as it was at `n / n_samples` of the
    rate. Several channels become one by their mean; one becomes several by repetition.

    Args:
        audio_arr: The samples, shape (samples, channels).
        size: Samples and channels of the result.
        channel_first: Whether the shapes are (channels, samples); `size` keeps its order.
        **kwargs: None.

    Returns:
        The samples, of the same type.

    Raises:
        ArgumentError: If it would make several channels of several others, or if an argument is another one.

    Examples:
        >>> auresize(np.array([[0, 10], [100, 110], [200, 210], [300, 310]], np.int16), (2, 1)).tolist()
        [[5], [205]]
    """
    if kwargs:
        raise ArgumentError(f"auresize: expected no other arguments, got {sorted(kwargs)}")
    return resized(audio_arr, size, channel_first)


def minmax_auto_scale(audio_arr: NDArray[Any], out_datatype: DTypeLike) -> NDArray[Any]:
    """A sound stretched to all the values of a type.

    Args:
        audio_arr: The samples; of a sound of one value, zeros become the smallest value and others the largest.
        out_datatype: The type, of at most 4 bytes.

    Raises:
        ArgumentError: If it is a larger type.

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

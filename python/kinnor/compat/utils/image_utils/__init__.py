"""Reads, writes and resizes image files, under NNabla's names. Pillow does the work, and pypng for 16-bit PNG.

Defines NNabla's arguments; the backend handles pixels. The extra `image` installs both packages.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import numpy as np

from .backend_events.common import rescale_pixel_intensity
from .backend_manager import backend_manager

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

__all__ = [
    "backend_manager",
    "get_available_backends",
    "get_backend",
    "imload",
    "imread",
    "imresize",
    "imsave",
    "imwrite",
    "minmax_auto_scale",
    "rescale_pixel_intensity",
    "set_backend",
]


def set_backend(backend: str) -> None:
    """Set the package that reads and writes images.

    Args:
        backend: `"PngBackend"` or `"pypng"`, the default, which supports everything here; or `"PilBackend"` or `"pil"`,
            which writes only 8 bits. Names of NNabla's other backends (cv2, dicom) are accepted with a log message and
            select the default.

    Raises:
        ArgumentError: If the name is unknown.
    """
    backend_manager.set_backend(backend)


def get_backend() -> str:
    """The name of the current backend.

    >>> get_backend()
    'PngBackend'
    """
    return backend_manager.get_backend()


def get_available_backends() -> list[str]:
    """The names of the available backends.

    >>> get_available_backends()
    ['PilBackend', 'PngBackend']
    """
    return backend_manager.get_available_backends()


def imread(
    path: str | os.PathLike[str] | IO[bytes],
    grayscale: bool = False,
    size: tuple[int, int] | None = None,
    interpolate: str = "bilinear",
    channel_first: bool = False,
    as_uint16: bool = False,
    num_channels: int = -1,
    **kwargs: Any,
) -> NDArray[Any]:
    """Read an image from a file.

    Args:
        path: Path, or a file open for reading bytes.
        grayscale: Whether to convert colours to grey.
        size: Width and height of the result; by default the image's.
        interpolate: Interpolation for resizing: nearest, box, bilinear, hamming,
            bicubic or lanczos.
        channel_first: Whether the result has shape (channels, height, width) instead of (height, width, channels).
        as_uint16: Whether to read 16 bits, from 0 to 65535; 8-bit values are multiplied by 256. Otherwise the result is
            `uint8`, and 16-bit values lose the lower 8 bits.
        num_channels: Channels of the result: 3 or 4 for colours; 0 (no channel axis), 1, 3 or 4 for grey. By default
            the image's, without a channel axis for grey.
        **kwargs: `return_palette_indices`: whether to read the palette indices of an image instead of its colours.

    Returns:
        The pixels, shape (height, width) or (height, width, channels).

    Raises:
        ImageError: If the file is not an image.
        ArgumentError: If an argument has a wrong value.
        OSError: If the file cannot be opened.
        ImportError: If Pillow is not installed, or pypng for a .png of 16 bits.

    Examples:
        >>> import io
        >>> from PIL import Image
        >>> file = io.BytesIO()
        >>> Image.new("RGB", (4, 2), (255, 128, 0)).save(file, "PNG")
        >>> imread(file).shape, imread(file, size=(8, 6), channel_first=True).shape, imread(file, grayscale=True).shape
        ((2, 4, 3), (3, 6, 8), (2, 4))
    """
    return backend_manager.get_best_backend(path, "load").imread(
        path, grayscale, size, interpolate, channel_first, as_uint16, num_channels, **kwargs
    )


imload = imread


def imsave(
    path: str | os.PathLike[str],
    img: NDArray[Any],
    channel_first: bool = False,
    as_uint16: bool = False,
    auto_scale: bool = True,
    **kwargs: Any,
) -> None:
    """Write an image to a file, whole or not at all.

    Args:
        path: The file. Its extension selects the format.
        img: The pixels, shape (height, width) or (height, width, channels) with 1 to 4 channels. `uint8` and `uint16`
            are written unchanged; other types have values from 0 to 1.
        channel_first: Whether the shape is (channels, height, width).
        as_uint16: Whether to write 16 bits (.png; .tif and .pgm only in grey). `uint8` is multiplied by 256.
        auto_scale: Whether to multiply by the largest value; required for types with values from 0 to 1.
        **kwargs: Not accepted.

    Raises:
        ArgumentError: If the pixels have a wrong type or shape, or if the extension is unknown.
        ImageError: If the format cannot store these pixels.
        OSError: If the file cannot be written.
        ImportError: If Pillow is not installed, or pypng for 16 bits in .png.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     imsave(f"{folder}/grey.png", np.array([[0.0, 0.5, 1.0]]))
        ...     imread(f"{folder}/grey.png").tolist()
        [[0, 127, 255]]
    """
    backend_manager.get_best_backend(path, "save").imsave(path, img, channel_first, as_uint16, auto_scale, **kwargs)


imwrite = imsave


def imresize(
    img: NDArray[Any],
    size: tuple[int, int],
    interpolate: str = "bilinear",
    channel_first: bool = False,
    **kwargs: Any,
) -> NDArray[Any]:
    """Resize an image.

    Args:
        img: The pixels, shape (height, width) or (height, width, channels).
        size: Width and height of the result.
        interpolate: Interpolation: nearest, box, bilinear, hamming, bicubic or lanczos.
        channel_first: Whether the shapes are (channels, height, width).
        **kwargs: Not accepted.

    Returns:
        The pixels: `uint8` and `uint16` keep their type, other types become `float32`.

    Raises:
        ArgumentError: If an argument has a wrong value.
        ImportError: If Pillow is not installed.

    Examples:
        >>> imresize(np.zeros((2, 3, 3), np.uint8), (6, 4)).shape
        (4, 6, 3)
    """
    return backend_manager.get_best_backend(img, "resize").imresize(img, size, interpolate, channel_first, **kwargs)


def minmax_auto_scale(img: NDArray[Any], as_uint16: bool) -> NDArray[Any]:
    """Scale an image to the full range of its type: the minimum becomes 0, the maximum 255 or 65535.

    Args:
        img: The pixels. If all are equal, zeros become 0 and others the largest value.
        as_uint16: Whether the result is `uint16` instead of `uint8`.

    Examples:
        >>> minmax_auto_scale(np.array([-1.0, 0.0, 1.0]), as_uint16=False)
        array([  0, 127, 255], dtype=uint8)
    """
    kind = np.uint16 if as_uint16 else np.uint8
    values = np.asarray(img, np.float64)
    return rescale_pixel_intensity(
        values,
        input_low=float(values.min()),
        input_high=float(values.max()),
        output_low=0,
        output_high=np.iinfo(kind).max,
        output_type=kind,
    )

"""The image backend with Pillow."""

from __future__ import annotations

import os
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from ....._core import ArgumentError
from .....files.images import channels_of, check_channels, converted, opened_image, resized, write_image
from .common import check_type_and_cast_if_necessary, upscale_pixel_intensity
from .image_utils_backend import ImageUtilsBackend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["PilBackend"]

INTERPOLATIONS = ("nearest", "box", "bilinear", "hamming", "bicubic", "lanczos")

FORMATS = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".ppm", ".pgm", ".webp", "")


class PilBackend(ImageUtilsBackend):
    """Reads, resizes and writes 8-bit images with Pillow. The arguments are those in `kinnor.utils.image_utils`."""

    def accept(self, path: Any, ext: str, operator: str) -> str:
        """Tell whether Pillow supports an operation on a file.

        Args:
            path: The file.
            ext: Extension of the file.
            operator: `load`, `save` or `resize`.

        Returns:
            `OK`, or `NG`.
        """
        return "OK" if operator == "resize" or ext.lower() in FORMATS else "NG"

    @staticmethod
    def convert_pil(pil_image: Any, grayscale: bool, num_channels: int, return_palette_indices: bool) -> Any:
        """Convert a Pillow image to the requested mode.

        Args:
            pil_image: The image.
            grayscale: Whether the result is grey.
            num_channels: Number of channels; -1 keeps the image's number.
            return_palette_indices: Whether to keep the palette of an image.
        """
        return converted(pil_image, grayscale, num_channels, return_palette_indices)

    @staticmethod
    def pil_image_to_ndarray(
        pil_image: Any, grayscale: bool, num_channels: int, return_palette_indices: bool
    ) -> NDArray[Any]:
        """The pixels of a Pillow image.

        Args:
            pil_image: The image.
            grayscale: Whether the result is grey.
            num_channels: Number of channels; -1 keeps the image's number, 0 has no channel axis.
            return_palette_indices: Whether to return palette indices.
        """
        return channels_of(pil_image, grayscale, num_channels, return_palette_indices)

    @staticmethod
    def pil_resize_from_ndarray(arr: NDArray[Any], size: tuple[int, int], resample: str) -> NDArray[Any]:
        """Resize pixels.

        Args:
            arr: The pixels, shape (height, width[, channels]).
            size: Width and height.
            resample: Name of the interpolation.
        """
        values = arr if arr.dtype in (np.uint8, np.uint16) else arr.astype(np.float32)
        width, height = size
        return resized(values, height, width, resample)

    def imread(
        self,
        path: str | os.PathLike[str] | IO[bytes],
        grayscale: bool = False,
        size: tuple[int, int] | None = None,
        interpolate: str = "bilinear",
        channel_first: bool = False,
        as_uint16: bool = False,
        num_channels: int = -1,
        return_palette_indices: bool = False,
    ) -> NDArray[Any]:
        """Read an image.

        Args:
            path: Path, or a file open for reading bytes.
            grayscale: Whether to convert colours to grey.
            size: Width and height of the result.
            interpolate: Interpolation, as in `image_utils.imread`.
            channel_first: Whether the channels are the first axis.
            as_uint16: Whether to read 16 bits.
            num_channels: Channels of the result.
            return_palette_indices: Whether to read palette indices.
        """
        check_channels(grayscale, num_channels)
        _check_size("imread", size)
        _check_interpolation("imread", interpolate)
        if as_uint16:
            pixels = self._read_wide(path, grayscale, num_channels)
        else:
            with opened_image("imread", path) as found:
                pixels = self.pil_image_to_ndarray(found, grayscale, num_channels, return_palette_indices)
        if size is not None and tuple(size) != pixels.shape[1::-1]:
            pixels = self.pil_resize_from_ndarray(pixels, (size[0], size[1]), interpolate)
        return pixels.transpose(2, 0, 1) if channel_first and pixels.ndim == 3 else pixels

    def _read_wide(self, path: str | os.PathLike[str] | IO[bytes], grayscale: bool, num_channels: int) -> NDArray[Any]:
        """Read an image as 16-bit pixels."""
        with opened_image("imread", path) as found:
            if not found.mode.startswith("I"):
                pixels = self.pil_image_to_ndarray(found, grayscale, num_channels, False)
                return upscale_pixel_intensity(pixels, as_uint16=True)
            pixels = np.asarray(found).astype(np.uint16)
        return np.repeat(pixels[..., np.newaxis], num_channels, axis=2) if num_channels > 0 else pixels

    def imsave(
        self,
        path: str | os.PathLike[str],
        img: NDArray[Any],
        channel_first: bool = False,
        as_uint16: bool = False,
        auto_scale: bool = True,
    ) -> None:
        """Write an image.

        Args:
            path: The file.
            img: The pixels.
            channel_first: Whether the channels are the first axis.
            as_uint16: Whether to write 16 bits.
            auto_scale: Whether to multiply by the largest value.
        """
        pixels = _pixels("imsave", img, channel_first)
        if pixels.ndim == 3 and not 1 <= pixels.shape[2] <= 4:
            raise ArgumentError(f"imsave: expected 1 to 4 channels, got shape {pixels.shape}")
        if pixels.dtype not in (np.uint8, np.uint16):
            if not auto_scale:
                raise ArgumentError(f"imsave: expected `auto_scale` for pixels of {pixels.dtype}, got auto_scale=False")
            if pixels.size and not (pixels.min() >= 0 and pixels.max() <= 1):
                raise ArgumentError(
                    f"imsave: expected pixels of {pixels.dtype} from 0 to 1, got {pixels.min()} to {pixels.max()}"
                )
        pixels = check_type_and_cast_if_necessary(
            upscale_pixel_intensity(pixels, as_uint16) if auto_scale else pixels, as_uint16
        )
        if pixels.dtype == np.uint16:
            self._write_wide(path, pixels)
        else:
            write_image(path, pixels)

    def _write_wide(self, path: str | os.PathLike[str], pixels: NDArray[Any]) -> None:
        """Refuse 16-bit pixels: this backend writes only 8 bits."""
        raise ArgumentError(
            f"imsave: expected 8 bits for the backend PilBackend, got {pixels.dtype} for {os.fspath(path)!r}; "
            "set_backend('PngBackend') has 16"
        )

    def imresize(
        self,
        img: NDArray[Any],
        size: tuple[int, int],
        interpolate: str = "bilinear",
        channel_first: bool = False,
    ) -> NDArray[Any]:
        """Resize an image.

        Args:
            img: The pixels.
            size: Width and height of the result.
            interpolate: Interpolation, as in `image_utils.imread`.
            channel_first: Whether the channels are the first axis.
        """
        pixels = _pixels("imresize", img, channel_first)
        _check_size("imresize", size)
        _check_interpolation("imresize", interpolate)
        found = self.pil_resize_from_ndarray(pixels, (size[0], size[1]), interpolate)
        return found.transpose(2, 0, 1) if channel_first and found.ndim == 3 else found


def _pixels(op: str, img: Any, channel_first: bool) -> NDArray[Any]:
    """Check an image. Returns it with the channels last."""
    if not isinstance(img, np.ndarray):
        raise ArgumentError(f"{op}: expected `img` to be an array, got {type(img).__name__}")
    if img.ndim not in (2, 3) or 0 in img.shape:
        raise ArgumentError(f"{op}: expected an image of 2 or 3 axes, got shape {img.shape}")
    return img.transpose(1, 2, 0) if channel_first and img.ndim == 3 else img


def _check_size(op: str, size: Sequence[int] | None) -> None:
    """Raise ArgumentError if a size is not a width and a height."""
    if size is None:
        return
    if not isinstance(size, (list, tuple)) or len(size) != 2 or min(size) < 1:
        raise ArgumentError(f"{op}: expected `size` to be a width and a height above 0, got {size!r}")


def _check_interpolation(op: str, interpolate: str) -> None:
    """Raise ArgumentError if an interpolation is unknown."""
    if interpolate not in INTERPOLATIONS:
        raise ArgumentError(f"{op}: expected `interpolate` to be one of {INTERPOLATIONS}, got {interpolate!r}")

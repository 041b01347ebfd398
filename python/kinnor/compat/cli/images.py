"""`kinnor create_image_classification_dataset`: makes data sets of images."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ...cli import wrote
from ...data.data_source import DataError
from ...files.atomic import replacing
from ...files.images import ImageError, read_image, resized, write_image
from ...files.progress import Progress

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["EXTENSIONS", "Frame", "add", "add_shaping", "create", "fitted", "frame", "write_rows"]

EXTENSIONS = (".bmp", ".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff")
"""Lower-case extensions of files that count as images."""
GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the luma, by ITU-R BT.601."""


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: Its name.
        parser: The parser of the command.
    """
    parser.add_argument("-i", "--sourcedir", required=True, help="folder with a folder of images for each class")
    add_shaping(parser)
    return lambda args: create(
        args.sourcedir, args.outdir, (args.channel, args.height, args.width), args.mode,
        [args.file1, *([args.file2] if args.file2 else [])], args.ratio2 if args.file2 else 0, args.shuffle == "true",
    )  # fmt: skip


def add_shaping(parser: argparse.ArgumentParser) -> None:
    """Add the arguments shared by commands that make a CSV data set of images.

    Args:
        parser: The parser of the command.
    """
    parser.add_argument("-o", "--outdir", required=True, help="folder to create for the data set")
    parser.add_argument("-c", "--channel", required=True, type=int, choices=(1, 3), help="channels: 1 (grey) or 3")
    parser.add_argument("-w", "--width", required=True, type=int, help="width of images")
    parser.add_argument("-g", "--height", required=True, type=int, help="height of images")
    parser.add_argument(
        "-m",
        "--mode",
        required=True,
        choices=("trimming", "padding"),
        help="how images of another aspect ratio are fitted",
    )
    parser.add_argument("-s", "--shuffle", required=True, choices=("true", "false"), help="whether to shuffle the rows")
    parser.add_argument("-f1", "--file1", required=True, help="name of the first CSV file")
    parser.add_argument("-r1", "--ratio1", help="percentage of the images in the first file")
    parser.add_argument("-f2", "--file2", help="name of the second CSV file")
    parser.add_argument("-r2", "--ratio2", type=int, default=0, help="percentage of the images in the second file")


def create(
    sourcedir: str,
    outdir: str,
    shape: tuple[int, int, int],
    mode: str,
    files: Sequence[str],
    second: int = 0,
    shuffle: bool = False,
) -> int:
    """Make a CSV data set of folders with images, one folder for each class.

    Args:
        sourcedir: Path of the folder that holds the class folders. Classes are numbered by the order of folder names.
        outdir: Path of the folder to create: images of the given shape, and CSV files with columns
            `x:image` and `y:label`.
        shape: Channels (1 or 3), height and width of the images.
        mode: How images get the aspect ratio: `trimming` crops them, `padding` adds a border.
        files: Name of one CSV file, or names of two.
        second: Percentage of the images for the second file.
        shuffle: Whether to shuffle the rows, in the same order each time.

    Returns:
        Number of images.

    Raises:
        DataError: If there are no images, or if one cannot be read.
        OSError: If a file cannot be read or written.
    """
    source, target = Path(sourcedir), Path(outdir)
    if source.resolve() == target.resolve():
        raise DataError(f"expected a data set folder other than the image folder, got {outdir!r}")
    if min(shape) < 1 or not 0 <= second <= 100:
        raise DataError(f"expected lengths above 0 and a ratio up to 100, got {shape} and {second}")
    classes = sorted(path for path in source.iterdir() if path.is_dir())
    found = [[p for p in sorted(folder.iterdir()) if p.suffix.lower() in EXTENSIONS] for folder in classes]
    images = [(path, label) for label, each in enumerate(filter(None, found)) for path in each]
    if not images:
        raise DataError(f"expected folders with images in {sourcedir!r}, got none")
    rows = []
    with Progress(len(images), "images") as bar:
        for number, (path, label) in enumerate(images):
            name = Path(path.parent.name, path.stem + ".png")
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                write_image(target / name, fitted(read_image(path), shape, mode))
            except ImageError as error:
                raise DataError(f"expected an image, got {path}: {error}") from error
            rows.append((f"./{name.as_posix()}", label))
            bar.to(number + 1)
    write_rows([target / file for file in files], ("x:image", "y:label"), rows, second, shuffle)
    wrote((target / file for file in files), f"{len(rows)} images")
    return len(rows)


def write_rows(
    files: Sequence[Path], header: Sequence[str], rows: list[tuple[Any, ...]], second: int, shuffle: bool
) -> None:
    """Write the rows of a data set into one CSV file or two.

    Args:
        files: Their paths.
        header: The names of the columns.
        rows: The rows.
        second: Percentage of the rows for the second file.
        shuffle: Whether to shuffle the rows, in the same order each time.

    Raises:
        OSError: If a file cannot be written.
    """
    if shuffle:
        random.Random(0).shuffle(rows)
    n_first = len(rows) * (100 - second) // 100
    for file, part in zip(files, (rows[:n_first], rows[n_first:]), strict=False):
        with replacing(file) as temporary, temporary.open("w", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows([header, *part])


class Frame(NamedTuple):
    """A rectangle of an image in pixels. Pixels outside of the image are black."""

    top: int
    left: int
    height: int
    width: int


def frame(h: int, w: int, height: int, width: int, mode: str) -> Frame:
    """The centered rectangle of an image that has the aspect ratio of another image.

    Args:
        h: Height of the image.
        w: Width of the image.
        height: Height of the other.
        width: Width of the other.
        mode: `trimming` for the largest rectangle inside the image, `padding` for the smallest one around it.
    """
    if (h, w) == (height, width):
        return Frame(0, 0, h, w)
    if mode == "trimming":
        rows, columns = min(h, max(w * height // width, 1)), min(w, max(h * width // height, 1))
        return Frame((h - rows) // 2, (w - columns) // 2, rows, columns)
    rows, columns = max(h, w * height // width), max(w, h * width // height)
    return Frame(-((rows - h) // 2), -((columns - w) // 2), rows, columns)


def fitted(pixels: NDArray[Any], shape: tuple[int, int, int], mode: str) -> NDArray[Any]:
    """An 8-bit image converted to another number of channels and another size.

    Args:
        pixels: The image.
        shape: Channels (1 or 3), height and width.
        mode: `trimming` or `padding`, as in `frame`.
    """
    colours, height, width = shape
    if pixels.dtype != np.uint8:
        pixels = (pixels // 257).astype(np.uint8) if pixels.dtype == np.uint16 else np.asarray(pixels, np.uint8)
    if pixels.ndim == 3:
        pixels = pixels[..., :3] if pixels.shape[2] >= 3 else pixels[..., 0]
    h, w = pixels.shape[:2]
    if (h, w) != (height, width):
        part = frame(h, w, height, width, mode)
        above, before = max(-part.top, 0), max(-part.left, 0)
        sides = [(above, max(part.height - h - above, 0)), (before, max(part.width - w - before, 0)), (0, 0)]
        pixels = np.pad(pixels, sides[: pixels.ndim])
        top, left = max(part.top, 0), max(part.left, 0)
        pixels = pixels[top : top + part.height, left : left + part.width]
        pixels = resized(np.ascontiguousarray(pixels), height, width)
    if pixels.ndim == 2 and colours == 3:
        return np.repeat(pixels[..., None], 3, axis=2)
    if pixels.ndim == 3 and colours == 1:
        return np.asarray(pixels @ np.array(GREY), np.uint8)
    return pixels

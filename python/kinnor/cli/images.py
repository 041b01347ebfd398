"""`kinnor create_image_classification_dataset` and `kinnor digits`: data sets of images."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..data.data_source import DataError
from ..files.atomic import replacing
from ..files.images import ImageError, read_image, resized, write_image
from ..files.progress import Progress
from .written import wrote

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

__all__ = ["EXTENSIONS", "Frame", "add", "add_shaping", "create", "fitted", "frame", "write_digits", "write_rows"]

EXTENSIONS = (".bmp", ".jpg", ".jpeg", ".png", ".gif", ".tif", ".tiff")
GREY = (0.299, 0.587, 0.114)
"""How bright red, green and blue are, as ITU-R BT.601 has it."""


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of a command.

    Args:
        name: `create_image_classification_dataset` or `digits`.
        parser: What gets them.
    """
    if name == "digits":
        parser.add_argument("-o", "--outdir", required=True, help="folder for images, which is made")
        return lambda args: wrote(args.outdir, f"{write_digits(args.outdir)} images")
    parser.add_argument("-i", "--sourcedir", required=True, help="folder with a folder of images for each class")
    add_shaping(parser)
    return lambda args: create(
        args.sourcedir, args.outdir, (args.channel, args.height, args.width), args.mode,
        [args.file1, *([args.file2] if args.file2 else [])], args.ratio2 if args.file2 else 0, args.shuffle == "true",
    )  # fmt: skip


def add_shaping(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of a command that makes a CSV data set of images, but for what the images are in.

    Args:
        parser: What gets them.
    """
    parser.add_argument("-o", "--outdir", required=True, help="folder for the data set, which is made")
    parser.add_argument("-c", "--channel", required=True, type=int, choices=(1, 3), help="colours: 1 (grey) or 3")
    parser.add_argument("-w", "--width", required=True, type=int, help="width of images")
    parser.add_argument("-g", "--height", required=True, type=int, help="height of images")
    parser.add_argument("-m", "--mode", required=True, choices=("trimming", "padding"), help="how others fit")
    parser.add_argument("-s", "--shuffle", required=True, choices=("true", "false"), help="whether to mix the rows")
    parser.add_argument("-f1", "--file1", required=True, help="name of the first CSV file")
    parser.add_argument("-r1", "--ratio1", help="per cent of the images in it: what the second leaves")
    parser.add_argument("-f2", "--file2", help="name of the second CSV file")
    parser.add_argument("-r2", "--ratio2", type=int, default=0, help="per cent of the images in it")


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
        sourcedir: Path of the folder with the folders; classes are numbered in the order of their names.
        outdir: Path of the folder for the data set, which is made: images of the shape, and CSV files with columns
            `x:image` and `y:label`.
        shape: Colours (1 or 3), height and width of the images.
        mode: How images of another form are made to fit: `trimming` cuts their sides, `padding` adds to them.
        files: Names of one CSV file or two.
        second: Per cent of the images that are in the second.
        shuffle: Whether to mix the rows; the same way each time.

    Returns:
        How many images there are.

    Raises:
        DataError: If there are no images, or if one cannot be read.
        OSError: If a file cannot be read or written.
    """
    source, target = Path(sourcedir), Path(outdir)
    if source.resolve() == target.resolve():
        raise DataError(f"expected another folder for the data set than that of the images, got {outdir!r}")
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
        second: Per cent of the rows that are in the second.
        shuffle: Whether to mix the rows; the same way each time.

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
    """The part of an image that is wanted, in its pixels; what lies outside of the image is black."""

    top: int
    left: int
    height: int
    width: int


def frame(h: int, w: int, height: int, width: int, mode: str) -> Frame:
    """The part of an image that has the form of another, about its middle.

    Args:
        h: Its height.
        w: Its width.
        height: Height of the other.
        width: Width of the other.
        mode: `trimming` for a part within the image, `padding` for one that has all of it.
    """
    if (h, w) == (height, width):
        return Frame(0, 0, h, w)
    if mode == "trimming":
        rows, columns = min(h, max(w * height // width, 1)), min(w, max(h * width // height, 1))
        return Frame((h - rows) // 2, (w - columns) // 2, rows, columns)
    rows, columns = max(h, w * height // width), max(w, h * width // height)
    return Frame(-((rows - h) // 2), -((columns - w) // 2), rows, columns)


def fitted(pixels: NDArray[Any], shape: tuple[int, int, int], mode: str) -> NDArray[Any]:
    """An image of 8 bits with other colours and lengths.

    Args:
        pixels: The image.
        shape: Colours (1 or 3), height and width.
        mode: How it is made to fit, as `frame` takes it.
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


def write_digits(outdir: str) -> int:
    """Write the digits that come with Kinnor as folders with images, `0` to `9`.

    Args:
        outdir: Path of the folder, which is made.

    Returns:
        How many images there are.

    Raises:
        OSError: If a file cannot be written.
    """
    from ..datasets import digits

    images, labels = digits()
    pixels = np.asarray(images).reshape(len(images), *np.shape(images)[-2:])
    top = float(pixels.max())
    with Progress(len(pixels), "digits") as bar:
        for number, (image, label) in enumerate(zip(pixels, np.ravel(labels), strict=True)):
            folder = Path(outdir, str(int(label)))
            folder.mkdir(parents=True, exist_ok=True)
            write_image(folder / f"{number:04d}.png", np.asarray(image * (255 / top), np.uint8))
            bar.to(number + 1)
    return len(pixels)

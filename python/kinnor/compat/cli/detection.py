"""`kinnor create_object_detection_dataset`: makes a data set of images and the boxes of their objects.

Each image has a text file of the same name with one line for each object: class number, horizontal and vertical center
of the box, width and height. All lengths are relative to the size of the image.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...cli import wrote
from ...data.data_source import DataError
from ...files.images import ImageError, read_image, write_image
from ...files.progress import Progress
from .images import EXTENSIONS, add_shaping, fitted, frame, write_rows

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["add", "anchors_of", "create", "read_boxes"]

MOST_ROUNDS = 1000
"""Limit on the rounds of the clustering of box sizes."""


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: `create_object_detection_dataset`.
        parser: The parser of the command.
    """
    parser.add_argument("-i", "--sourcedir", required=True, help="folder with images, and text files of the same names")
    parser.add_argument("-n", "--num_class", required=True, type=int, help="number of classes")
    parser.add_argument("-a", "--num_anchor", required=True, type=int, help="number of anchors")
    parser.add_argument("-d", "--grid_size", required=True, type=int, help="width and height of a cell in pixels")
    add_shaping(parser)
    return lambda args: create(
        args.sourcedir, args.outdir, (args.channel, args.height, args.width), args.mode, args.num_class,
        args.num_anchor, args.grid_size, [args.file1, *([args.file2] if args.file2 else [])],
        args.ratio2 if args.file2 else 0, args.shuffle == "true",
    )  # fmt: skip


def create(
    sourcedir: str,
    outdir: str,
    shape: tuple[int, int, int],
    mode: str,
    n_classes: int,
    n_anchors: int,
    cell: int,
    files: Sequence[str],
    second: int = 0,
    shuffle: bool = False,
) -> NDArray[np.float64]:
    """Make a CSV data set of images and of the target values of a detector for each cell of a grid.

    An object belongs to the cell that holds its center and to the anchor most similar to its box. The label of each
    anchor and cell is the class of its object, or -1. The region is the center within the cell, from 0 to 1, and the
    logarithms of width and height in cells. The command prints the anchors.

    Args:
        sourcedir: Path of the folder with the images; subfolders are searched.
        outdir: Path of the folder to create: images, labels and regions in `data`, and CSV files
            with columns `x:image`, `y:label` and `r:region`.
        shape: Channels (1 or 3), height and width of the images.
        mode: How images get the aspect ratio: `trimming` crops them, `padding` adds a border.
        n_classes: Number of classes.
        n_anchors: Number of anchors.
        cell: Width and height of a cell in pixels. The width and height of the images must be multiples of it.
        files: Name of one CSV file, or names of two.
        second: Percentage of the images for the second file.
        shuffle: Whether to shuffle the rows, in the same order each time.

    Returns:
        Width and height of each anchor relative to the image, the smallest first.

    Raises:
        DataError: If there are no images or boxes, if one cannot be read, or if lengths do not fit.
        OSError: If a file cannot be read or written.
    """
    source, target = Path(sourcedir), Path(outdir)
    if source.resolve() == target.resolve():
        raise DataError(f"expected a data set folder other than the image folder, got {outdir!r}")
    if min(*shape, n_classes, n_anchors, cell) < 1 or not 0 <= second <= 100:
        raise DataError(f"expected numbers above 0 and a ratio up to 100, got {shape}, {n_anchors}, {cell}, {second}")
    _, height, width = shape
    if width % cell or height % cell:
        raise DataError(f"expected width and height that are multiples of {cell}, got {width} and {height}")
    paths = sorted(path for path in source.rglob("*") if path.suffix.lower() in EXTENSIONS and path.is_file())
    if not paths:
        raise DataError(f"expected images in {sourcedir!r}, got none")
    found = []
    with Progress(len(paths), "images") as bar:
        for number, path in enumerate(paths):
            name = target / "data" / path.relative_to(source).with_suffix(".png")
            name.parent.mkdir(parents=True, exist_ok=True)
            try:
                pixels = read_image(path)
                write_image(name, fitted(pixels, shape, mode))
            except ImageError as error:
                raise DataError(f"expected an image, got {path}: {error}") from error
            found.append(
                (name, _visible_boxes(read_boxes(path.with_suffix(".txt"), n_classes), pixels.shape, shape, mode))
            )
            bar.to(number + 1)
    anchors = anchors_of(np.concatenate([boxes[:, 3:] for _, boxes in found]), n_anchors)
    rows = []
    for name, boxes in found:
        written = [f"./{name.relative_to(target).as_posix()}"]
        labels, regions = _cells(boxes, anchors, height // cell, width // cell)
        for what, values, form in (("label", labels, "%d"), ("region", regions, "%f")):
            file = name.with_name(f"{name.stem}_{what}.csv")
            np.savetxt(file, values.reshape(values.shape[0] * values.shape[1], -1), fmt=form, delimiter=",")
            written.append(f"./{file.relative_to(target).as_posix()}")
        rows.append(tuple(written))
    write_rows([target / file for file in files], ("x:image", "y:label", "r:region"), rows, second, shuffle)
    wrote((target / file for file in files), f"{len(rows)} images")
    for width_of, height_of in anchors:
        print(f"anchor: width {width_of:.6f}, height {height_of:.6f}")
    return anchors


def read_boxes(path: Path, n_classes: int | None = None) -> NDArray[np.float64]:
    """The boxes of the objects in an image.

    Args:
        path: Path of the text file; a missing file means no objects.
        n_classes: Number of classes, if known; every class number must be below it.

    Returns:
        Rows of class, horizontal and vertical center, width and height.

    Raises:
        DataError: If a line is malformed.
        OSError: If the file cannot be read.
    """
    lines = path.read_text().splitlines() if path.is_file() else []
    boxes = np.zeros((0, 5))
    for line in filter(None, map(str.split, lines)):
        try:
            box = np.array(line, np.float64)
        except ValueError:
            box = np.full(1, np.nan)
        known = box.shape == (5,) and np.isfinite(box).all() and box[0] >= 0 and box[0] == int(box[0])
        if not known or (n_classes is not None and box[0] >= n_classes):
            below = "" if n_classes is None else f" below {n_classes}"
            raise DataError(f"expected a class{below} and four numbers in a line of {path}, got {' '.join(line)!r}")
        boxes = np.concatenate([boxes, box[None]])
    return boxes


def _visible_boxes(boxes: NDArray[np.float64], size: tuple[int, ...], shape: tuple[int, int, int], mode: str) -> Any:
    """Boxes relative to the cropped or padded image, clipped to it."""
    h, w = size[:2]
    part = frame(h, w, *shape[1:], mode)
    middles, halves = boxes[:, 1:3] * (w, h), boxes[:, 3:] * (w / 2, h / 2)
    low, high = (
        ((ends - (part.left, part.top)) / (part.width, part.height)).clip(0, 1)
        for ends in (middles - halves, middles + halves)
    )
    shown = (high > low).all(axis=1)
    return np.concatenate([boxes[:, :1], (low + high) / 2, high - low], axis=1)[shown]


def anchors_of(sizes: ArrayLike, n: int) -> NDArray[np.float64]:
    """The anchors: mean box sizes of `n` clusters, by Lloyd's algorithm.

    Args:
        sizes: Rows of width and height.
        n: Number of clusters.

    Returns:
        Rows of width and height, by area; fewer than `n` if there are fewer sizes.

    Raises:
        DataError: If there are no sizes.
    """
    sizes = np.asarray(sizes, np.float64).reshape(-1, 2)
    if not len(sizes):
        raise DataError("expected boxes in texts beside the images, got none")
    classes = np.random.RandomState(0).randint(n, size=len(sizes))
    for _ in range(MOST_ROUNDS):
        means = np.array([sizes[classes == i].mean(axis=0) for i in np.unique(classes)])
        while len(means) < n and (far := _distances(sizes, means).min(axis=0)).any():
            means = np.concatenate([means, sizes[[far.argmax()]]])
        nearest = _distances(sizes, means).argmin(axis=0)
        if np.array_equal(nearest, classes):
            break
        classes = nearest
    return np.asarray(means[means.prod(axis=1).argsort(kind="stable")])


def _distances(sizes: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Squared distances of sizes (columns) to means (rows)."""
    return np.asarray(((sizes[None] - means[:, None]) ** 2).sum(axis=2))


def _cells(
    boxes: NDArray[np.float64], anchors: NDArray[np.float64], rows: int, columns: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Class and region of the target box for each anchor, row and column; class -1 for none."""
    labels = np.full((len(anchors), rows, columns), -1)
    regions = np.zeros((len(anchors), rows, columns, 4))
    for kind, x, y, w, h in boxes:
        column, row = min(int(x * columns), columns - 1), min(int(y * rows), rows - 1)
        # The anchor about the middle of the cell.
        at = np.array([(column + 0.5) / columns, (row + 0.5) / rows])
        low = np.maximum(at - anchors / 2, [x - w / 2, y - h / 2])
        high = np.minimum(at + anchors / 2, [x + w / 2, y + h / 2])
        shared = (high - low).clip(0).prod(axis=1)
        best = int((shared / (anchors.prod(axis=1) + w * h - shared)).argmax())
        labels[best, row, column] = int(kind)
        regions[best, row, column] = x * columns - column, y * rows - row, np.log(w * columns), np.log(h * rows)
    return labels, regions

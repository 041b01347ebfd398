"""`kinnor create_object_detection_dataset`: a data set of images with the boxes of the objects in them.

Beside each image lies a text of its name with a line for each object: the number of its class, the middle of its box,
and its width and height, as parts of those of the image.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.data_source import DataError
from ..files.images import ImageError, read_image, write_image
from ..files.progress import Progress
from .images import EXTENSIONS, add_shaping, fitted, frame, write_rows
from .written import wrote

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from numpy.typing import ArrayLike, NDArray

__all__ = ["add", "anchors_of", "create", "read_boxes"]

MOST_ROUNDS = 1000


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: `create_object_detection_dataset`.
        parser: What gets them.
    """
    parser.add_argument("-i", "--sourcedir", required=True, help="folder with images and texts of their names")
    parser.add_argument("-n", "--num_class", required=True, type=int, help="how many classes there are")
    parser.add_argument("-a", "--num_anchor", required=True, type=int, help="how many sizes of boxes to tell apart")
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
    """Make a CSV data set of images and of what a detector is to find in each cell of a grid.

    For each anchor and cell there is the class of the object whose middle is in the cell, and whose box is most like
    the anchor, or -1; and where its middle is in the cell, from 0 to 1, with the logarithms of its width and height in
    cells. The anchors are printed.

    Args:
        sourcedir: Path of the folder with the images, in folders of any depth.
        outdir: Path of the folder for the data set, which is made: images, labels and regions in `data`, and CSV files
            with columns `x:image`, `y:label` and `r:region`.
        shape: Colours (1 or 3), height and width of the images.
        mode: How images of another form are made to fit: `trimming` cuts their sides, `padding` adds to them.
        n_classes: How many classes there are.
        n_anchors: How many sizes of boxes are told apart.
        cell: Width and height of a cell in pixels, of which those of images are multiples.
        files: Names of one CSV file or two.
        second: Per cent of the images that are in the second.
        shuffle: Whether to mix the rows; the same way each time.

    Returns:
        Width and height of each anchor, as parts of those of the images, the smallest first.

    Raises:
        DataError: If there are no images or boxes, if one cannot be read, or if lengths do not fit.
        OSError: If a file cannot be read or written.
    """
    source, target = Path(sourcedir), Path(outdir)
    if source.resolve() == target.resolve():
        raise DataError(f"expected another folder for the data set than that of the images, got {outdir!r}")
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
            found.append((name, _seen(read_boxes(path.with_suffix(".txt"), n_classes), pixels.shape, shape, mode)))
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
        path: Path of the text; if there is none, there are no objects.
        n_classes: What classes have to be below, if that is known.

    Returns:
        Rows of class, horizontal and vertical middle, width and height.

    Raises:
        DataError: If a line is something else.
        OSError: If the text cannot be read.
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


def _seen(boxes: NDArray[np.float64], size: tuple[int, ...], shape: tuple[int, int, int], mode: str) -> Any:
    """Boxes as parts of the image that is made of one of a size, without what that does not show."""
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
    """Sizes of boxes that others are like: the means of `n` clusters, by Lloyd's algorithm.

    Args:
        sizes: Rows of width and height.
        n: How many.

    Returns:
        Rows of width and height, by area; fewer than `n` if there are not as many sizes.

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
    return np.asarray(((sizes[None] - means[:, None]) ** 2).sum(axis=2))


def _cells(
    boxes: NDArray[np.float64], anchors: NDArray[np.float64], rows: int, columns: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Classes and regions by anchor, row and column."""
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

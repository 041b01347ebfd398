"""`kinnor digits`: writes Kinnor's digits as a folder of images for each class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..datasets import digits
from ..files.images import write_image
from ..files.progress import Progress
from . import wrote

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add", "write_digits"]


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: Its name.
        parser: The parser of the command.
    """
    parser.add_argument("-o", "--outdir", required=True, help="folder for images, which is made")
    return lambda args: wrote(args.outdir, f"{write_digits(args.outdir)} images")


def write_digits(outdir: str) -> int:
    """Write the digits data set as images in the class folders `0` to `9`.

    Args:
        outdir: Path of the folder to create.

    Returns:
        Number of images.

    Raises:
        OSError: If a file cannot be written.
    """
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

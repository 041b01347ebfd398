"""The LeNet of the demo on your own images, in the four IDX files of the MNIST family.

    python examples/lenet_idx.py --data DIR

DIR holds train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each
plain or compressed as NAME.gz.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from lenet import lenet
from tqdm import trange

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor.datasets import read_idx
from kinnor.utils.data_iterator import data_iterator_simple


def load(folder, part):
    """Returns images from 0 to 1 of shape (n, 1, height, width), and labels of shape (n, 1)."""
    arrays = []
    for name in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        compressed = folder / f"{name}.gz"
        arrays.append(read_idx(compressed if compressed.exists() else folder / name))
    images, labels = arrays
    if images.ndim != 3 or labels.shape != (len(images),):
        raise SystemExit(f"{folder}: expected images and one label for each, got {images.shape} and {labels.shape}")
    return images[:, np.newaxis] / np.float32(255), labels[:, np.newaxis].astype(np.int32)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with the four files")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    arguments = parser.parse_args()
    try:
        (images, labels), (test_images, test_labels) = (load(arguments.data, part) for part in ("train", "t10k"))
    except OSError as error:
        raise SystemExit(str(error)) from error
    n_classes = int(labels.max()) + 1

    def graph(n_images):
        """Returns a static graph for `n_images`: inputs, targets, loss and number of errors."""
        x, t = nn.Variable((n_images, *images.shape[1:])), nn.Variable((n_images, 1))
        y = lenet(x, n_classes)
        return x, t, F.mean(F.softmax_cross_entropy(y, t)), F.sum(F.top_n_error(y, t))

    x, t, loss, _ = graph(arguments.batch_size)
    solver = S.Adam(alpha=1e-3)
    solver.set_parameters(nn.get_parameters())
    steps = arguments.epochs * len(images) // arguments.batch_size
    with data_iterator_simple(
        lambda i: (images[i], labels[i]), len(images), arguments.batch_size, shuffle=True
    ) as batches:
        for _ in (progress := trange(steps, desc="training", unit="step")):
            x.d, t.d = batches.next()
            loss.forward(clear_no_need_grad=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            solver.update()
            progress.set_postfix(loss=f"{loss.d:.4f}")

    n_wrong = 0
    for start in range(0, len(test_images), 1000):
        part = slice(start, start + 1000)
        x, t, _, n_errors = graph(len(test_images[part]))
        x.d, t.d = test_images[part], test_labels[part]
        n_errors.forward(clear_buffer=True)
        n_wrong += int(n_errors.d)
    print(f"test accuracy {100 * (1 - n_wrong / len(test_images)):.2f} %")


if __name__ == "__main__":
    main()

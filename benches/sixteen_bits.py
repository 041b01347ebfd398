"""Functions of arrays of 16 bits, beside the same functions in float32: forward, and forward with backward.

    python benches/sixteen_bits.py [--threads 1] [--publish benches/results/sixteen_bits.md] [PART OF A NAME ...]

Each figure is the time divided by float32's, from minima that are measured in turns. Inputs and the gradient of the
output are stored in the type. `small` arrays have 16,384 elements and fit into the cache, `large` ones have a million.
"""

from __future__ import annotations

import argparse
import platform
import time
from math import exp, log
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable

    Shape = tuple[int, ...]
    Case = tuple[Callable[..., nn.Variable], list[Shape]]
    Pair = tuple[Callable[[], object], Callable[[], object]]

TYPES = ("float", "bfloat16", "half")
"""The types, as contexts name them. The first one is the measure of the others."""
SIZES = {"small": ((64, 256), (4, 64, 8, 8)), "large": ((256, 4096), (32, 64, 28, 28))}
"""Shapes of matrices and of images."""


def labels(n: int, classes: int) -> nn.Variable:
    """Returns `n` labels."""
    return nn.Variable.from_numpy_array(np.random.default_rng(2).integers(0, classes, size=(n, 1)))


def batch_normalization(x: nn.Variable, beta: nn.Variable, gamma: nn.Variable) -> nn.Variable:
    """Normalizes by the statistics of the batch, with running statistics of its own."""
    mean, variance = (nn.Variable.from_numpy_array(np.ones(beta.shape, np.float32)) for _ in range(2))
    return F.batch_normalization(x, beta, gamma, mean, variance, batch_stat=True)


def cases(matrix: Shape, image: Shape) -> dict[str, Case]:
    """Returns functions by name, each with the shapes of its inputs."""
    rows, columns = matrix
    row, column, channel = (1, columns), (rows, 1), (1, image[1], 1, 1)
    unary = ("relu", "sigmoid", "tanh", "gelu", "exp", "swish")
    found: dict[str, Case] = {name: (getattr(F, name), [matrix]) for name in unary}
    found |= {
        "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), [matrix]),
        "mul_scalar": (lambda x: F.mul_scalar(x, 1.5), [matrix]),
        **{name: (getattr(F, name), [matrix, matrix]) for name in ("add2", "mul2", "maximum2")},
        "add2 of a row": (F.add2, [matrix, row]),
        "add2 of a column": (F.add2, [matrix, column]),
        "mul2 of a row": (F.mul2, [matrix, row]),
        "prelu": (F.prelu, [image, (image[1],)]),
        "where": (lambda a, b: F.where(F.greater_scalar(a, 0.0), a, b), [matrix, matrix]),
        **{name: (getattr(F, name), [matrix, matrix]) for name in ("squared_error", "huber_loss")},
        "sigmoid_cross_entropy": (F.sigmoid_cross_entropy, [matrix, matrix]),
        "softmax_cross_entropy": (lambda x: F.softmax_cross_entropy(x, labels(rows, columns), axis=1), [matrix]),
        "sum of rows": (lambda x: F.sum(x, axis=1), [matrix]),
        "sum of columns": (lambda x: F.sum(x, axis=0), [matrix]),
        "mean": (F.mean, [matrix]),
        "max of rows": (lambda x: F.max(x, axis=1), [matrix]),
        "softmax": (lambda x: F.softmax(x, axis=1), [matrix]),
        "layer_normalization": (lambda x, b, g: F.layer_normalization(x, b, g, batch_axis=0), [matrix, row, row]),
        "batch_normalization": (batch_normalization, [image, channel, channel]),
        "group_normalization": (lambda x, b, g: F.group_normalization(x, b, g, 8), [image, channel, channel]),
        "max_pooling": (lambda x: F.max_pooling(x, (2, 2)), [image]),
        "average_pooling": (lambda x: F.average_pooling(x, (2, 2)), [image]),
        "global_average_pooling": (F.global_average_pooling, [image]),
        "dropout": (lambda x: F.dropout(x, 0.5), [matrix]),
        "transpose": (lambda x: F.transpose(x, (1, 0)), [matrix]),
        "concatenate": (lambda a, b: F.concatenate(a, b, axis=1), [matrix, matrix]),
        "embed": (lambda w: F.embed(labels(2 * rows, rows), w), [matrix]),
        "depthwise_convolution": (
            lambda x, w: F.depthwise_convolution(x, w, pad=(1, 1)),
            [image, (image[1], 3, 3)],
        ),
    }
    return found


def made(case: Case, kind: str) -> Pair:
    """Returns a forward run, and a forward run with a backward run, of a static graph in a type."""
    function, shapes = case
    rng = np.random.default_rng(3)
    with nn.context_scope(nn.Context([f"cpu:{kind}"])):
        leaves = [leaf(rng.normal(size=shape)) for shape in shapes]
        y = function(*leaves)
        y.persistent = True
        gy = leaf(rng.normal(size=y.shape)).data

    def step() -> None:
        """Runs both ways, with new gradients."""
        y.forward()
        for x in leaves:
            x.grad.zero()
        y.backward(gy)

    return y.forward, step


def leaf(array: np.ndarray) -> nn.Variable:
    """Returns a leaf with these numbers, stored in the type of the context."""
    stored = F.mul_scalar(nn.Variable.from_numpy_array(array.astype(np.float32)), 1.0)
    stored.forward()
    v = nn.Variable(array.shape, need_grad=True)
    v.data = stored.data
    return v


def ratios(runs: dict[str, Callable[[], object]], rounds: int) -> list[float]:
    """Returns the time of each further type divided by the time of the first."""
    least = dict.fromkeys(TYPES, float("inf"))
    first = runs[TYPES[0]]
    first()
    start = time.perf_counter()
    first()
    number = max(1, int(0.002 / (time.perf_counter() - start)))
    for _ in range(rounds):
        for kind, run in runs.items():
            run()
            start = time.perf_counter()
            for _ in range(number):
                run()
            least[kind] = min(least[kind], (time.perf_counter() - start) / number)
    return [least[kind] / least[TYPES[0]] for kind in TYPES[1:]]


def table(parts: list[str], rounds: int) -> list[str]:
    """Measures all functions with one of these parts in their name, and returns the lines of a table."""
    lines = ["| Function | Arrays | bfloat16 | with backward | half | with backward |", "|---|---|---|---|---|---|"]
    all_ratios: list[list[float]] = []
    for size, shapes in SIZES.items():
        for name, case in cases(*shapes).items():
            if parts and not any(part in name for part in parts):
                continue
            pairs = {kind: made(case, kind) for kind in TYPES}
            forward, both = (ratios({kind: pair[i] for kind, pair in pairs.items()}, rounds) for i in range(2))
            figures = [forward[0], both[0], forward[1], both[1]]
            all_ratios.append(figures)
            lines.append(f"| {name} | {size} | " + " | ".join(f"{v:.2f}" for v in figures) + " |")
            print(lines[-1], flush=True)
    means = [exp(sum(map(log, column)) / len(column)) for column in zip(*all_ratios, strict=True)]
    lines.append("| geometric mean | | " + " | ".join(f"{v:.2f}" for v in means) + " |")
    print(lines[-1])
    return lines


def main() -> None:
    """Prints the table, and writes it to a file if asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", help="only functions with one of these in their name")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--machine", default=platform.processor() or platform.machine(), help="its name, for the file")
    parser.add_argument("--publish", type=Path, help="the file to be written")
    args = parser.parse_args()
    nn.set_num_threads(args.threads)
    lines = table(args.parts, args.rounds)
    if args.publish is not None:
        threads = "one thread" if args.threads == 1 else f"{args.threads} threads"
        title = (
            f"# Functions of 16 bits\n\n{args.machine}, {threads}, {time.strftime('%B %Y')}. Times relative to float32."
        )
        size = "Small arrays have 16,384 elements, large ones a million or more."
        args.publish.write_text(f"{title}\n{size}\n\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()

"""Products with quantized weights in ONNX models, compared with onnxruntime on one thread.

    python benches/onnx_products.py             # prints a table
    python benches/onnx_products.py --write     # also writes benches/results/onnx_products.md

The operators are `MatMulNBits` with 4 and 8 bits in blocks of 32, and `DynamicQuantizeLinear` with `MatMulInteger`.
The runtimes take turns. A figure is the minimum of the processor time of all calls. A ratio below 1 means that Kinnor
is faster.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches.onnx_files import session_of
from benches.peers.published import machine
from benches.peers.report import table

import kinnor as nn
import kinnor.onnx

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

RNG = np.random.default_rng(0)
ROWS = (1, 4, 16, 64)
BLOCK = 32
TURN = 0.1
"""Seconds of a turn."""

RESULTS = Path(__file__).parent / "results/onnx_products.md"


def model(nodes: Sequence[onnx.NodeProto], arrays: Mapping[str, np.ndarray], size: int) -> onnx.ModelProto:
    """Returns a model from `x` to `y`, which have any number of rows."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", size]) for name in "xy")
    initializers = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(
        helper.make_graph(nodes, "product", [x], [y], initializers), opset_imports=opsets, ir_version=9
    )


def of_blocks(size: int, bits: int, accuracy_level: int) -> onnx.ModelProto:
    """Returns a product with weights that have a scale for each block. Level 4 permits inputs of 8 bits."""
    arrays = {
        "levels": RNG.integers(0, 256, (size, size // BLOCK, BLOCK * bits // 8), dtype=np.uint8),
        "scales": RNG.uniform(0.001, 0.011, (size, size // BLOCK)).astype(np.float32),
    }
    sizes = {"K": size, "N": size, "bits": bits, "block_size": BLOCK, "accuracy_level": accuracy_level}
    node = helper.make_node("MatMulNBits", ["x", *arrays], ["y"], domain="com.microsoft", **sizes)
    return model([node], arrays, size)


def dynamic(size: int) -> onnx.ModelProto:
    """Returns a product of 8-bit levels, which are found in each call for its input."""
    arrays = {
        "levels": RNG.integers(-127, 128, (size, size), dtype=np.int8),
        "zero": np.array(0, np.int8),
        "scale": np.array(0.01, np.float32),
    }
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["x_levels", "x_scale", "x_zero"]),
        helper.make_node("MatMulInteger", ["x_levels", "levels", "x_zero", "zero"], ["sums"]),
        helper.make_node("Cast", ["sums"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x_scale", "scale"], ["both"]),
        helper.make_node("Mul", ["numbers", "both"], ["y"]),
    ]
    return model(nodes, arrays, size)


PRODUCTS: dict[str, Callable[[], onnx.ModelProto]] = {
    "4 bits": lambda: of_blocks(4096, 4, 0),
    "4 bits, level 4": lambda: of_blocks(4096, 4, 4),
    "8 bits": lambda: of_blocks(4096, 8, 0),
    "8 bits, level 4": lambda: of_blocks(4096, 8, 4),
    "dynamic": lambda: dynamic(4096),
    "dynamic, 1024": lambda: dynamic(1024),
}


def ratio(path: Path, rows: int, seconds: float) -> float:
    """Returns our time over onnxruntime's. Raises ValueError if the outputs differ."""
    session, ours = session_of(path, 1), kinnor.onnx.load(path)
    x = RNG.standard_normal((rows, session.get_inputs()[0].shape[1])).astype(np.float32)
    runs = (lambda: ours(x=x), lambda: session.run(None, {"x": x}))
    found, (wanted,) = (run() for run in runs)
    apart = float(np.abs(np.asarray(found) - wanted).max() / np.abs(wanted).max())
    if apart > 0.01:
        raise ValueError(f"{path.stem}: expected equal outputs, got a difference of {apart} of the largest")
    least = [math.inf, math.inf]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or math.isinf(least[1]):
        for i, run in enumerate(runs):
            turn = time.perf_counter() + TURN
            while time.perf_counter() < turn:
                begun = time.process_time()
                run()
                least[i] = min(least[i], time.process_time() - begun)
    return least[0] / least[1]


def main() -> None:
    """Measures and prints all products."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a row is measured")
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    nn.set_num_threads(1)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for name, made in PRODUCTS.items():
            path = Path(folder) / f"{name}.onnx"
            onnx.save(made(), path)
            lines.append([name, *(f"{ratio(path, rows, options.seconds):.2f}" for rows in ROWS)])
    text = table(["Product", *map(str, ROWS)], lines)
    print(text)
    if options.write:
        now = datetime.now(timezone.utc)
        RESULTS.write_text(
            "# Products with quantized weights in ONNX models\n\n"
            f"Made by `python benches/onnx_products.py --write` on {machine()}, {now.day} {now:%B %Y}.\n"
            "Processor time relative to ONNX Runtime, one thread. Weights have 4096 x 4096 numbers, or 1024 x 1024.\n"
            "The columns are numbers of rows of the input.\n"
            "Products of 4 and 8 bits are `MatMulNBits` with blocks of 32. With level 4, both libraries round the\n"
            "input to 8 bits.\n"
            "Dynamic products are `DynamicQuantizeLinear` and `MatMulInteger`.\n\n"
            f"{text}\n"
        )


if __name__ == "__main__":
    main()

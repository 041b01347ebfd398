"""Prints, as JSON, digests of results: one of large arrays, and one of each operation of the table.

A program that runs once for each instruction set. It fails if the bits depend on the number of threads, the
memory cache or a fork.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parents[1]))
import numpy as np
from support import TABLE, call, differentiate, smooth, variables

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable


class Digest:
    """A digest of functions of large arrays and their gradients."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(7)
        self.bits = hashlib.sha256()

    def normal(self, *shape: int) -> np.ndarray:
        """Returns standard normal numbers in float32."""
        return self.random.standard_normal(shape).astype(np.float32)

    def show(self, f: Callable[..., nn.Variable], *arrays: np.ndarray) -> None:
        """Adds the value of `f` at these arrays and its gradients to the digest."""
        xs = [nn.Variable.from_numpy_array(a, need_grad=a.dtype.kind == "f") for a in arrays]
        y = f(*xs)
        y.forward()
        y.backward(self.random.standard_normal(y.shape))
        for a in [y.d] + [x.g for x in xs if x.need_grad]:
            self.bits.update(np.ascontiguousarray(a).tobytes())


def without_products() -> str:
    """Digest of functions without sums of products."""
    digest = Digest()
    show, random = digest.show, digest.random
    for n in (1, 33, 70_001):
        x = digest.normal(n) * 3
        positive = np.abs(x) + np.float32(0.1)
        for f in (F.exp, F.tanh, F.sigmoid, F.gelu, F.erf, F.sin, F.cos, F.tan, F.softplus, F.elu, F.relu, F.mish):
            show(f, x)
        show(F.asin, np.tanh(x))
        show(F.log, positive)
        show(F.pow2, positive, x)
        show(F.div2, x, positive)
        show(F.sum, x)
        show(F.max, x)
    for shape in ((3, 5), (300, 40), (64, 1030)):
        x = digest.normal(*shape)
        row, column = x[:1].copy(), x[:, :1].copy()
        labels = random.integers(0, shape[1], (shape[0], 1))
        show(F.mul2, x, row)
        show(F.add2, column, x)
        for axis in (0, 1):
            show(lambda v, axis=axis: F.sum(v, axis), x)
            show(lambda v, axis=axis: F.max(v, axis), x)
            show(lambda v, axis=axis: F.softmax(v, axis), x)
            show(lambda v, axis=axis: F.log_softmax(v, axis), x)
        show(F.softmax_cross_entropy, x, labels)
        show(F.layer_normalization, x, row, row)
        show(lambda v: F.dropout(v, 0.3, seed=5), x)
    images = digest.normal(3, 6, 17, 18)
    channels = digest.normal(1, 6, 1, 1)
    show(lambda v: F.max_pooling(v, (2, 2)), images)
    show(lambda v: F.average_pooling(v, (3, 3), (1, 1), pad=(1, 1)), images)
    show(lambda x, b, g: F.group_normalization(x, b, g, 2), images, channels, channels)
    return digest.bits.hexdigest()


def of_products() -> str:
    """Digest of functions with sums of products, whose bits depend on the instruction set."""
    digest = Digest()
    for m, k, n in ((1, 700, 300), (130, 257, 90), (256, 64, 300)):
        digest.show(F.affine, digest.normal(m, k), digest.normal(k, n), digest.normal(n))
    digest.show(F.batch_matmul, digest.normal(6, 40, 70), digest.normal(6, 70, 50))
    x, wide, deep = digest.normal(2, 16, 24, 24), digest.normal(24, 16, 3, 3), digest.normal(16, 5, 5)
    digest.show(lambda x, w: F.convolution(x, w, pad=(1, 1)), x, wide)
    digest.show(lambda x, w: F.convolution(x, w, stride=(2, 2)), x, wide)
    digest.show(lambda x, w: F.depthwise_convolution(x, w, pad=(2, 2)), x, deep)
    return digest.bits.hexdigest()


def of_table() -> dict[str, str]:
    """Returns, by name of the operation, a digest of outputs and gradients of all its rows."""
    digests = {}
    for name, rows in TABLE.items():
        bits = hashlib.sha256()
        for row in rows:
            nn.seed(3)
            ys = call(row, variables(row, need_grad=False))
            for y in ys:
                y.forward()
            arrays = [y.d for y in ys] + (differentiate(row) if smooth(row) else [])
            for a in arrays:
                bits.update(np.ascontiguousarray(a).tobytes())
        digests[name] = bits.hexdigest()
    return digests


def in_child(f: Callable[[], Any]) -> Any:
    """Runs `f` in a forked child. Returns its result, passed as JSON."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        with os.fdopen(write, "w") as file:
            json.dump(f(), file)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        text = file.read()
    assert os.waitpid(child, 0)[1] == 0
    return json.loads(text)


def of_large() -> tuple[str, str]:
    """Returns both digests of functions of large arrays."""
    return without_products(), of_products()


def main() -> None:
    """Compares digests across threads, cleared caches and forks, then prints them."""
    large = {}
    is_best = not os.environ.get("KINNOR_ISA")
    for n in range(1, 9) if is_best else (1, 8):  # on lower instruction sets only the extremes
        nn.set_num_threads(n)
        if n < 8:
            large[f"{n} threads"] = of_large()
    nn.clear_memory_cache()
    large["8 threads, after clear_memory_cache, in a fork"] = tuple(in_child(of_large))
    assert len(set(large.values())) == 1, f"bits depend on where they are computed: {large}"
    table = of_table()
    nn.clear_memory_cache()
    for where, again in (("clear_memory_cache", of_table()), ("fork", in_child(of_table))) if is_best else ():
        differ = [name for name, bits in table.items() if again[name] != bits]
        assert not differ, f"bits are others after {where}: {differ}"
    print(json.dumps({"without products": large["1 threads"][0], "table": table}))


if __name__ == "__main__":
    main()

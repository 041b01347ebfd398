"""Scratch memory of kernels counts towards the memory limit.

If it cannot be allocated, `MemoryError` is raised and the process continues.
"""

import os
import subprocess
import sys

import pytest

BEGIN = """
import warnings
import numpy as np
import kinnor as nn, kinnor.functions as F

warnings.simplefilter("error")
rng = np.random.RandomState(0)
N = 1 << 20

def real(*shape):
    return nn.Variable.from_numpy_array(rng.uniform(0.5, 1.5, shape).astype(np.float32), need_grad=True)

def whole(high, *shape):
    return nn.Variable.from_numpy_array(rng.randint(0, high, shape))

def fill():
    "Takes all memory that is left, but for less than a kernel needs."
    nn.clear_memory_cache()
    taken = []
    for bytes in (8 << 20, 1 << 20, 128 << 10):
        while True:
            array = nn.NdArray((bytes // 4,))
            try:
                array.data = 1.0
                array.data
            except MemoryError:
                break
            taken.append(array)
    return taken
"""

RUN = """
y = CASE
inputs = y.parent.inputs
kernel = (lambda: y.forward()) if WHAT == "forward" else (lambda: y.backward(1.0))
def results():
    found = [y] if WHAT == "forward" else []
    return [v.d.copy() for v in found] + [v.g.copy() for v in inputs if WHAT == "backward" and v.need_grad]
def zero():
    for v in inputs:
        if WHAT == "backward" and v.need_grad:
            v.g[...] = 0
if WHAT == "backward":
    y.forward()
    zero()
    kernel()
    expected = results()
    zero()
else:
    y.d = 0
    expected = None
taken = fill()
try:
    kernel()
except MemoryError as error:
    assert "cannot allocate" in str(error), error
else:
    raise AssertionError("there was memory for the kernel")
del taken
nn.clear_memory_cache()
if WHAT == "backward":
    y.forward()
    for v in inputs:
        if v.need_grad:
            v.grad.zero()
kernel()
for got, want in zip(results(), expected or results()):
    np.testing.assert_array_equal(got, want)
print("lives on")
"""

CASES = {
    "sort": ("forward", "F.sort(real(N), axis=0)"),
    "max": ("forward", "F.max(real(N, 2), axis=1)"),
    "scattered axes": ("forward", "F.sum(real(64, 64, 64, 4), axis=(0, 2))"),
    "gather": ("forward", "F.gather(real(1000), whole(1000, N))"),
    "gather_nd": ("forward", "F.gather_nd(real(1000), whole(1000, 1, N))"),
    "embed": ("forward", "F.embed(whole(1000, N), real(1000, 1))"),
    "max_pooling": ("forward", "F.max_pooling(real(1, 1, 2048, 1024), (2, 2))"),
    "softmax_cross_entropy": ("forward", "F.softmax_cross_entropy(real(N, 2), whole(2, N, 1))"),
    "interpolate": ("forward", "F.interpolate(real(1, 1, N // 4), output_size=(N,), mode='linear')"),
    "layer_normalization": ("forward", "F.layer_normalization(real(N, 2), None, None)"),
    "weight_normalization": ("forward", "F.weight_normalization(real(N, 1), real(N))"),
    "random_erase": ("forward", "F.random_erase(real(1, 1, 2048, 1024))"),
    "mul_n": ("backward", "F.mul_n(real(N), real(N))"),
    "prod": ("backward", "F.prod(real(N, 2), axis=1)"),
    "cumprod": ("backward", "F.cumprod(real(N), axis=0)"),
}
"""By name: the run that allocates (`forward` or `backward`), and the call to run without enough memory."""


@pytest.mark.parametrize("case", CASES)
def test_a_kernel_without_memory_raises_and_the_process_continues(case: str) -> None:
    what, call = CASES[case]
    program = f"{BEGIN}\nWHAT = {what!r}\n{RUN.replace('CASE', call)}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "KINNOR_MEMORY_LIMIT": str(96 << 20)},
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "lives on\n"), done.stderr

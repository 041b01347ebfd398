"""Lower sets of instructions: the same operations, and where no products are summed up the same bits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

DIGEST = """
import hashlib
import numpy as np
import kinnor as nn
import kinnor.functions as F

rng = np.random.default_rng(7)
digest = hashlib.sha256()

def show(f, *arrays):
    xs = [nn.Variable.from_numpy_array(a, need_grad=a.dtype.kind == "f") for a in arrays]
    y = f(*xs)
    y.forward()
    y.backward(rng.standard_normal(y.shape))
    for a in [y.d] + [x.g for x in xs if x.need_grad]:
        digest.update(np.ascontiguousarray(a).tobytes())

for n in (1, 33, 70_001):
    x = rng.standard_normal(n).astype(np.float32) * 3
    positive = np.abs(x) + np.float32(0.1)
    for f in (F.exp, F.tanh, F.sigmoid, F.gelu, F.erf, F.sin, F.cos, F.tan, F.softplus, F.elu, F.relu, F.mish):
        show(f, x)
    show(F.log, positive)
    show(F.pow2, positive, x)
    show(F.div2, x, positive)
    show(F.sum, x)
    show(F.max, x)
for shape in ((3, 5), (300, 40), (64, 1030)):
    x = rng.standard_normal(shape).astype(np.float32)
    row, column = x[:1].copy(), x[:, :1].copy()
    labels = rng.integers(0, shape[1], (shape[0], 1))
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
images = rng.standard_normal((3, 6, 17, 18)).astype(np.float32)
channels = rng.standard_normal((1, 6, 1, 1)).astype(np.float32)
show(lambda v: F.max_pooling(v, (2, 2)), images)
show(lambda v: F.average_pooling(v, (3, 3), (1, 1), pad=(1, 1)), images)
show(lambda x, b, g: F.group_normalization(x, b, g, 2), images, channels, channels)
print(digest.hexdigest())
"""


def run(arguments: list[str], **variables: str) -> str:
    environment = os.environ | {"KINNOR_NUM_THREADS": "1"} | variables
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("isa", ["avx2", "portable"])
def test_operations_are_right_with_lower_instructions(isa):
    run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(TESTS / "test_operations.py")], KINNOR_ISA=isa)


def test_bits_do_not_depend_on_instructions_or_threads():
    digests = {isa: run(["-c", DIGEST], KINNOR_ISA=isa) for isa in ("", "avx2", "portable")}
    digests["3 threads"] = run(["-c", DIGEST], KINNOR_NUM_THREADS="3")
    assert len(set(digests.values())) == 1, digests

"""Gradients as functions under NNabla's names, in a process of their own: importing them renames the library."""

import subprocess
import sys

import pytest

BEGIN = """
import numpy as np
import kinnor.compat.nnabla
import nnabla as nn
import nnabla.functions as F
from nnabla.backward_functions import registry

rng = np.random.default_rng(0)

def variable(*shape):
    return nn.Variable.from_numpy_array(rng.standard_normal(shape).astype(np.float32)).apply(need_grad=True)

"""

DATA_GRAD = """
from nnabla.backward_function.affine import AffineDataGrad
grad = AffineDataGrad(None, 2)
grad.xshape = (2, 3, 4)
gy, w = variable(2, 3, 5), variable(4, 5)
gx = grad(gy, w)
gx.forward()
assert np.allclose(gx.d, gy.d @ w.d.T, atol=1e-5)
gx.backward()
assert np.allclose(gy.g, np.broadcast_to(w.d.sum(0), gy.shape), atol=1e-5)
"""

RULE = """
from nnabla.backward_function.pad import PadDataGrad
grad = PadDataGrad(None, (1, 2), "constant", 0.5)
grad.xshape = (2, 3)
gy = variable(2, 6)
gx = grad(gy)
seed = variable(2, 3)
name = gx.parent.info.type_name
[ggy] = registry[name]([seed], [gy], [gy.shape], [gx], [gx.shape], **gx.parent.info.args)
ggy.forward()
assert np.array_equal(ggy.d, np.pad(seed.d, ((0, 0), (1, 2))))
"""

BATCH_NORMALIZATION = """
from nnabla.backward_function.batch_normalization import BatchNormalizationBackward
grad = BatchNormalizationBackward(None, [1])
gy, x = variable(4, 3), variable(4, 3)
beta, gamma, mean, var = (variable(1, 3).apply(need_grad=False) for _ in range(4))
found = grad(gy, x, beta, gamma, mean, var)
assert [g.shape for g in found] == [(4, 3), (1, 3), (1, 3)]
found[1].forward()
assert np.allclose(found[1].d, gy.d.sum(0, keepdims=True), atol=1e-5)
"""


@pytest.mark.parametrize("script", [DATA_GRAD, RULE, BATCH_NORMALIZATION])
def test_gradients_are_functions(script: str) -> None:
    """Gradients take their arguments by position, are differentiated again, and are complete."""
    done = subprocess.run([sys.executable, "-c", BEGIN + script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

"""Gradients as functions under NNabla's names. Each test has its own process, since the names rename the library."""

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
ggy = registry[name]([seed], [gy], [gy.shape], [gx], [gx.shape], **gx.parent.info.args)
ggy.forward()
assert np.array_equal(ggy.d, np.pad(seed.d, ((0, 0), (1, 2))))
"""

RESIZE = """
from nnabla.backward_function.interpolate import InterpolateDataGrad
grad = InterpolateDataGrad(None, (5,), "linear")
grad.xshape = (2, 3)
gy = variable(2, 5)
gx = grad(gy)
gx.forward()
# Corners are aligned: steps of half an element.
weights = np.array([[1, 0.5, 0, 0, 0], [0, 0.5, 1, 0.5, 0], [0, 0, 0, 0.5, 1]])
assert np.allclose(gx.d, gy.d @ weights.T, atol=1e-6)
gx.backward()
assert np.allclose(gy.g, 1)
grad = InterpolateDataGrad(None, (6,), "nearest", align_corners=False)
grad.xshape = (2, 3)
gy = variable(2, 6)
gx = grad(gy)
gx.forward()
assert np.allclose(gx.d, gy.d.reshape(2, 3, 2).sum(2), atol=1e-6)
"""

POOLING = """
from nnabla.backward_function.max_pooling_backward import MaxPoolingBackwardDataGrad
grad = MaxPoolingBackwardDataGrad(None, (2,))
grad.yshape = (3, 2)
ggx, x = variable(3, 4), variable(3, 4)
ggy = grad(ggx, x)
ggy.forward()
places = x.d.reshape(3, 2, 2).argmax(2)[:, :, None]
assert np.array_equal(ggy.d, np.take_along_axis(ggx.d.reshape(3, 2, 2), places, 2)[:, :, 0])
"""

UNREAD = """
x, w, gy = variable(2, 3), variable(2, 3), variable(2, 3)
condition = nn.Variable.from_numpy_array(np.arange(6).reshape(2, 3) % 2)
shapes = [(2, 3)] * 3
_, gx, gw = registry["Where"]([gy], [condition, None, None], shapes, [None], shapes[:1])
nn.forward_all([gx, gw])
assert np.array_equal(gx.d, gy.d * condition.d) and np.array_equal(gw.d, gy.d * (1 - condition.d))
# A gradient that reads only the output.
y = F.tanh(x)
gx = registry["Tanh"]([gy], [None], shapes[:1], [y], shapes[:1])
gx.forward()
assert np.allclose(gx.d, gy.d * (1 - np.tanh(x.d) ** 2), atol=1e-6)
"""

DROPOUT = """
x, gy = variable(4, 5), variable(4, 5)
y = F.dropout(x, 0.4)
gx = registry["Dropout"]([gy], [x], [x.shape], [y], [y.shape], 0.4)
factors = []
for _ in range(2):
    # The gradient belongs to the last run, and draws no new numbers.
    y.forward()
    drawn = y.d.copy()
    gx.forward()
    factors.append(drawn / x.d)
    assert np.array_equal(y.d, drawn) and np.allclose(gx.d, gy.d * factors[-1])
assert not np.array_equal(*factors)
gy.grad.zero()
gx.backward()
assert np.allclose(gy.g, factors[-1])
for lonely in variable(4, 5), None:
    try:
        registry["Dropout"]([gy], [lonely], [x.shape], [y], [y.shape], 0.4)
    except RuntimeError as error:
        assert "dropout" in str(error)
    else:
        raise AssertionError("a gradient of no dropout")
"""

RETURNED = """
x, w, gy = variable(2, 3), variable(2, 3), variable(2, 3)
shape = x.shape
# One gradient is returned alone, several as a tuple.
gx = registry["Sin"]([gy], [x], [shape], [F.sin(x)], [shape])
gx.forward()
assert np.allclose(gx.d, gy.d * np.cos(x.d), atol=1e-6)
both = registry["Mul2"]([gy], [x, w], [shape] * 2, [x * w], [shape], inplace=False)
assert isinstance(both, tuple) and len(both) == 2
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


@pytest.mark.parametrize("script", [DATA_GRAD, RULE, RESIZE, POOLING, UNREAD, DROPOUT, RETURNED, BATCH_NORMALIZATION])
def test_gradients_are_functions(script: str) -> None:
    """Gradients take positional arguments, are complete and differentiable, and need only the inputs that they read."""
    done = subprocess.run([sys.executable, "-c", BEGIN + script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

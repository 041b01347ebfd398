"""Parametric functions compared with NNabla 1.39: names, shapes, initial values, outputs and gradients for one seed."""

import json
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

X = np.random.RandomState(0).randn(2, 4, 6, 6).astype(np.float32)
"""The input of each layer: a batch of images."""

# Values from NNabla: for each parameter its shape, the last of its first initial values, and if it is trained. Then the
# mean magnitude of the output, and of the gradient of the input for the sum of squares.
ROWS = json.loads(Path(__file__).with_name("layers_of_nnabla.json").read_text())


def inputs(name, x):
    """Returns the positional arguments of the layer `name`: `x`, and sizes such as the number of outputs."""
    if name.endswith("affine"):
        given = (x, 6)
    elif name == "depthwise_deconvolution":
        given = (x, (3, 3))
    elif name.endswith("convolution"):
        given = (x, 6, (3, 3))
    else:
        given = (x,)
    return (*given, 2) if name.startswith(("svd", "cpd")) else given


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["layer"])
def test_layers_match_nnabla(row):
    """Each parametric function gives the parameters, values and gradients recorded from NNabla."""
    name, parameters = row["layer"], row["parameters"]
    nn.seed(11)
    with nn.parameter_scope("", {}):
        x = nn.Variable.from_numpy_array(X, need_grad=True)
        y = getattr(PF, name)(*inputs(name, x), **row["args"])
        own = nn.get_parameters(grad_only=False)
        assert list(own) == list(parameters)
        # The rounding of a decomposition depends on the linear algebra library.
        rtol = 1e-4 if name.startswith(("svd", "cpd")) else 0
        for key, (shape, last, trained) in parameters.items():
            assert (own[key].shape, own[key].need_grad) == (tuple(shape), trained), key
            np.testing.assert_allclose(own[key].d.ravel()[-1], np.float32(last), rtol=rtol, err_msg=key)
        y.forward()
        loss = F.sum(y * y)
        loss.forward()
        x.grad.zero()
        loss.backward()
        np.testing.assert_allclose(np.abs(y.d).mean(), row["output"], rtol=1e-4)
        np.testing.assert_allclose(np.abs(x.g).mean(), row["gradient"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", sorted({row["layer"] for row in ROWS}))
def test_a_refused_call_registers_nothing(name):
    """A parametric function that raises registers no parameter."""
    with nn.parameter_scope("", {}):
        x = nn.Variable(X.shape)
        layer = getattr(PF, name)
        for wrong in (lambda: layer(*inputs(name, None)), lambda: layer(*inputs(name, x), nothing=1)):
            with pytest.raises((TypeError, ValueError)):
                wrong()
            assert nn.get_parameters(grad_only=False) == {}


def test_ranks_that_do_not_fit_the_weight_are_refused():
    x = nn.Variable(X.shape)
    with nn.parameter_scope("", {}):
        with pytest.raises(ValueError, match="expected a rank that initial weights of these shapes have"):
            PF.svd_affine(x, 6, 7)
        with pytest.raises(ValueError, match="`r` to be at least 1"):
            PF.svd_convolution(x, 6, (3, 3), 0)
        PF.svd_affine(x, 6, 2, uv_init=np.ones((144, 6), np.float32))
        u, v = (nn.get_parameters()[f"svd_affine/{name}"].d for name in "UV")
        np.testing.assert_allclose(u @ v, np.ones((144, 6)), atol=1e-5)

"""Each fused layer is one function, with the same bits as its separate layers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

ACTIVATIONS = {
    "identity": ((), lambda x: x),
    "relu": ((), F.relu),
    "sigmoid": ((), F.sigmoid),
    "tanh": ((), F.tanh),
    "leaky_relu": ((-0.3,), lambda x: F.leaky_relu(x, -0.3)),
    "elu": ((0.7,), lambda x: F.elu(x, 0.7)),
    "relu6": ((), F.relu6),
}
"""By the name that a fused convolution takes: arguments of the activation, and the function of its own."""


def variables(*shapes, seed=0):
    """Returns leaves of these shapes with random values."""
    rng = np.random.default_rng(seed)
    return [nn.Variable.from_numpy_array(rng.normal(size=s).astype(np.float32), need_grad=True) for s in shapes]


def statistics(shape):
    """Returns shift, scale, running mean and running variance."""
    beta, gamma = variables(shape, shape, seed=1)
    mean, variance = (nn.Variable.from_numpy_array(np.full(shape, v, np.float32)) for v in (0.1, 0.9))
    return [beta, gamma, mean, variance]


def results(y, leaves, others):
    """Runs forward and backward. Returns value, gradients and running statistics."""
    for leaf in leaves:
        leaf.grad.zero()
    y.forward(clear_no_need_grad=True)
    value = y.d.copy()
    y.backward(np.linspace(-1, 1, y.size, dtype=np.float32).reshape(y.shape), clear_buffer=True)
    return [value, *(leaf.g.copy() for leaf in leaves), *(other.d.copy() for other in others)]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("batch_stat", "adds"), [*itertools.product((True, False), repeat=2)])
def test_a_fused_convolution_equals_its_layers(activation, batch_stat, adds):
    """`fused_convolution` equals its layers one by one, for values and gradients."""
    args, activate = ACTIVATIONS[activation]
    x, w, b = variables((2, 4, 6, 5), (6, 2, 3, 3), (6,))
    z = variables((2, 6, 3, 3), seed=2) if adds else [None]
    made = []
    for fused in (False, True):
        own = statistics((1, 6, 1, 1))
        if fused:
            how = (1, (1, 1), (2, 2), None, 2, False, 0.9, 1e-5, batch_stat, activation, args)
            y = F.fused_convolution(x, w, b, *own, *z, *how)
            assert y.parent.name == "FusedConvolution"
            assert y.parent.inputs == [v for v in (x, w, b, *own, *z) if v is not None]
            assert y.parent.info.args["nonlinearity"] == activation
        else:
            y = F.convolution(x, w, b, 1, (1, 1), (2, 2), group=2)
            y = F.batch_normalization(y, *own, batch_stat=batch_stat)
            y = activate(F.add2(y, z[0]) if adds else y)
        made.append(results(y, [v for v in (x, w, b, *own[:2], *z) if v is not None], own[2:]))
    for expected, got in zip(*made, strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (4,), (0, 4)])
@pytest.mark.parametrize("batch_stat", [True, False])
@pytest.mark.parametrize("mode", ["constant", "reflect"])
def test_gradients_of_some_inputs_equal_gradients_of_all(wanted, batch_stat, mode):
    found = []
    for some in (range(5), wanted):
        inputs = [*variables((2, 4, 6, 5), (6, 4, 3, 3), (6,)), *statistics((1, 6, 1, 1))]
        for i, v in enumerate(inputs):
            v.need_grad = i in some
        how = {"pad": (1, 1), "batch_stat": batch_stat, "nonlinearity": "tanh", "pad_mode": mode, "constant_value": 0.5}
        found.append(results(F.fused_convolution(*inputs, **how), [inputs[i] for i in wanted], ())[1:])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_fused_batch_normalization_runs_alone():
    """`fused_batch_normalization` is one function, and equals its layers."""
    x, z = variables((4, 3, 5), (4, 3, 5))
    own = statistics((1, 3, 1))
    y = F.fused_batch_normalization(x, *own, z)
    assert y.parent.name == "FusedBatchNormalization"
    assert y.parent.inputs == [x, *own, z]
    expected = {"axes": [1], "decay_rate": 0.9, "eps": 1e-5, "batch_stat": True, "nonlinearity": "relu"}
    assert y.parent.info.args == expected
    y.parent.forward(y.parent.inputs, [y])
    layers = F.relu(F.add2(F.batch_normalization(x, *statistics((1, 3, 1))), z))
    layers.forward()
    np.testing.assert_array_equal(y.d, layers.d)


def test_computed_statistics_are_refused():
    """Running statistics must be leaves."""
    x, w = variables((2, 4, 6), (6, 4, 3))
    beta, gamma, mean, variance = statistics((1, 6, 1))
    with pytest.raises(nn.ArgumentError, match="fused_convolution: expected `mean` not to be computed"):
        F.fused_convolution(x, w, None, beta, gamma, F.identity(mean), variance)

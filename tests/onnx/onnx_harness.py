"""Calls of ONNX models again and again: with other values and shapes, in threads, as variables and after mistakes."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from onnx import ModelProto

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx

REFUSED = (nn.Error, ValueError)
"""Errors of models for values and shapes that they do not take."""


def called_in_every_way(proto, model, inputs, first, rtol=1e-6, atol=1e-6):
    """Asserts that a model gives right results for other values and shapes, in threads, and after mistakes.

    Args:
        proto: Its `ModelProto`.
        model: The model, which was called with `inputs` before.
        inputs: Its inputs.
        first: The results of that call.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
    """

    def again(*_):
        """Asserts that the first inputs give the first results."""
        equal(model(*inputs), first, rtol, atol)

    others = [reversed_array(x) for x in inputs]
    wanted = result(kinnor.onnx.load(proto), others)
    agrees(model, others, wanted, rtol, atol)
    again()
    other_shapes_give_what_a_new_model_gives(proto, inputs, first, rtol, atol)
    for mistake in mistakes(inputs):
        with contextlib.suppress(*REFUSED):
            model(*mistake)
        again()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(again, range(2)))
    as_variables(model, inputs, first)
    again()
    model.get_parameters()
    again()
    agrees(model, others, wanted, rtol, atol)


def result(model, inputs):
    """Returns the results of a model, or None if it refuses the inputs."""
    try:
        return model(*inputs)
    except REFUSED:
        return None


def agrees(model, inputs, wanted, rtol, atol):
    """Asserts that a model gives the results `wanted`.

    None means that it must refuse the inputs, or may give anything.
    """
    if wanted is None:
        with contextlib.suppress(*REFUSED):
            model(*inputs)
    else:
        equal(model(*inputs), wanted, rtol, atol)


def other_shapes_give_what_a_new_model_gives(proto, inputs, first, rtol, atol):
    """Asserts that a model with open lengths gives the right results for longer inputs, and then for the first ones."""
    open_proto = ModelProto()
    open_proto.CopyFrom(proto)
    for held in open_proto.graph.input:
        if held.type.HasField("tensor_type"):
            for axis in held.type.tensor_type.shape.dim:
                axis.Clear()
    model, longer = kinnor.onnx.load(open_proto), [longer_array(x) for x in inputs]
    before = result(model, inputs)
    if before is not None:
        equal(before, first, rtol, atol)
    agrees(model, longer, result(kinnor.onnx.load(open_proto), longer), rtol, atol)
    if before is not None:
        equal(model(*inputs), first, rtol, atol)


def longer_array(x):
    """Returns an array twice as long along its first axis, or a list with each item twice. Scalars and None stay."""
    if isinstance(x, list):
        return [*x, *x]
    return x if x is None or not x.ndim else np.concatenate([x, x])


def mistakes(inputs):
    """Returns wrong lists of inputs: one lacks the last input, in the other that has an axis too many."""
    found = [inputs[:-1]]
    if inputs and isinstance(inputs[-1], np.ndarray):
        found.append([*inputs[:-1], inputs[-1][None]])
    return found


def as_variables(model, inputs, first):
    """Calls a model with variables for real numbers: the results are the same, and gradients arrive."""
    given = [
        nn.Variable.from_numpy_array(x, need_grad=True) if isinstance(x, np.ndarray) and x.dtype == np.float32 else x
        for x in inputs
    ]
    variables = [x for x in given if isinstance(x, nn.Variable)]
    if not variables:
        return
    found = result(model, given)  # values of variables that decide on shapes are refused
    if found is None:
        return
    made = found if isinstance(found, tuple) else (found,)
    wanted = first if isinstance(first, tuple) else (first,)
    real = []
    for y, array in zip(made, wanted, strict=True):
        if isinstance(y, nn.Variable) and isinstance(array, np.ndarray) and array.dtype.kind != "O":
            if y.parent is not None:
                y.forward()
                real += [y] if array.dtype == np.float32 and y.size else []
            np.testing.assert_allclose(y.d.astype(np.float64), array.astype(np.float64), rtol=1e-4, atol=1e-4)
    if not real:
        return
    loss = F.sum(real[0])
    loss.forward()
    for x in variables:
        x.grad.zero()
    with contextlib.suppress(nn.UnsupportedError):  # operators without a gradient say so
        loss.backward()
    assert all(x.g.shape == x.shape for x in variables)


def reversed_array(x):
    """Returns an array with its elements in reverse order."""
    if isinstance(x, list):
        return [reversed_array(item) for item in x]
    return None if x is None else np.ascontiguousarray(x.ravel()[::-1].reshape(x.shape))


def equal(y, expected, rtol=1e-6, atol=1e-6):
    """Asserts that results are nearly equal."""
    if isinstance(expected, dict):
        assert list(y) == list(expected)
        equal(list(y.values()), list(expected.values()), rtol, atol)
    elif isinstance(expected, (list, tuple)):
        for item, wanted in zip(y, expected, strict=True):
            equal(item, wanted, rtol, atol)
    elif expected is None:
        assert y is None
    elif isinstance(expected, np.ndarray) and expected.dtype.kind == "O":
        assert y.tolist() == expected.tolist()
    else:
        np.testing.assert_allclose(np.float64(y), np.float64(expected), rtol=rtol, atol=atol)

"""Quantized operators of onnxruntime, compared with onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import kinnor.onnx

RNG = np.random.default_rng(3)
LEVELS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
"""The ONNX element type of each type of levels."""


def run(name, given, constants, dtype, output=None, **attributes):
    """Runs a quantized operator in Kinnor and in onnxruntime, and returns both results."""
    order = [*given, *constants]
    order.sort(key=lambda key: int(key[1:]))
    inputs = [helper.make_tensor_value_info(key, LEVELS[dtype], x.shape) for key, x in given.items()]
    held = [numpy_helper.from_array(np.asarray(x), key) for key, x in constants.items()]
    node = helper.make_node(name, order, ["y"], domain="com.microsoft", **attributes)
    outputs = [helper.make_tensor_value_info("y", output or LEVELS[dtype], None)]
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "levels", inputs, outputs, held)
    proto = helper.make_model(graph, opset_imports=versions, ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    found, (wanted,) = (
        kinnor.onnx.Model(onnx.load_from_string(proto.SerializeToString()))(**given),
        session.run(None, given),
    )
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    return found.astype(np.float64), wanted.astype(np.float64)


@pytest.fixture(autouse=True)
def same_numbers():
    """Seeds the numbers of each test, so that they do not depend on other tests."""
    global RNG
    RNG = np.random.default_rng(3)


def levels(dtype, *shape):
    """Returns random levels over the full range of a type."""
    return RNG.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, shape).astype(dtype)


def scale(x):
    """Returns a scale."""
    return np.float32(x)


@pytest.mark.parametrize("dtype", LEVELS)
@pytest.mark.parametrize("name", ["QLinearAdd", "QLinearMul"])
@pytest.mark.parametrize("shapes", [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((1, 3, 1), (2, 1, 5))])
def test_arithmetic(name, dtype, shapes):
    """Sums and products of levels agree with ONNX Runtime up to one level."""
    zeros = levels(dtype, 3)
    found, wanted = run(
        name,
        {"x0": levels(dtype, *shapes[0]), "x3": levels(dtype, *shapes[1])},
        {"x1": scale(0.03), "x2": zeros[0], "x4": scale(0.05), "x5": zeros[1], "x6": scale(0.07), "x7": zeros[2]},
        dtype,
    )
    assert np.abs(found - wanted).max() <= 1  # ties may round either way
    assert (found == wanted).mean() > 0.9


@pytest.mark.parametrize("dtype", LEVELS)
@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("QLinearSigmoid", {}),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}),
        ("QLinearLeakyRelu", {"alpha": 0.2}),
        ("QLinearGlobalAveragePool", {}),
        ("QLinearGlobalAveragePool", {"channels_last": 1}),
    ],
)
def test_functions_of_one_input(name, attributes, dtype):
    """Quantized functions of one input agree to one level."""
    zeros = levels(dtype, 2)
    last = 0.01 if name in ("QLinearSigmoid", "QLinearSoftmax") else 0.05
    found, wanted = run(
        name,
        {"x0": levels(dtype, 2, 5, 4, 3)},
        {"x1": scale(0.03), "x2": zeros[0], "x3": scale(last), "x4": zeros[1]},
        dtype,
        **attributes,
    )
    assert np.abs(found - wanted).max() <= 1
    assert (found == wanted).mean() > 0.9


@pytest.mark.parametrize("dtype", LEVELS)
def test_concatenation(dtype):
    """Concatenated levels of different scales agree with ONNX Runtime."""
    zeros = levels(dtype, 3)
    found, wanted = run(
        "QLinearConcat",
        {"x2": levels(dtype, 2, 3), "x5": levels(dtype, 2, 4)},
        {"x0": scale(0.05), "x1": zeros[0], "x3": scale(0.03), "x4": zeros[1], "x6": scale(0.1), "x7": zeros[2]},
        dtype,
        axis=1,
    )
    assert np.abs(found - wanted).max() <= 1
    assert (found == wanted).mean() > 0.9


@pytest.mark.parametrize("is_turned", [0, 1])
@pytest.mark.parametrize("has_levels", [True, False])
@pytest.mark.parametrize("per_column", [True, False])
def test_products(is_turned, has_levels, per_column):
    """`QGemm` agrees with ONNX Runtime, with levels or floats as output."""
    weight = levels("int8", 4, 6)
    scales = np.array([0.01, 0.02, 0.03, 0.015], np.float32) if per_column else scale(0.02)
    zeros = np.zeros(4, np.int8) if per_column else np.int8(0)
    given = {"x1": scale(0.03), "x2": np.uint8(120), "x3": weight if is_turned else weight.T, "x4": scales, "x5": zeros}
    given["x6"] = np.array([100, -2000, 30, 5], np.int32)
    if has_levels:
        given.update(x7=scale(0.05), x8=np.uint8(100))
    found, wanted = run(
        "QGemm",
        {"x0": levels("uint8", 3, 6)},
        given,
        "uint8",
        None if has_levels else TensorProto.FLOAT,
        transB=is_turned,
    )
    if has_levels:
        assert np.abs(found - wanted).max() <= 1
        assert (found == wanted).mean() > 0.7
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-4)

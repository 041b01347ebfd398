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


def integer_sums(kind, w, zeros, n_axes, **attributes):
    """Returns a model of one node that sums products of levels. Its input is `x`."""
    held = [numpy_helper.from_array(np.asarray(x), name) for name, x in (("w", w), ("z", zeros[0]), ("wz", zeros[1]))]
    node = helper.make_node(kind, ["x", "w", "z", "wz"], ["y"], **attributes)
    given = helper.make_tensor_value_info("x", LEVELS[zeros[0].dtype.name], [None] * n_axes)
    output = helper.make_tensor_value_info("y", TensorProto.INT32, None)
    graph = helper.make_graph([node], "sums", [given], [output], held)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return kinnor.onnx.Model(onnx.load_from_string(proto.SerializeToString()))


@pytest.mark.parametrize("is_trained", [False, True])
@pytest.mark.parametrize(("x_type", "w_type"), [("uint8", "int8"), ("int8", "uint8"), ("uint8", "uint8")])
@pytest.mark.parametrize("n_axes", [1, 2, 3])
@pytest.mark.parametrize(("group", "channels"), [(1, 3), (1, 300), (2, 200), (3, 1)])
def test_integer_convolutions_are_exact(n_axes, group, channels, x_type, w_type, is_trained):
    """Sums beyond 2^24 equal those in int64, for all kinds of levels, groups and numbers of axes."""
    kernel, strides, dilations = [2, 3, 1][:n_axes], [1, 2, 2][:n_axes], [2, 1, 1][:n_axes]
    before, after = [1, 0, 1][:n_axes], [0, 2, 1][:n_axes]
    w = levels(w_type, 2 * group, channels, *kernel) // 8 + np.iinfo(w_type).max // 8 * 7
    zeros = np.asarray(np.iinfo(x_type).min + 2, x_type), np.asarray(np.iinfo(w_type).min + 1, w_type)
    how = {"strides": strides, "dilations": dilations, "pads": before + after, "group": group}
    model = integer_sums("ConvInteger", w.astype(w_type), zeros, n_axes + 2, **how)
    if is_trained:
        model.get_parameters()
    for length in (6, 7, 6):
        x = levels(x_type, 2, group * channels, *[length] * n_axes)
        wide, weight = x.astype(np.int64) - zeros[0], w.astype(np.int64) - zeros[1]
        wide = np.pad(wide, [(0, 0), (0, 0), *zip(before, after, strict=True)])
        axes = tuple(range(2, n_axes + 2))
        reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
        seen = np.lib.stride_tricks.sliding_window_view(wide, reach, axes)
        steps = [slice(None, None, n) for n in strides], [slice(None, None, n) for n in dilations]
        seen = seen[(slice(None), slice(None), *steps[0], *steps[1])]
        parts = zip(np.split(seen, group, 1), np.split(weight, group), strict=True)
        names = "pqr"[:n_axes], "uvw"[:n_axes]
        rule = f"nc{names[0]}{names[1]},mc{names[1]}->nm{names[0]}"
        wanted = np.concatenate([np.einsum(rule, *part) for part in parts], 1)
        found = model(x)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("n_terms", [1, 256, 257, 900])
def test_integer_products_are_exact(n_terms):
    """Sums beyond 2^24 equal those in int64, with a zero point for each column."""
    x, w = levels("uint8", 2, 3, n_terms) // 4 + 192, levels("int8", n_terms, 5) // 4 + 96
    zeros = np.uint8(3), np.int8([-128, -3, 0, 5, 127])
    model = integer_sums("MatMulInteger", w.astype(np.int8), zeros, 3)
    wanted = (x.astype(np.int64) - 3) @ (w.astype(np.int64) - zeros[1].astype(np.int64))
    np.testing.assert_array_equal(model(x.astype(np.uint8)), wanted)

"""Networks between 8-bit quantized values are computed on integers. Results match the float network and onnxruntime."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import kinnor as nn
import kinnor.onnx

RNG = np.random.default_rng(5)


class Net:
    """Builds an ONNX model node by node. Values are known by their names."""

    def __init__(self, shape, dtype="uint8", takes_levels=False):
        """Begins a model whose levels have the type `dtype`. Its input has floats or levels."""
        self.nodes, self.held, self.dtype, self.shape = [], [], np.dtype(dtype), shape
        self.takes_levels = takes_levels
        kind = helper.np_dtype_to_tensor_dtype(self.dtype) if takes_levels else TensorProto.FLOAT
        self.input = helper.make_tensor_value_info("x", kind, shape)

    def constant(self, array):
        """Adds a constant and returns its name."""
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, kind, *inputs, n=1, domain="", **attributes):
        """Adds a node and returns the names of its outputs."""
        names = [f"{kind}{len(self.nodes)}_{i}" for i in range(n)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, domain=domain, **attributes))
        return names[0] if n == 1 else names

    def scale(self, step, zero, dtype=None):
        """Adds a scale and a zero point. Returns their names."""
        return self.constant(np.float32(step)), self.constant(np.asarray(zero, dtype or self.dtype))

    def between(self, x, step, zero):
        """Quantizes a value and dequantizes it again. Returns the name of the result."""
        scale = self.scale(step, zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *scale), *scale)

    def weight(self, *shape, axis=None, dtype="int8", zero=0):
        """Adds a random quantized weight and its dequantization, by channel if `axis` is given.

        Returns the name of the result.
        """
        low, high = (-127, 128) if dtype == "int8" else (0, 256)
        levels = RNG.integers(low, high, shape).astype(dtype)
        n = () if axis is None else (shape[axis],)
        step = RNG.uniform(0.005, 0.01, n).astype(np.float32)
        zeros = np.full(n, zero, dtype)
        how = {} if axis is None else {"axis": axis}
        return self.node(
            "DequantizeLinear", self.constant(levels), self.constant(step), self.constant(zeros), **how
        ), step

    def model(self, y):
        """Returns the model with output `y`."""
        outputs = [helper.make_empty_tensor_value_info(y)]
        graph = helper.make_graph(self.nodes, "levels", [self.input], outputs, self.held)
        versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8)

    def check(self, y, functions, most=1, equal=0.99):
        """Asserts that integer, float and onnxruntime results agree, and that the graph has these functions."""
        proto = self.model(y)
        x = RNG.uniform(-1, 1, self.shape).astype(np.float32)
        if self.takes_levels:
            x = RNG.integers(zero(self.dtype, 0), zero(self.dtype, 256), self.shape).astype(self.dtype)
        model, plain = (kinnor.onnx.Model(onnx.load_from_string(proto.SerializeToString())) for _ in range(2))
        plain.get_parameters()
        found, numbers = model(x), plain(x)
        again = model(x)
        np.testing.assert_array_equal(found, again)
        session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
        (wanted,) = session.run(None, {"x": x})
        step = np.diff(np.unique(wanted)).min() if wanted.dtype == np.float32 else 1
        for other in (numbers, wanted):
            assert found.dtype == other.dtype
            difference = np.abs(found.astype(float) - other.astype(float))
            assert difference.max() <= most * step * 1.001
            assert (difference < step / 2).mean() >= equal
        held = {}
        for root in next(iter(model._cache.graphs.values())).roots:
            root.visit(lambda f: held.setdefault(f, f.info.type_name))
        counted = Counter(held.values())
        assert {name: counted[name] for name in functions} == functions
        return counted


DTYPES = pytest.mark.parametrize("dtype", ["uint8", "int8"])


def zero(dtype, at):
    """Returns the zero point that is `at` levels above the least level of the type."""
    return at + np.iinfo(dtype).min


@DTYPES
@pytest.mark.parametrize("axis", [None, 0])
def test_convolutions_with_functions_in_between(dtype, axis):
    """A network of convolutions, pooling, a sum and a concatenation is computed on integers."""
    net = Net((2, 3, 9, 8), dtype)
    h = net.between("x", 0.01, zero(dtype, 120))
    w, step = net.weight(20, 3, 3, 3, axis=axis)
    bias = RNG.integers(-2000, 2000, 20).astype(np.int32)
    unit = np.broadcast_to(np.float32(0.01) * step, (20,)).astype(np.float32)
    b = net.node("DequantizeLinear", net.constant(bias), net.constant(unit), axis=0)
    h = net.between(net.node("Relu", net.node("Conv", h, w, b, pads=[1] * 4, strides=[2, 1])), 0.02, zero(dtype, 7))
    left = net.between(net.node("MaxPool", h, kernel_shape=[3, 3], pads=[1] * 4), 0.02, zero(dtype, 7))
    right = net.between(net.node("Conv", h, net.weight(20, 20, 1, 1)[0]), 0.05, zero(dtype, 130))
    h = net.between(net.node("Add", left, right), 0.04, zero(dtype, 90))
    h = net.between(net.node("Concat", h, left, axis=1), 0.04, zero(dtype, 90))
    own = net.node("Conv", h, net.weight(40, 1, 3, 3, axis=axis)[0], pads=[1] * 4, group=40)
    most = net.constant(np.float32(2))
    h = net.between(net.node("Clip", own, net.constant(np.float32(-1)), most), 0.03, zero(dtype, 120))
    parameters = [net.constant(RNG.uniform(0.5, 1.5, 40).astype(np.float32)) for _ in range(4)]
    h = net.between(net.node("BatchNormalization", h, *parameters), 0.08, zero(dtype, 50))
    h = net.between(net.node("Sigmoid", h), 1 / 256, zero(dtype, 0))
    h = net.between(net.node("AveragePool", h, kernel_shape=[2, 2], strides=[2, 2]), 1 / 256, zero(dtype, 0))
    y = net.between(net.node("GlobalAveragePool", h), 1 / 300, zero(dtype, 3))
    counted = net.check(
        y,
        {
            "QuantizedConvolution": 3,
            "MaxPoolingUint8": 1,
            "QuantizedAdd2": 1,
            "ConcatenateUint8": 1,
            "RescaleUint8": 1,
            "QuantizedAveragePooling": 2,
            "QuantizeUint8": 1,
            "DequantizeUint8": 1,
        },
        most=2,
        equal=0.9,
    )
    assert not counted["Convolution"] + counted["Add2"] + counted["DequantizeLinear"]


@DTYPES
def test_asymmetric_padding(dtype):
    """Convolutions and pooling with different padding at both ends are computed on integers."""
    net = Net((2, 3, 8, 9), dtype)
    h = net.between("x", 0.01, zero(dtype, 120))
    h = net.between(
        net.node("Conv", h, net.weight(6, 3, 3, 3)[0], pads=[0, 0, 1, 1], strides=[2, 2]), 0.02, zero(dtype, 110)
    )
    h = net.between(net.node("MaxPool", h, kernel_shape=[2, 2], pads=[0, 0, 1, 1]), 0.02, zero(dtype, 110))
    y = net.between(net.node("Conv", h, net.weight(4, 6, 2, 2)[0], auto_pad="SAME_UPPER"), 0.03, zero(dtype, 100))
    functions = {"PadUint8": 3, "QuantizedConvolution": 2, "MaxPoolingUint8": 1, "Pad": 0, "Convolution": 0}
    net.check(y, functions, equal=0.95)


@DTYPES
def test_attention(dtype):
    """Attention between nodes that quantize runs in functions of integers, without float products."""
    net = Net((2, 6, 8), dtype)
    h = net.between("x", 0.01, zero(dtype, 128))
    parts = []
    for i in range(3):
        w = net.weight(8, 8, dtype="uint8", zero=131)[0] if i == 2 else net.weight(8, 8, axis=1)[0]
        part = net.between(net.node("MatMul", h, w), 0.03, zero(dtype, 128))
        bias = net.between(net.constant(RNG.uniform(-0.3, 0.3, 8).astype(np.float32)), 0.01, zero(dtype, 128))
        part = net.between(net.node("Add", part, bias), 0.03, zero(dtype, 128))
        shaped = net.between(net.node("Reshape", part, net.constant([2, 6, 2, 4])), 0.03, zero(dtype, 128))
        parts.append(net.between(net.node("Transpose", shaped, perm=[0, 2, 1, 3]), 0.03, zero(dtype, 128)))
    turned = net.between(net.node("Transpose", parts[1], perm=[0, 1, 3, 2]), 0.03, zero(dtype, 128))
    scores = net.between(net.node("MatMul", parts[0], turned), 0.05, zero(dtype, 128))
    scores = net.between(net.node("Mul", scores, net.constant(np.float32(0.5))), 0.025, zero(dtype, 128))
    weights = net.between(net.node("Softmax", scores), 1 / 256, zero(dtype, 0))
    y = net.between(net.node("MatMul", weights, parts[2]), 0.03, zero(dtype, 128))
    functions = {"QuantizedAffine": 3, "QuantizedBatchMatmul": 2, "RescaleUint8": 3, "BatchMatmul": 0, "Affine": 0}
    net.check(y, {**functions, "Add2": 0, "Mul2": 0, "LookupUint8": 1}, most=2, equal=0.9)


def test_operators_of_levels():
    """A chain of onnxruntime's 8-bit operators is computed on integers."""
    net = Net((2, 4, 6, 6))
    first, second = net.scale(0.01, 128), net.scale(0.02, 100)
    x = net.node("QuantizeLinear", "x", *first)
    w = net.constant(RNG.integers(-127, 128, (8, 4, 3, 3)).astype(np.int8))
    steps, zeros = net.constant(RNG.uniform(0.01, 0.02, 8).astype(np.float32)), net.constant(np.zeros(8, np.int8))
    b = net.constant(RNG.integers(-900, 900, 8).astype(np.int32))
    h = net.node("QLinearConv", x, *first, w, steps, zeros, *second, b)
    h = net.node("MaxPool", h, kernel_shape=[2, 2])
    h = net.node("QLinearAdd", h, *second, h, *second, *net.scale(0.04, 90), domain="com.microsoft")
    h = net.node("Reshape", h, net.constant([2, 72]))
    w = net.constant(RNG.integers(0, 256, (72, 5)).astype(np.uint8))
    how = {"domain": "com.microsoft", "alpha": 1.0}
    b = net.constant(RNG.integers(-900, 900, 5).astype(np.int32))
    y = net.node("QGemm", h, *net.scale(0.04, 90), w, *net.scale(0.01, 128), b, *net.scale(0.3, 120), **how)
    net.check(
        y,
        {"QuantizedConvolution": 1, "MaxPoolingUint8": 1, "QuantizedAdd2": 1, "QuantizedAffine": 1, "Affine": 0},
        equal=0.9,
    )


def test_scales_that_follow_from_the_numbers():
    """Dynamically quantized products are computed on integers."""
    net = Net((3, 7, 12))
    h, scale, at = net.node("DynamicQuantizeLinear", "x", n=3)
    w = net.constant(RNG.integers(-127, 128, (12, 10)).astype(np.int8))
    step, w_zero = net.constant(np.float32(0.013)), net.constant(np.int8(0))
    sums = net.node("Cast", net.node("MatMulInteger", h, w, at, w_zero), to=TensorProto.FLOAT)
    y = net.node("Mul", sums, net.node("Mul", scale, step))
    y = net.node("Relu", net.node("Add", y, net.constant(RNG.uniform(-1, 1, 10).astype(np.float32))))
    proto = net.model(y)
    model, plain = (kinnor.onnx.Model(onnx.load_from_string(proto.SerializeToString())) for _ in range(2))
    plain.get_parameters()
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for x in (RNG.uniform(-2, 1, (3, 7, 12)), RNG.uniform(0.5, 1, (3, 7, 12)), np.zeros((3, 7, 12))):
        given = x.astype(np.float32)
        found, (wanted,) = model(given), session.run(None, {"x": given})
        np.testing.assert_allclose(found, wanted, atol=2e-5)
        np.testing.assert_allclose(found, plain(given), atol=2e-5)
    held = {}
    next(iter(model._cache.graphs.values())).roots[0].visit(lambda f: held.setdefault(f, f.info.type_name))
    assert Counter(held.values()) == {
        "DynamicQuantizeUint8": 1,
        "QuantizedAffine": 1,
        "ReLU": 1,
        **{name: n for name, n in Counter(held.values()).items() if name in ("MulScalar", "Mul2", "Reshape")},
    }


def test_quantized_outputs_and_float_outputs():
    """Outputs may be levels or real numbers."""
    net = Net((2, 5), "int8")
    levels = net.node("QuantizeLinear", net.node("Relu", "x"), *net.scale(0.01, -100))
    net.check(levels, {"QuantizeUint8": 1, "LookupUint8": 0})
    net = Net((2, 5), "int8")
    h = net.between("x", 0.01, -3)
    y = net.node("Tanh", net.node("MatMul", h, net.weight(5, 6)[0]))
    proto = net.model(y)
    x = RNG.uniform(-1, 1, (2, 5)).astype(np.float32)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(kinnor.onnx.Model(proto)(x), session.run(None, {"x": x})[0], atol=1e-5)


@DTYPES
@pytest.mark.parametrize("form", ["operators", "dequantized"])
def test_inputs_of_levels(dtype, form):
    """Layers read an input of levels without converting it to floats."""
    net = Net((2, 8, 6, 7), dtype, takes_levels=True)
    x, y = net.scale(0.01, zero(dtype, 120)), net.scale(0.05, zero(dtype, 100))
    if form == "operators":
        weight = (net.constant(RNG.integers(-127, 128, (12, 8, 3, 3)).astype(np.int8)), *net.scale(0.01, 0, "int8"))
        h = net.node("QLinearConv", "x", *x, *weight, *y, pads=[1] * 4)
    else:
        number = net.node("DequantizeLinear", "x", *x)
        h = net.node("QuantizeLinear", net.node("Conv", number, net.weight(12, 8, 3, 3)[0], pads=[1] * 4), *y)
    counted = net.check(h, {"QuantizedConvolution": 1, "QuantizeUint8": int(dtype == "int8")})
    assert not counted["Convolution"] + counted["DequantizeLinear"]


def test_inputs_of_levels_that_floats_read():
    """An input of levels may have readers that compute in floats, and readers of the levels themselves."""
    net = Net((3, 5), takes_levels=True)
    scale = net.scale(0.01, 120)
    number = net.node("DequantizeLinear", "x", *scale)
    cast = net.node("Cast", "x", to=TensorProto.FLOAT)
    own = net.node("Mul", cast, net.constant(np.float32(0.001)))
    h = net.node("QuantizeLinear", net.node("Add", net.node("Tanh", number), own), *net.scale(0.02, 30))
    net.check(h, {"QuantizeUint8": 1})


def test_training_uses_floats():
    """A quantized model called with a variable computes in floats, so that it has gradients."""
    net = Net((2, 5))
    h = net.between("x", 0.01, 128)
    y = net.between(net.node("MatMul", h, net.weight(5, 6)[0]), 0.02, 128)
    model = kinnor.onnx.Model(net.model(y))
    x = nn.Variable.from_numpy_array(RNG.uniform(-1, 1, (2, 5)).astype(np.float32), need_grad=True)
    y = model(x)
    held = {}
    y.visit(lambda f: held.setdefault(f, f.info.type_name))
    assert "QuantizedAffine" not in held.values()
    y.forward()
    y.backward()
    assert np.any(x.g != 0)


def test_shapes_share_weights_and_threads_give_equal_bits():
    net = Net(("n", 3, 20, 20))
    h = net.between("x", 0.01, 128)
    h = net.between(net.node("Conv", h, net.weight(70, 3, 3, 3)[0], pads=[1] * 4), 0.02, 100)
    y = net.between(net.node("Conv", h, net.weight(30, 70, 3, 3)[0]), 0.2, 100)
    net.shape = (2, 3, 20, 20)
    model = kinnor.onnx.Model(net.model(y))
    before, found = nn.get_num_threads(), []
    x = RNG.uniform(-1, 1, (5, 3, 20, 20)).astype(np.float32)
    try:
        for threads in (1, 2, 3):
            nn.set_num_threads(threads)
            found += [model(x), np.concatenate([model(x[:2]), model(x[2:])])]
    finally:
        nn.set_num_threads(before)
    assert all(np.array_equal(found[0], other) for other in found)
    assert len(model._stages.folding._integers._made) == 2


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("group", [1, 4])
def test_dynamically_quantized_convolutions(kind, group):
    """Convolutions of dynamic levels, with integer biases, are computed on integers and equal ONNX Runtime's."""
    net = Net(("n", 4, "height", 9))
    h = "x"
    for i in range(2):
        h, scale, at = net.node("DynamicQuantizeLinear", h, n=3)
        w = net.constant(
            RNG.integers(*((-127, 128) if kind == "int8" else (0, 256)), (4, 4 // group, 3, 3)).astype(kind)
        )
        step, w_zero = net.constant(np.float32(0.013)), net.constant(np.asarray(3 if kind == "int8" else 120, kind))
        sums = net.node("ConvInteger", h, w, at, w_zero, pads=[1] * 4, strides=[1, 2 - i], group=group)
        unit = net.node("Mul", scale, step)
        bias = net.node("Div", net.constant(RNG.uniform(-1, 1, (1, 4, 1, 1)).astype(np.float32)), unit)
        bias = net.node("Cast", net.node("Floor", bias), to=TensorProto.INT32)
        sums = net.node("Cast", net.node("Add", sums, bias), to=TensorProto.FLOAT)
        h = net.node("Mul", sums, unit)
        h = net.node("Mul", h, net.node("Sigmoid", h))
    proto = net.model(h)
    model, plain = (kinnor.onnx.Model(onnx.load_from_string(proto.SerializeToString())) for _ in range(2))
    plain.get_parameters()
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    given = [RNG.uniform(-2, 1, (n, 4, height, 9)).astype(np.float32) for n, height in ((2, 8), (2, 8), (1, 11))]
    first = model(given[0])
    for x in (*given[1:], np.zeros((2, 4, 8, 9), np.float32), given[0]):
        found, (wanted,) = model(x), session.run(None, {"x": x})
        step = np.abs(wanted).max() / 100
        np.testing.assert_allclose(found, wanted, atol=step)
        np.testing.assert_allclose(found, plain(x), atol=step)
    np.testing.assert_array_equal(found, first)
    held = {}
    next(iter(model._cache.graphs.values())).roots[0].visit(lambda f: held.setdefault(f, f.info.type_name))
    counted = Counter(held.values())
    assert counted["QuantizedConvolution"] == counted["DynamicQuantizeUint8"] == counted["Swish"] == 2
    assert not counted["Convolution"] + counted["Add2"] + counted["DequantizeUint8"]


def test_sums_between_that_are_outputs():
    """Integer sums that are outputs themselves keep their numbers beside the fused functions."""
    net = Net((2, 5, 6, 7))
    h, scale, at = net.node("DynamicQuantizeLinear", "x", n=3)
    w = net.constant(RNG.integers(-127, 128, (3, 5, 3, 2)).astype(np.int8))
    sums = net.node("ConvInteger", h, w, at, dilations=[2, 1])
    with_bias = net.node("Add", sums, net.constant(np.int32([[[5]], [[-70]], [[9000]]])))
    y = net.node("Mul", net.node("Cast", with_bias, to=TensorProto.FLOAT), scale)
    proto = net.model(y)
    proto.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in (sums, with_bias, h))
    model = kinnor.onnx.Model(onnx.load_from_string(proto.SerializeToString()))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for _ in range(3):
        x = RNG.uniform(-2, 1, (2, 5, 6, 7)).astype(np.float32)
        for found, wanted in zip(model(x), session.run(None, {"x": x}), strict=True):
            assert found.dtype == wanted.dtype
            np.testing.assert_array_equal(found, wanted)

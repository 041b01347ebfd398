"""ONNX: the node tests and converted networks of the package `onnx`, damaged files, and training."""

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx_cases import array, cases_of
from onnx_harness import called_in_every_way

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.solvers as S
from kinnor.onnx.read.tables import SUBJECTS


def assert_close(y, expected):
    """Asserts that a result equals the expected one within the tolerance."""
    if expected is None:
        assert y is None
    elif isinstance(expected, list):
        assert isinstance(y, list)
        assert len(y) == len(expected)
        for item, wanted in zip(y, expected, strict=True):
            assert_close(item, np.asarray(wanted))
    else:
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(y.astype(np.float64), expected.astype(np.float64), rtol=1e-3, atol=1e-6)


def passes(case):
    """Asserts that a case passes, and that its model gives the same results in each kind of call."""
    model = kinnor.onnx.Model(case.model)
    for inputs, outputs in case.data_sets:
        found = model(*(array(x) for x in inputs))
        for y, expected in zip(found if isinstance(found, tuple) else (found,), map(array, outputs), strict=True):
            assert_close(y, expected)
        called_in_every_way(case.model, model, [array(x) for x in inputs], found)


# Minimum numbers of passing cases, counted with version 1.23 of the package. Each release adds some.
FLOORS = {
    "Arithmetic": 331,
    "Shapes": 153,
    "Convolutions and pooling": 61,
    "Reductions": 148,
    "Normalization": 53,
    "Recurrent": 18,
    "Quantization": 26,
    "Images and detection": 35,
    "Fused by ONNX Runtime": 0,
    "Transformers": 0,
    "Trees": 0,
    "Classical models": 0,
    "Loops": 6,
    "Sequences and optional values": 16,
    "Fourier transforms": 12,
    "Computed while the graph is built": 74,
}


DEFINED = {
    "Attention": 15,
    "CenterCropPad": 6,
    "NegativeLogLikelihoodLoss": 18,
    "RotaryEmbedding": 8,
    "SequenceMap": 6,
    "SoftmaxCrossEntropyLoss": 34,
}
"""Minimum numbers of passing cases of operators that ONNX defines as functions of other operators."""


CONVERTED = {"pytorch-converted": 80, "pytorch-operator": 31, "simple": 7}
"""Minimum numbers of passing cases of networks, by folder."""


@pytest.mark.parametrize("subject", SUBJECTS)
def test_nodes(subject):
    """At least `FLOORS` of the cases of the ONNX standard pass, by subject."""
    failed, cases = [], cases_of(SUBJECTS[subject])
    for case in cases:
        try:
            passes(case)
        except (nn.UnsupportedError, kinnor.onnx.OnnxError, AssertionError) as error:
            failed.append(f"{case.name}: {str(error)[:200]}")
    assert len(cases) - len(failed) >= FLOORS[subject], "\n".join(failed)


@pytest.mark.parametrize("dtype", ["float32", "int32", "bool"])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_maximum_over_an_empty_axis(dtype, keepdims):
    """The maximum and minimum over an empty axis are the extremes of the type."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    nodes = [helper.make_node(f"Reduce{name}", ["x", "axes"], [name], keepdims=keepdims) for name in ("Max", "Min")]
    made = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", kind, [2, 0])],
        [helper.make_empty_tensor_value_info(node.output[0]) for node in nodes],
        [numpy_helper.from_array(np.array([1]), "axes")],
    )
    model = kinnor.onnx.Model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)]))
    least = {"float32": -np.inf, "int32": -(2**31), "bool": False}[dtype]
    most = {"float32": np.inf, "int32": 2**31 - 1, "bool": True}[dtype]
    for y, wanted in zip(model(np.zeros((2, 0), dtype)), (least, most), strict=True):
        assert (y.dtype, y.shape) == (dtype, (2, 1) if keepdims else (2,))
        assert (y == wanted).all()


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("scale", [0.5, 1.5, 3.0])
def test_a_resize_with_pixel_centers_of_tensorflow(mode, scale):
    """`tf_half_pixel_for_nn`, which occurs in files of operator sets 11 and 12."""
    node = helper.make_node(
        "Resize", ["x", "roi", "scales"], ["y"], mode=mode, coordinate_transformation_mode="tf_half_pixel_for_nn"
    )
    made = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 4, 6])],
        [helper.make_empty_tensor_value_info("y")],
        [
            numpy_helper.from_array(np.zeros(0, np.float32), "roi"),
            numpy_helper.from_array(np.array([1, 1, scale, scale], np.float32), "scales"),
        ],
    )
    message = helper.make_model(made, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    x = np.random.RandomState(0).randn(1, 2, 4, 6).astype(np.float32)
    (wanted,) = onnxruntime.InferenceSession(message.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(kinnor.onnx.Model(message)(x), wanted, rtol=1e-5, atol=1e-6)


def test_a_cast_to_float16_rounds_as_float16_does():
    made = helper.make_graph(
        [
            helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
            helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT),
        ],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
    )
    model = kinnor.onnx.Model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)]))
    rng = np.random.default_rng(0)
    powers = np.exp2(np.arange(-27.0, 18.0))
    ends = [0.0, 65504, 65519.9, 65520, 1e30, np.inf, np.nan, *powers, *(powers * (1 + 2.0**-11)), *(powers * 1.4995)]
    x = np.concatenate([rng.standard_normal(20000) * np.exp(rng.uniform(-20, 12, 20000)), ends]).astype(np.float32)
    x = np.concatenate([x, -x])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(model(x), x.astype(np.float16).astype(np.float32))
    v = nn.Variable.from_numpy_array(np.array([0.1, 1e5, 3.0], np.float32), need_grad=True)
    v.g = 0
    y = model(v)
    y.forward()
    y.backward(1)
    np.testing.assert_array_equal(v.g, [1, 0, 1])


def test_shapes_computed_from_large_inputs():
    """Elements are selected at positions computed from a large input. A variable as the input is refused."""
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["y"]),
        helper.make_node("Greater", ["y", "three"], ["many"]),
        helper.make_node("NonZero", ["many"], ["places"]),
        helper.make_node("Squeeze", ["places", "first"], ["flat"]),
        helper.make_node("Gather", ["y", "flat"], ["found"]),
        helper.make_node("Neg", ["found"], ["minus"]),
    ]
    sides = [
        [helper.make_tensor_value_info(name, kind, [None])]
        for name, kind in (("x", TensorProto.FLOAT), ("minus", TensorProto.FLOAT))
    ]
    held = [
        numpy_helper.from_array(np.array(value), name)
        for name, value in (("two", np.float32(2)), ("three", np.float32(3)), ("first", [0]))
    ]
    graph = helper.make_graph(nodes, "net", *sides, held)
    model = kinnor.onnx.Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    rng = np.random.default_rng(0)
    for n in (300_000, 10, 300_000, 0):
        x = rng.standard_normal(n).astype(np.float32)
        np.testing.assert_array_equal(model(x), -2 * x[2 * x > 3])
    with pytest.raises(kinnor.onnx.OnnxError, match=r"some that depend on the values of \['x'\]"):
        model(nn.Variable.from_numpy_array(x[:10]))


def test_results_before_computed_shapes_are_reused():
    """Values before a shape that depends on them are computed once in each call."""

    def tensor(name, *shape):
        """Describes a float tensor."""
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    rng = np.random.default_rng(1)
    w = rng.standard_normal((4, 5)).astype(np.float32)
    held = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.float32(0), "zero")]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("SplitToSequence", ["h"], ["rows"], axis=0, keepdims=0),
        helper.make_node("Greater", ["h", "zero"], ["is_positive"]),
        helper.make_node("NonZero", ["is_positive"], ["places"]),
        helper.make_node("Transpose", ["places"], ["pairs"]),
        helper.make_node("GatherND", ["h", "pairs"], ["positive"]),
        helper.make_node("ReduceMean", ["positive"], ["mean"], keepdims=0),
        helper.make_node("Greater", ["positive", "mean"], ["is_large"]),
        helper.make_node("Compress", ["positive", "is_large"], ["large"], axis=0),
        helper.make_node("ConcatFromSequence", ["rows"], ["y"], axis=0),
    ]
    outputs = [tensor("large", None), tensor("y", None), tensor("h", None, 5)]
    made = helper.make_graph(nodes, "net", [tensor("x", None, 4)], outputs, held)
    model = kinnor.onnx.Model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)]))
    for n in (3, 7, 3, 3, 7, 1):
        x = rng.standard_normal((n, 4)).astype(np.float32)
        large, y, h = model(x)
        np.testing.assert_allclose(h, x @ w, 1e-5, 1e-6)
        np.testing.assert_array_equal(y, h.ravel())
        found = h[h > 0]
        np.testing.assert_array_equal(large, found[found > found.mean()] if found.size else found)
    assert len(model._cache.graphs) == 3
    model.get_parameters()["w"].d *= 2
    for _ in range(2):
        np.testing.assert_allclose(model(x)[2], 2 * (x @ w), 1e-5, 1e-6)


@pytest.mark.parametrize("kind", ["Mul", "Add", "CumSum", "ReduceSum"])
def test_integers_that_float64_rounds_are_refused_inside(kind):
    def tensor(name):
        """Describes an int64 tensor of one axis."""
        return helper.make_tensor_value_info(name, TensorProto.INT64, [None])

    nodes = {
        "Mul": helper.make_node("Mul", ["x", "x"], ["large"]),
        "Add": helper.make_node("Add", ["x", "x"], ["large"]),
        "CumSum": helper.make_node("CumSum", ["x", "zero"], ["large"]),
        "ReduceSum": helper.make_node("ReduceSum", ["x"], ["large"]),
    }
    held = [numpy_helper.from_array(np.array(0), "zero"), numpy_helper.from_array(np.array(7), "seven")]
    chain = [
        nodes[kind],
        helper.make_node("Mod", ["large", "seven"], ["y"]),
        helper.make_node("Neg", ["large"], ["no"]),
    ]
    made = helper.make_graph(chain, "net", [tensor("x")], [tensor("y")], held)
    model = kinnor.onnx.Model(helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)]))
    small = {"Mul": 60_000_000, "Add": 1 << 52, "CumSum": 3 << 50, "ReduceSum": 3 << 50}[kind]
    x = np.array([small - 9, -3, small - 5])
    for given in (x, x // 2):
        exact = {"Mul": given * given, "Add": given + given, "CumSum": given.cumsum(), "ReduceSum": given.sum()}[kind]
        assert model(given).ravel().tolist() == np.ravel(exact % 7).tolist()
    with pytest.raises(kinnor.onnx.OnnxError, match=f"{kind} 'large': expected integers below 2"):
        model(x * 2)
    assert model(x // 2).shape == model(x).shape


@pytest.mark.parametrize("name", DEFINED)
def test_operators_that_are_defined_by_others(name):
    """At least the known number of cases passes for operators that are composed of others."""
    failed, cases = [], cases_of({("", name): None})[:: 5 if name == "Attention" else 1]
    for case in cases:
        try:
            passes(case)
        except (nn.UnsupportedError, kinnor.onnx.OnnxError, AssertionError) as error:
            failed.append(f"{case.name}: {str(error)[:200]}")
    assert len(cases) - len(failed) >= DEFINED[name], (len(cases), failed)


def test_operators_of_transformers(tmp_path):
    """Operators of Microsoft's domain that transformers use give the right values."""
    rng = np.random.default_rng(0)

    def tensor(name, *shape, of=None):
        """Returns a tensor with random or given values."""
        values = rng.normal(size=shape).astype(np.float32) if of is None else of
        return numpy_helper.from_array(values, name)

    def node(kind, inputs, n=1, **attributes):
        """Returns a node of Microsoft's domain."""
        return helper.make_node(kind, inputs, [f"y{i}" for i in range(n)], domain="com.microsoft", **attributes)

    mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], np.int32)
    x, ids = rng.normal(size=(2, 4, 8)).astype(np.float32), rng.integers(5, size=(2, 4)).astype(np.int32)
    packed = rng.integers(256, size=(3, 1, 8)).astype(np.uint8)
    tables = [tensor("words", 5, 8), tensor("places", 6, 8), tensor("kinds", 2, 8), tensor("g", 8), tensor("b", 8)]
    weights = [tensor("w", 8, 24), tensor("wb", 24), tensor("m", of=mask)]
    cases = [
        (node("Attention", ["x", "w", "wb", "m"], num_heads=2), {"x": x}, weights),
        (node("Attention", ["x", "w", "wb"], num_heads=2, unidirectional=1), {"x": x}, weights[:2]),
        (
            node(
                "EmbedLayerNormalization", ["ids", "kind", "words", "places", "kinds", "g", "b", "m"], 2, epsilon=1e-6
            ),
            {"ids": ids, "kind": ids % 2},
            [*tables, weights[2]],
        ),
        (
            node("MatMulNBits", ["x", "q", "s", "z"], K=8, N=3, bits=4, block_size=16),
            {"x": x},
            [tensor("q", of=packed), tensor("s", 3), tensor("z", of=np.array([[3], [8], [5]], np.uint8))],
        ),
    ]
    for made, given, held in cases:
        outputs = [helper.make_empty_tensor_value_info(name) for name in made.output]
        inputs = [info(k, v.shape, helper.np_dtype_to_tensor_dtype(v.dtype)) for k, v in given.items()]
        graph = helper.make_graph([made], "net", inputs, outputs, held)
        versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
        proto = helper.make_model(graph, opset_imports=versions, ir_version=8)
        onnx.save(proto, tmp_path / "net.onnx")
        found = kinnor.onnx.load(tmp_path / "net.onnx")(**given)
        session = onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
        for y, wanted in zip(found if isinstance(found, tuple) else (found,), session.run(None, given), strict=True):
            np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4, err_msg=made.op_type)


def test_functions_of_a_file_are_inlined():
    """An operator that the file defines by other operators is computed."""
    body = [helper.make_node("Relu", ["a"], ["h"]), helper.make_node("Add", ["h", "a"], ["b"])]
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    function = helper.make_function("mine", "Both", ["a"], ["b"], body, versions[:1])
    node = helper.make_node("Both", ["x"], ["y"], domain="mine")
    graph = helper.make_graph([node], "net", [info("x", [2])], [info("y", [2])])
    model = kinnor.onnx.Model(helper.make_model(graph, functions=[function], opset_imports=versions))
    np.testing.assert_array_equal(model(np.array([-1, 2], np.float32)), [-1, 4])


@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator", "simple"])
def test_networks(kind):
    """At least `CONVERTED` of the small networks of the ONNX standard pass, by folder."""
    failed, cases = [], load_model_tests(kind=kind)
    for case in cases:
        folder = Path(case.model_dir)
        try:
            model = kinnor.onnx.load(folder / "model.onnx")
            for data in sorted(folder.glob("test_data_set_*")):
                inputs, outputs = (
                    [numpy_helper.to_array(onnx.load_tensor(path)) for path in sorted(data.glob(f"{way}_*.pb"))]
                    for way in ("input", "output")
                )
                found = model(*inputs[: len(model.inputs)])
                for y, expected in zip(found if isinstance(found, tuple) else (found,), outputs, strict=True):
                    np.testing.assert_allclose(y, expected, rtol=1e-3, atol=1e-5)
        except (nn.UnsupportedError, kinnor.onnx.OnnxError, AssertionError) as error:
            failed.append(f"{case.name}: {str(error)[:200]}")
    assert len(cases) - len(failed) >= CONVERTED[kind], "\n".join(failed)


def saved(path, nodes, inputs, outputs, initializers=(), opset=17):
    """Writes a model and returns its path."""
    graph = helper.make_graph(nodes, "net", inputs, outputs, list(initializers))
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)]), path)
    return path


def info(name, shape, kind=TensorProto.FLOAT):
    """Describes an input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


@pytest.fixture
def affine(tmp_path):
    """Writes a small network. Returns its path and its weight."""
    w = np.random.default_rng(0).normal(size=(3, 2)).astype(np.float32)
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node("Tanh", ["h"], ["y"])]
    held = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(np.ones(2, np.float32), "b")]
    return saved(tmp_path / "net.onnx", nodes, [info("x", ["n", 3])], [info("y", ["n", 2])], held), w


def test_batch_sizes_are_symbolic(affine):
    """A model with a symbolic batch takes batches of any size, and refuses other shapes."""
    model = kinnor.onnx.load(affine[0])
    assert (model.inputs, model.outputs) == (["x"], ["y"])
    for n in (1, 4, 1):
        x = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
        np.testing.assert_allclose(model(x), np.tanh(x @ affine[1] + 1), rtol=1e-5)
        np.testing.assert_array_equal(model(x=x), model(x))
    with pytest.raises(nn.ShapeError, match="expected shape"):
        model(np.zeros((1, 4), np.float32))
    with pytest.raises(nn.CallError, match="expected inputs"):
        model()


def test_a_loaded_model_is_trained(affine):
    """A solver trains the parameters of a loaded model."""
    model = kinnor.onnx.load(affine[0])
    x = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    before = model(x)
    loss = F.mean(F.squared_error(model(nn.Variable.from_numpy_array(x)), nn.Variable.from_numpy_array(before * 0)))
    solver = S.Sgd(lr=0.5)
    solver.set_parameters(model.get_parameters())
    for _ in range(20):
        solver.zero_grad()
        loss.forward()
        loss.backward()
        solver.update()
    assert np.square(model(x)).mean() < 0.2 * np.square(before).mean()


def test_missing_operators_are_named(tmp_path):
    """The error for an unknown operator names operator, version and node."""
    node = helper.make_node("RandomUniformLike", ["x"], ["y"], name="the_node")
    path = saved(tmp_path / "net.onnx", [node], [info("x", [2, 2])], [info("y", [2, 2])])
    with pytest.raises(nn.UnsupportedError, match=r"RandomUniformLike-17 \(node 'the_node'\)"):
        kinnor.onnx.load(path)


def test_shapes_that_are_computed_are_folded(tmp_path):
    """A `Reshape` whose target is computed from the input's shape works for any batch."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    held = [("zero", np.int64(0)), ("axes", np.array([0])), ("rest", np.array([2, -1]))]
    held = [numpy_helper.from_array(np.asarray(x, np.int64), name) for name, x in held]
    path = saved(tmp_path / "net.onnx", nodes, [info("x", ["n", 3, 4])], [info("y", ["n", 2, 6])], held)
    assert kinnor.onnx.load(path)(np.zeros((5, 3, 4), np.float32)).shape == (5, 2, 6)


def test_files_of_tensors_stay_in_the_folder(tmp_path, affine):
    """External data outside of the model's folder is refused."""
    folder = tmp_path / "inside"
    folder.mkdir()
    model = onnx.load(affine[0])
    onnx.save(model, folder / "net.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    x = np.ones((1, 3), np.float32)
    np.testing.assert_array_equal(kinnor.onnx.load(folder / "net.onnx")(x), kinnor.onnx.load(affine[0])(x))
    (tmp_path / "w.bin").write_bytes((folder / "w.bin").read_bytes())
    proto = onnx.load(folder / "net.onnx", load_external_data=False)
    for location in ("../w.bin", str(tmp_path / "w.bin"), "none.bin", "", "."):
        for tensor in proto.graph.initializer:
            tensor.external_data[0].value = location
        (folder / "bad.onnx").write_bytes(proto.SerializeToString())
        with pytest.raises(kinnor.onnx.OnnxError, match="in the folder of the model"):
            kinnor.onnx.load(folder / "bad.onnx")


@pytest.mark.parametrize(
    ("kind", "x", "constant", "told"),
    [
        ("Add", [1 << 24, 1 << 40], 0, None),
        ("Add", [3, (1 << 24) + 1], 0, None),
        ("Sub", [3, (1 << 52) + 1], (1 << 40) + 1, None),
        ("Mul", [5000, -5001], 5003, None),
        ("Add", [3, -(1 << 53) - 1], 0, "input 'x': expected .* got -9007199254740993"),
        ("Add", [0, 0], (1 << 53) + 3, "a constant: expected .* got 9007199254740995"),
        ("Mul", [1 << 30, 5], 1 << 30, "output 'y': expected .* got 1152921504606846976"),
        ("Add", [-(1 << 53), 1], -1, "output 'y': expected .* got -9007199254740992"),
        ("Sub", [(1 << 24) - 1, 1], 3, None),
    ],
)
def test_integers_are_exact_or_refused(tmp_path, kind, x, constant, told):
    held = [numpy_helper.from_array(np.array([constant]), "c")]
    nodes = [helper.make_node(kind, ["x", "c"], ["y"])]
    types = [helper.make_tensor_value_info(name, TensorProto.INT64, [2]) for name in "xy"]
    if x[1] == 1 << 40:
        nodes = [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)]
        types[1] = info("y", [2])
    model = kinnor.onnx.load(saved(tmp_path / "net.onnx", nodes, [types[0]], [types[1]], held))
    if told is not None:
        with pytest.raises(kinnor.onnx.OnnxError, match=told):
            model(np.array(x))
    else:
        expected = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[kind](x, constant)
        np.testing.assert_array_equal(model(np.array(x)), expected)


def test_broken_files_are_refused(tmp_path, affine):
    """Randomly damaged files raise typed errors, or load."""
    whole = affine[0].read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for k in range(60):
        broken = bytearray(whole[: rng.integers(len(whole))] if k % 3 == 0 else whole)
        for place in rng.integers(len(broken), size=3) if broken else ():
            broken[place] = rng.integers(256)
        (tmp_path / "broken.onnx").write_bytes(broken)
        try:
            model = kinnor.onnx.load(tmp_path / "broken.onnx")
            model(np.ones((1, 3), np.float32))
        except nn.Error:
            refused += 1
    assert refused > 20


def test_a_million_nodes_are_refused_before_any_is_made(tmp_path):
    content = b"\x08\x09\x12\x01x"  # the version and the producer
    nodes = b"\x0a\x03\x22\x01x" * 1_000_000  # each an operator x
    length = len(nodes)
    graph = b"\x3a" + bytes([*(length >> 7 * i & 0x7F | 0x80 for i in range(3)), length >> 21]) + nodes
    (tmp_path / "net.onnx").write_bytes(content + graph)
    tracemalloc.start()
    try:
        with pytest.raises(kinnor.onnx.OnnxError, match="expected 100000 nodes at most, got 100001 or more"):
            kinnor.onnx.load(tmp_path / "net.onnx")
        assert tracemalloc.get_traced_memory()[1] < 2 * length
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["Expand", "Tile", "Pad", "ConstantOfShape", "Range"])
def test_arrays_that_do_not_fit_into_memory_are_refused(tmp_path, kind):
    number = np.int64(0 if kind == "Range" else 1)
    numbers = {"Pad": [0, 1 << 44], "Range": 1 << 44}.get(kind, [1 << 44])
    held = [numpy_helper.from_array(np.array(numbers, np.int64), "n"), numpy_helper.from_array(number, "k")]
    given = {"ConstantOfShape": ["n"], "Range": ["k", "n", "one"]}.get(kind, ["x", "n"])
    held.append(numpy_helper.from_array(np.int64(1), "one"))
    path = saved(
        tmp_path / "net.onnx", [helper.make_node(kind, given, ["y"])], [info("x", [1])], [info("y", None)], held
    )
    model = kinnor.onnx.load(path)
    with pytest.raises(kinnor.onnx.OnnxError, match=r"fit into .* bytes of memory"):
        model(np.ones(1, np.float32))

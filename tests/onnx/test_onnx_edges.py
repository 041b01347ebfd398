"""Every operator of ONNX on arrays without elements, and on 64-bit integers that it only moves, beside ONNX Runtime."""

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper
from onnx_cases import array, cases_of
from onnx_runtime import compared, model_of

import kinnor as nn
import kinnor.onnx
from kinnor.onnx.read.tables import SUBJECTS, TABLE

DOES_NOT_RETURN = {"ConvTranspose", "GRU", "LSTM", "Unique"}
"""Operators on which ONNX Runtime ends the process where an array has no elements."""

MALFORMED = {"Concat", "ConvInteger", "Dropout", "QLinearConv", "Split"}
"""Operators whose cases are malformed without elements, or random. ONNX Runtime gives numbers from elsewhere."""

LARGEST = {"Abs", "Max", "Min", "PRelu", "ReduceMax", "ReduceMin", "TopK"}
"""Operators that compare or compute. They refuse integers beyond 2^53."""

REDUCTIONS = {b"max", b"min", b"mul"}
"""Values of attributes with which operators that move elements compare or compute as well."""

MOST = 4
"""Cases of one operator."""


def session_of(proto):
    """Returns ONNX Runtime's session of a model, or None if it refuses the model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(proto.SerializeToString(), options)
    except Exception:
        return None


def open_model(case):
    """Returns the model of a case with open lengths."""
    proto = ModelProto()
    proto.CopyFrom(case.model)
    proto.ir_version = min(proto.ir_version, 10)
    for held in [*proto.graph.input, *proto.graph.output]:
        for axis in held.type.tensor_type.shape.dim:
            axis.Clear()
    return proto


def single_nodes(subject):
    """Yields operator, model and inputs of a few cases for each operator of a subject that computes tensors."""
    counts = {}
    for case in cases_of(SUBJECTS[subject]):
        nodes, graph = case.model.graph.node, case.model.graph
        held = [*graph.input, *graph.output]
        if len(nodes) != 1 or any(x.type.WhichOneof("value") != "tensor_type" for x in held):
            continue
        operator = nodes[0].op_type
        inputs = [array(x) for x in case.data_sets[0][0]]
        is_tensor = inputs and all(isinstance(x, np.ndarray) and x.dtype.name != "float16" for x in inputs)
        if is_tensor and counts.setdefault(operator, 0) < MOST and not any(a.HasField("g") for a in nodes[0].attribute):
            counts[operator] += 1
            yield operator, open_model(case), inputs


def without_elements(inputs):
    """Yields inputs with an axis of length 0: of the first array alone, and of all that are equally long there."""
    first = inputs[0]
    for axis, n in enumerate(first.shape):
        for are_all in (False, True)[: len(inputs)]:
            yield [
                np.take(x, [], axis) if not k or (are_all and x.ndim > axis and x.shape[axis] == n > 0) else x
                for k, x in enumerate(inputs)
            ]


def assert_same(found, wanted):
    """Asserts that all outputs have the type, the shape and nearly the numbers of ONNX Runtime's."""
    for y, expected in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert (y.dtype, y.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(np.float64(y), np.float64(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("subject", SUBJECTS)
def test_arrays_without_elements(subject):
    """Every operator takes arrays with an axis of length 0 that ONNX Runtime takes, first or after other lengths."""
    failed = []
    for operator, proto, inputs in single_nodes(subject):
        if operator in DOES_NOT_RETURN | MALFORMED or (session := session_of(proto)) is None:
            continue
        names = [held.name for held in proto.graph.input]
        model = kinnor.onnx.Model(proto)
        for given in without_elements(inputs):
            try:
                wanted = session.run(None, dict(zip(names, given, strict=True)))
            except Exception:
                continue
            try:
                assert_same(kinnor.onnx.Model(proto)(*given), wanted)
                first = model(*inputs)
                assert_same(model(*given), wanted)
                assert_same(model(*inputs), first if isinstance(first, tuple) else (first,))
            except nn.UnsupportedError:
                break
            except (nn.Error, AssertionError) as error:
                failed.append(f"{operator} {[x.shape for x in given]}: {str(error)[:200]}")
    assert not failed, "\n".join(failed)


def test_lengths_of_zero_after_others():
    """A graph for arrays with elements is not used for arrays without: the mean of none is 0 in ONNX Runtime."""
    nodes = [
        helper.make_node("Relu", ["x"], ["positive"]),
        helper.make_node("ReduceMean", ["positive"], ["mean"], axes=[1]),
        helper.make_node("Slice", ["x", "start", "end", "axis"], ["rest"]),
        helper.make_node("ReduceMean", ["rest"], ["mean_of_rest"], axes=[1]),
    ]
    held = {"start": np.array([2]), "end": np.array([2**62]), "axis": np.array([1])}
    proto = model_of(nodes, {"x": np.ones((3, 4), np.float32)}, ["mean", "mean_of_rest"], held)
    model, session = kinnor.onnx.Model(proto), session_of(proto)
    for shape in ((3, 4), (3, 0), (3, 5), (0, 5), (3, 2), (3, 1), (3, 6)):
        x = np.ones(shape, np.float32)
        assert_same(model(x), session.run(None, {"x": x}))


@pytest.mark.parametrize("n_steps", [0, 1])
@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_recurrent_layers_without_steps(kind, n_steps):
    """A recurrent layer over no steps gives no outputs and the state that it was given."""
    n = {"GRU": 3, "LSTM": 4, "RNN": 1}[kind] * 4
    feed = {
        "x": np.ones((n_steps, 2, 3), np.float32),
        "w": np.ones((1, n, 3), np.float32),
        "r": np.ones((1, n, 4), np.float32),
        "h": np.full((1, 2, 4), 5, np.float32),
    }
    node = helper.make_node(kind, ["x", "w", "r", "", "", "h"], ["y", "end"], hidden_size=4)
    y, end = kinnor.onnx.Model(model_of([node], feed, ["y", "end"]))(*feed.values())
    assert y.shape == (n_steps, 1, 2, 4)
    np.testing.assert_array_equal(end, feed["h"] if not n_steps else y[-1])


def large(rng, shape):
    """Returns odd integers beyond 2^53, which float64 does not have."""
    return (2**53 + 1 + 2 * rng.integers(0, 2**61, shape)).astype(np.int64)


def of_large_integers(proto, inputs, rng):
    """Changes the type of what a model computes with to int64, and returns inputs with large integers."""
    kind = proto.graph.input[0].type.tensor_type.elem_type
    given = []
    for k, (held, x) in enumerate(zip(proto.graph.input, inputs, strict=True)):
        is_data = held.type.tensor_type.elem_type == kind and (not k or x.dtype.kind == "f")
        if is_data and held.name not in ("roi", "scales"):
            held.type.tensor_type.elem_type = TensorProto.INT64
            given.append(large(rng, x.shape))
        else:
            given.append(x)
    for held in proto.graph.output:
        if held.type.tensor_type.elem_type == kind:
            held.type.tensor_type.elem_type = TensorProto.INT64
    return given


@pytest.mark.parametrize("subject", SUBJECTS)
def test_integers_beyond_float64_that_are_only_moved(subject):
    """Operators whose results are elements of their inputs give the same integers as ONNX Runtime, of any size."""
    failed, rng = [], np.random.default_rng(0)
    for operator, proto, inputs in single_nodes(subject):
        given = of_large_integers(proto, inputs, rng)
        if (session := session_of(proto)) is None:
            continue
        try:
            wanted = session.run(None, dict(zip([held.name for held in proto.graph.input], given, strict=True)))
        except Exception:
            continue
        known = np.concatenate([[0], *(x.ravel() for x in given if x.dtype == np.int64)])
        if wanted[0].dtype != np.int64 or not np.isin(wanted[0], known).all() or not (wanted[0] > 2**53).any():
            continue
        model = kinnor.onnx.Model(proto)
        try:
            for _ in range(2):
                found = model(*given)
                for y, expected in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
                    np.testing.assert_array_equal(y, expected)
        except nn.UnsupportedError:
            continue
        except (nn.Error, AssertionError) as error:
            computes = operator in LARGEST or any(held.s in REDUCTIONS for held in proto.graph.node[0].attribute)
            if not computes or not isinstance(error, kinnor.onnx.OnnxError):
                failed.append(f"{operator} {[x.shape for x in given]}: {str(error)[:200]}")
    assert not failed, "\n".join(failed)


def test_integers_that_are_moved_and_computed_with_are_refused():
    """An input that functions move on one path and compute with on another must be exact in float64."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["moved"]),
        helper.make_node("Add", ["x", "x"], ["sum"]),
    ]
    x = np.array([[3, 4]])
    model = kinnor.onnx.Model(model_of(nodes, {"x": x}, ["moved", "sum"]))
    np.testing.assert_array_equal(model(x)[1], 2 * x)
    with pytest.raises(kinnor.onnx.OnnxError, match="integers that float64 has"):
        model(x + 2**53)


def test_roots_of_negative_infinity():
    """The root of negative infinity is NaN, as in ONNX Runtime, also after its length changes."""
    node = helper.make_node("Sqrt", ["x"], ["y"])
    x = np.array([-np.inf, -1, 0, np.inf, np.nan, 4], np.float32)
    proto = model_of([node], {"x": x}, ["y"])
    model, session = kinnor.onnx.Model(proto), session_of(proto)
    for given in (x, x[:2], x[::-1].copy(), x):
        np.testing.assert_array_equal(model(given), session.run(None, {"x": given})[0])
    variable = nn.Variable.from_numpy_array(np.array([4.0, 0.25], np.float32), need_grad=True)
    variable.grad.zero()
    y = model(variable)
    y.forward()
    y.backward()
    assert variable.g.tolist() == [0.25, 1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, np.int64])
@pytest.mark.parametrize("place", [1, 2])
@pytest.mark.parametrize("shapes", [((3, 4), (3, 4)), ((4,), (3, 4)), ((3, 1), (1, 4)), ((), (2, 3)), ((2, 3), ())])
def test_numbers_that_where_chooses(shapes, place, dtype):
    """`Where` with a number broadcasts condition and array, and chooses between NaN and infinity."""
    rng = np.random.default_rng(0)
    real = np.dtype(dtype).kind == "f"
    names = ["c", "v", "x"] if place == 1 else ["c", "x", "v"]
    for number in (np.array(-7, dtype), np.array([[5]], dtype), np.array(-np.inf if real else 2**30, dtype)):
        feeds = []
        for more in (0, 1, 0):
            c, x = (tuple(n + more if n > 1 else n for n in shape) for shape in shapes)
            array = np.asarray(rng.standard_normal(x) * 10).astype(dtype)
            if real and array.size > 1:
                array.flat[0] = np.nan
            feeds.append({"c": np.asarray(rng.random(c) < 0.5), "x": array})
        compared([helper.make_node("Where", names, ["y"])], feeds, ["y"], {"v": number})


@pytest.mark.parametrize("subject", ["Shapes"])
def test_operators_are_in_the_cases(subject):
    """The cases cover most operators of a subject, so that the tests above compare something."""
    found = {operator for operator, _, _ in single_nodes(subject)}
    assert len(found) > 0.6 * sum(not domain for domain, _ in SUBJECTS[subject]), found
    assert all(("", operator) in TABLE for operator in found)

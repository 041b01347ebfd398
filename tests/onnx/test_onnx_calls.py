"""Calls of ONNX models read inputs in place and return outputs without a copy. Only the run time shows it."""

import gc
import weakref

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
from kinnor._core import are_small_whole, plans_made
from kinnor.onnx.read.building import Builder

RNG = np.random.default_rng(7)
LARGE = 300
"""Rows of an array that is large enough to be read in place, not copied."""


def info(name, *shape, kind=TensorProto.FLOAT):
    """Describes an input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes, inputs, outputs, held=()):
    """Returns a model of these nodes."""
    graph = helper.make_graph(nodes, "net", inputs, outputs, list(held))
    return kinnor.onnx.Model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def array(n=LARGE):
    """Returns an array of `n` rows."""
    return RNG.standard_normal((n, 64)).astype(np.float32)


@pytest.fixture
def model():
    """A model with products of the input, the input itself, and one output under two names."""
    held = [numpy_helper.from_array(np.float32(2), "two")]
    nodes = [
        helper.make_node("Mul", ["x", "two"], ["y"]),
        helper.make_node("Add", ["y", "x"], ["z"]),
        helper.make_node("Identity", ["x"], ["same"]),
    ]
    outputs = [info(name, None, 64) for name in ("y", "z", "same", "y", "x")]
    return model_of(nodes, [info("x", None, 64)], outputs, held)


@pytest.mark.parametrize("n", [2, LARGE])
def test_inputs_are_not_changed(model, n):
    """A call changes neither its input nor the outputs of earlier calls."""
    kept = []
    for _ in range(4):
        x = array(n)
        before = x.copy()
        found = model(x)
        np.testing.assert_array_equal(x, before)
        kept.append((before, found, [y.copy() for y in found]))
    for before, found, copies in kept:
        for y, copy, factor in zip(found, copies, (2, 3, 1, 2, 1), strict=True):
            np.testing.assert_array_equal(y, copy)
            np.testing.assert_allclose(y, factor * before, rtol=1e-6)


@pytest.mark.parametrize("n", [2, LARGE])
def test_outputs_are_the_callers_own(model, n):
    """Outputs are writable arrays that share no memory with inputs, weights or each other."""
    x = array(n)
    for _ in range(3):
        before = x.copy()
        for y in model(x):
            assert y.flags.writeable
            y[:] = np.nan
        np.testing.assert_array_equal(x, before)
        found = model(x=x)
        assert all(np.isfinite(y).all() for y in found)
        assert not any(np.shares_memory(a, b) for i, a in enumerate(found) for b in (*found[:i], x))


def test_inputs_in_any_layout(model):
    """Inputs may be strided, unaligned, read-only, of another type or byte order."""
    wide = RNG.standard_normal((LARGE, 128)).astype(np.float32)
    shifted = np.frombuffer(b"abc" + array().tobytes(), np.uint8)[3:].view(np.float32).reshape(LARGE, 64)
    frozen = array()
    frozen.flags.writeable = False
    for x in (wide[:, ::2], wide[::-1, :64], shifted, frozen, array().astype(np.float64), array().astype(">f4")):
        for _ in range(2):
            np.testing.assert_allclose(model(x)[1], 3 * x, rtol=1e-5)


def test_no_array_is_held_after_a_call(model):
    """A model keeps no reference to an input after the call."""

    class Array(np.ndarray):
        """An array with a weak reference."""

    for kind in (np.ndarray, Array):
        x = array().view(kind)
        gone = weakref.ref(x)
        model(x)
        model(x=x)
        del x
        gc.collect()
        assert gone() is None


def test_an_array_that_changes_between_calls_is_read_anew(model):
    x = array()
    for k in range(4):
        x[:] = k
        assert (model(x)[1] == 3 * k).all()
    with pytest.raises(nn.CallError):
        model(x, x=x)
    with pytest.raises(nn.CallError):
        model(y=x)


def test_outputs_are_inputs_of_the_next_call(model):
    """The output of a call may be passed as the next input."""
    x = first = array()
    for k in range(1, 6):
        x, z, *_ = model(x)
        np.testing.assert_allclose(x, 2**k * first, rtol=1e-5)
        np.testing.assert_allclose(z, 1.5 * x, rtol=1e-5)


def test_plans_stay_cached_while_inputs_change(model):
    """Calls with other arrays of the same shape make no new plan."""
    x, y = array(), array()
    model(x)
    model(y)
    before = plans_made()
    for _ in range(5):
        np.testing.assert_allclose(model(x)[0], 2 * x)
        np.testing.assert_allclose(model(y)[0], 2 * y)
    assert plans_made() == before


def test_inverse_transposes_are_removed():
    """Transpositions that undo each other are removed without changing outputs."""
    nodes = [
        helper.make_node("Neg", ["x"], ["h"]),
        helper.make_node("Transpose", ["h"], ["first"], perm=[1, 2, 0]),
        helper.make_node("Transpose", ["first"], ["second"], perm=[2, 0, 1]),
        helper.make_node("Transpose", ["second"], ["y"], perm=[1, 2, 0]),
        helper.make_node("Transpose", ["y"], ["z"], perm=[1, 2, 0]),
    ]
    model = model_of(nodes, [info("x", 2, 3, 4)], [info(name, None, None, None) for name in ("second", "y", "z")])
    x = RNG.standard_normal((2, 3, 4)).astype(np.float32)
    for y, axes in zip(model(x), ((0, 1, 2), (1, 2, 0), (2, 0, 1)), strict=True):
        np.testing.assert_array_equal(y, -x.transpose(axes))
    made = model(nn.Variable.from_numpy_array(x))
    names = []
    made[2].visit(lambda f: names.append(f.info.type_name))
    assert names.count("Transpose") == 2


def test_graphs_after_computed_shapes_are_built_once_for_each_shape(monkeypatch):
    built, added = [], []
    whole = Builder.build
    monkeypatch.setattr(Builder, "build", lambda *args, **named: built.append(named) or whole(*args, **named))
    again = Builder.again
    monkeypatch.setattr(Builder, "again", lambda *args: added.append(args[1].operator) or again(*args))
    nodes = [
        helper.make_node("Neg", ["x"], ["h"]),
        helper.make_node("Greater", ["h", "zero"], ["chosen"]),
        helper.make_node("NonZero", ["chosen"], ["places"]),
        helper.make_node("Transpose", ["places"], ["pairs"]),
        helper.make_node("GatherND", ["h", "pairs"], ["found"]),
        helper.make_node("Add", ["found", "one"], ["more"]),
        helper.make_node("Unique", ["more"], ["several"]),
        helper.make_node("Mul", ["several", "two"], ["y"]),
    ]
    held = [numpy_helper.from_array(np.float32(v), name) for v, name in ((0, "zero"), (1, "one"), (2, "two"))]
    model = model_of(nodes, [info("x", None)], [info("y", None), info("places", 1, None, kind=TensorProto.INT64)], held)

    def check(x):
        """Calls the model and compares it with NumPy."""
        y, places = model(x)
        assert places.dtype == np.int64
        np.testing.assert_array_equal(places[0], np.nonzero(-x > 0)[0])
        np.testing.assert_allclose(y, 2 * np.unique(-x[x < 0] + 1), rtol=1e-6)

    x = RNG.standard_normal(20).astype(np.float32)
    for _ in range(3):
        check(x)
    built.clear()
    added.clear()
    check(x)
    check(x[::-1].copy())  # other values of the same shapes
    assert not built
    assert added == ["NonZero", "Unique"] * 2  # these nodes are created again for other values
    for n in range(1, 13):  # more shapes than are cached
        check(-np.abs(x[:n]))
        check(x[:n])
    check(x)


def test_computed_boxes_are_selected_again_in_each_call():
    """`NonMaxSuppression` of computed boxes is not cached between calls."""
    nodes = [
        helper.make_node("Neg", ["x"], ["boxes"]),
        helper.make_node("Neg", ["p"], ["scores"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "share", "least"], ["places"]),
        helper.make_node("GatherND", ["scores", "places"], ["kept"]),
        helper.make_node("Sub", ["scores", "scores"], ["zeros"]),
        helper.make_node("ScatterND", ["zeros", "places", "kept"], ["y"]),
        helper.make_node("Mul", ["zeros", "one"], ["z"]),
    ]
    constants = [("most", np.int64(4)), ("share", np.float32(0.3)), ("least", np.float32(-0.5)), ("one", np.float32(1))]
    held = [numpy_helper.from_array(np.array(value), name) for name, value in constants]
    places = info("places", None, 3, kind=TensorProto.INT64)
    inputs = [info("x", 2, 9, 4), info("p", 2, 3, 9)]
    model = model_of(nodes, inputs, [info("y", 2, 3, 9), info("z", 2, 3, 9), places], held)
    lengths = set()
    for _ in range(30):
        corners = RNG.random((2, 9, 4)).astype(np.float32)
        scores = RNG.standard_normal((2, 3, 9)).astype(np.float32)
        y, z, found = model(-corners, -scores)
        chosen = F.onnx_non_max_suppression(*map(nn.NdArray.from_numpy_array, (corners, scores)), 0, 4, 0.3, -0.5).data
        np.testing.assert_array_equal(found, chosen)
        expected = np.zeros_like(scores)
        expected[tuple(chosen.T)] = scores[tuple(chosen.T)]
        np.testing.assert_array_equal(y, expected)
        assert not z.any()  # the scatter writes to an array of its own
        lengths.add(len(chosen))
    assert len(lengths) > 2


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_whole_numbers_are_small_in_every_layout(dtype):
    """`are_small_whole` finds integers that float32 cannot hold, in any layout."""
    x = np.arange(24, dtype=dtype).reshape(4, 6)
    assert are_small_whole(x)
    assert are_small_whole(x[:0])
    assert not are_small_whole(x[:, ::2])  # a strided array takes another code path
    for odd, is_small in ((1 << 23, False), ((1 << 23) - 1, True)):
        x[2, 3] = odd
        assert are_small_whole(x) == is_small
    if np.issubdtype(dtype, np.signedinteger):
        x[2, 3] = -(1 << 23)
        assert are_small_whole(x)
        x[2, 3] -= 1
        assert not are_small_whole(x)
    assert not are_small_whole(x.astype(np.float32))
    assert not are_small_whole(x.astype(x.dtype.newbyteorder()))

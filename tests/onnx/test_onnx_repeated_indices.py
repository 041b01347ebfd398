"""Indices of `GatherElements` and `ScatterElements` that `Expand` or `Tile` repeat, compared with ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx_runtime import compared, model_of

import kinnor.onnx
from kinnor.rewrite.patterns import above

RNG = np.random.default_rng(11)


def case(operator, data, short, full, axis, reduction=None, most=None):
    """Returns nodes that repeat indices of the shape `short` to `full`, and inputs of them.

    Args:
        operator: The operator that reads the indices.
        data: Shape of the array.
        short: Shape of the indices before they are repeated.
        full: Shape of the indices.
        axis: Axis of the array.
        reduction: What `ScatterElements` does with several elements for one place.
        most: Number of different indices; all of the axis by default. The other half of them counts from the end.
    """
    n = data[axis]
    count = int(np.prod(short)) if short else 1
    places = RNG.permutation(n)[:count] if reduction is None and count <= n else RNG.integers(0, most or n, count)
    places = np.where(np.arange(count) % 2, places, places - n).reshape(short)
    feed = {"x": RNG.standard_normal(data).astype(np.float32), "i": places.astype(np.int64)}
    feed["u"] = RNG.standard_normal(full).astype(np.float32)
    nodes = [helper.make_node("Shape", ["u"], ["s"]), helper.make_node("Expand", ["i", "s"], ["wide"])]
    if operator == "GatherElements":
        nodes += [
            helper.make_node(operator, ["x", "wide"], ["g"], axis=axis),
            helper.make_node("Mul", ["g", "u"], ["y"]),
        ]
    else:
        named = {"reduction": reduction} if reduction else {}
        nodes.append(helper.make_node(operator, ["x", "wide", "u"], ["y"], axis=axis, **named))
    return nodes, feed


SHAPES = [
    ((9, 4), (6, 1), (6, 4), 0),
    ((9, 4, 3), (6, 1, 1), (6, 4, 3), 0),
    ((9, 4, 3), (6, 4, 1), (6, 4, 3), 0),
    ((2, 9, 3), (2, 5, 1), (2, 5, 3), 1),
    ((2, 9, 3), (5, 1), (2, 5, 3), -2),
    ((3, 9, 4, 2), (1, 5, 1, 1), (2, 5, 4, 2), 1),  # the array is longer along the first axis
    ((9, 4), (6, 1), (6, 2), 0),  # and along the last
    ((9, 4, 3), (6, 1, 1), (6, 2, 3), 0),
    ((9, 4), (1, 4), (6, 4), 0),  # repeated along the axis itself
    ((9, 4), (6, 4), (6, 4), 0),  # not repeated
    ((4, 9), (6,), (4, 6), 1),
    ((9,), (1,), (6,), 0),
    ((9, 1), (6, 1), (6, 1), 0),
]


@pytest.mark.parametrize("reduction", ["gather", "add"])
@pytest.mark.parametrize("shapes", SHAPES)
def test_repeated_indices(shapes, reduction):
    operator = "GatherElements" if reduction == "gather" else "ScatterElements"
    nodes, feed = case(operator, *shapes, reduction="add" if reduction == "add" else None)
    other = {**feed, "x": feed["x"][::-1].copy(), "i": feed["i"][::-1].copy()}
    compared(nodes, [feed, other], ["y"])


def has_one_element_for_a_place(data, short, full, axis):
    """True if indices can name each place once, so that the order of the elements does not matter."""
    at = axis % len(full) - len(full)
    return np.prod(short) <= data[at] and short[at] == full[at]


@pytest.mark.parametrize("shapes", [held for held in SHAPES if has_one_element_for_a_place(*held)])
def test_elements_that_are_replaced_at_repeated_indices(shapes):
    nodes, feed = case("ScatterElements", *shapes)
    compared(nodes, [feed, {**feed, "u": -feed["u"]}], ["y"])


def test_lengths_with_and_without_repeats():
    """One model gets indices that repeat along an axis, and indices that do not, in turn."""
    feeds = []
    for c, d in ((4, 1), (1, 1), (4, 4), (3, 1), (3, 3), (1, 1)):
        _, feed = case("ScatterElements", (8, 4), (5, d), (5, c), 0, "add")
        feeds.append(feed)
    nodes, _ = case("ScatterElements", (8, 4), (5, 1), (5, 4), 0, "add")
    compared(nodes, feeds, ["y"])


@pytest.mark.parametrize("operator", ["GatherElements", "ScatterElements"])
@pytest.mark.parametrize("short", [(6, 1), (6, 2)])
def test_tiled_indices(operator, short):
    """Tiles of one element repeat it; tiles of two do not."""
    nodes, feed = case(operator, (9, 4), short, (6, 4), 0, "add")
    nodes[1] = helper.make_node("Tile", ["i", "times"], ["wide"])
    compared(nodes, [feed], ["y"], {"times": np.int64([1, 4 // short[1]])})


def test_sums_of_rows_start_at_zero():
    """Sums as exporters write them: zeros with the rows of another input get all updates."""
    feed = case("ScatterElements", (7, 3), (20, 1), (20, 3), 0, "add")[1]
    nodes = [
        helper.make_node("Shape", ["x"], ["sx"]),
        helper.make_node("ConstantOfShape", ["sx"], ["zeros"]),
        helper.make_node("Shape", ["u"], ["s"]),
        helper.make_node("Expand", ["i", "s"], ["wide"]),
        helper.make_node("Shape", ["wide"], ["sw"]),
        helper.make_node("Slice", ["u", "none", "sw"], ["part"]),
        helper.make_node("ScatterElements", ["zeros", "wide", "part"], ["y"], axis=0, reduction="add"),
    ]
    constants = {"none": np.int64([0, 0])}
    more = case("ScatterElements", (9, 5), (30, 1), (30, 5), 0, "add")[1]
    compared(nodes, [feed, more, feed], ["y"], constants)
    model = kinnor.onnx.load(model_of(nodes, feed, ["y"], constants))
    for held in (feed, more):
        model(**held)
        (graph,) = model._cache.graphs.values()
        kinds = {f.info.type_name for f in above(graph.roots)}
        assert kinds <= {"ScatterNd", "Reshape"}, "no function repeats or copies anything"


def test_constant_indices_that_are_shorter_than_the_array():
    nodes = [
        helper.make_node("GatherElements", ["c", "i"], ["g"], axis=1),
        helper.make_node("Cast", ["g"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["real", "x"], ["y"]),
    ]
    constants = {"c": RNG.integers(-9, 9, (3, 5)), "i": np.int64([[4, -1, 0]])}
    compared(nodes, [{"x": np.ones((1, 3), np.float32)}], ["y"], constants)


def test_repeated_indices_in_a_loop():
    """Bodies of loops repeat indices as well."""
    body = helper.make_graph(
        [
            helper.make_node("Shape", ["u"], ["s"]),
            helper.make_node("Expand", ["i", "s"], ["wide"]),
            helper.make_node("ScatterElements", ["state", "wide", "u"], ["next"], axis=0, reduction="add"),
            helper.make_node("Identity", ["going"], ["on"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
    )
    nodes = [helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)]
    feed = case("ScatterElements", (7, 3), (20, 1), (20, 3), 0, "add")[1]
    compared(nodes, [feed], ["y"], {"n": np.int64(3), "go": np.bool_(True)})

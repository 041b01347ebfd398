"""Small ONNX files that ask for many nodes, by functions and loops: refused before the nodes are built."""

import time

import numpy as np
import onnx.helper as oh
import onnx.numpy_helper as on
import pytest

import kinnor as nn
import kinnor.onnx

OPSETS = [oh.make_opsetid("", 17), oh.make_opsetid("local", 1)]
"""The standard set of operators, and one for functions of the model."""
X = np.ones((2, 2), np.float32)
"""The input of all models."""


def tensor(name, kind=1, shape=None):
    """Describes an input or output."""
    return oh.make_tensor_value_info(name, kind, shape)


def model(nodes, functions=(), **held):
    """Returns an ONNX model of these nodes and functions. Keyword arguments are constants by name."""
    constants = [on.from_array(np.asarray(value), name) for name, value in held.items()]
    graph = oh.make_graph(nodes, "net", [tensor("x", 1, [2, 2])], [tensor("y")], constants)
    return oh.make_model(graph, opset_imports=OPSETS, functions=list(functions), ir_version=8)


def calling(n, times=2, inner=None):
    """Returns a model with `n` functions. Each calls the next one `times` times."""
    functions = []
    for i in range(n):
        names = ["a", *(f"v{k}" for k in range(times - 1)), "c"]
        calls = [oh.make_node(f"f{i + 1}", [names[k]], [names[k + 1]], domain="local") for k in range(times)]
        body = calls if i < n - 1 else inner or [oh.make_node("Relu", ["a"], ["c"])]
        functions.append(oh.make_function("local", f"f{i}", ["a"], ["c"], body, OPSETS))
    return model([oh.make_node("f0", ["x"], ["y"], domain="local")], functions)


def within(graph_of, levels):
    """Returns a model with `levels` functions. Each contains a branch that calls the next."""
    functions = []
    for i in range(levels):
        call = oh.make_node(f"f{i + 1}", ["a"], ["o"], domain="local")
        branch = oh.make_graph([call if i < levels - 1 else oh.make_node("Relu", ["a"], ["o"])], "g", [], [tensor("o")])
        yes = oh.make_node("Constant", [], ["t"], value=on.from_array(np.array(True)))
        node = oh.make_node("If", ["t"], ["c"], then_branch=branch, else_branch=branch)
        functions.append(oh.make_function("local", f"f{i}", ["a"], ["c"], [yes, node], OPSETS))
    return model([oh.make_node("f0", ["x"], ["y"], domain="local")], functions)


def loops(n, turns=10, condition="Identity", count=None, held=None, inner="Sin"):
    """Returns a model with `n + 1` nested loops of `turns` turns. `count="computed"`: inner lengths are computed."""

    def body(depth):
        """Returns the body of the loop at this depth."""
        nodes, trips = [], "n"
        if count == "computed" and depth:
            nodes, trips = [oh.make_node("Add", ["n", "zero"], [f"n{depth}"])], f"n{depth}"
        if depth < n:
            nodes.append(oh.make_node("Loop", [trips, "t", f"v{depth}"], [f"w{depth}"], body=body(depth + 1)))
        else:
            more = {"axis": 0} if inner == "Concat" else {}
            nodes.append(oh.make_node(inner, [f"v{depth}", "x"] if more else [f"v{depth}"], [f"w{depth}"], **more))
        nodes.append(oh.make_node(condition, [f"c{depth}"], [f"k{depth}"]))
        inputs = [tensor(f"i{depth}", 7, []), tensor(f"c{depth}", 9, []), tensor(f"v{depth}")]
        return oh.make_graph(nodes, f"b{depth}", inputs, [tensor(f"k{depth}", 9, []), tensor(f"w{depth}")])

    nodes = [oh.make_node("Loop", ["n", "t", "x"], ["y"], body=body(0))]
    return model(nodes, n=np.int64(turns), t=np.array(True), zero=np.int64(0), **(held or {}))


def many_loops(n):
    """Returns a model with `n` loops in a row."""
    nodes = []
    for i in range(n):
        work = [oh.make_node("Sin", ["v" if k == 0 else f"s{k - 1}"], [f"s{k}"]) for k in range(20)]
        work.append(oh.make_node("Identity", ["c"], ["k"]))
        inputs = [tensor("i", 7, []), tensor("c", 9, []), tensor("v")]
        body = oh.make_graph(work, "body", inputs, [tensor("k", 9, []), tensor("s19")])
        nodes.append(
            oh.make_node(
                "Loop", ["n", "t", "x" if i == 0 else f"y{i}"], ["y" if i == n - 1 else f"y{i + 1}"], body=body
            )
        )
    return model(nodes, n=np.int64(4000), t=np.array(True))


def large_constant():
    """Returns a model whose innermost function contains a large constant, used many times."""
    values = np.zeros(1 << 18, np.float32)
    inner = [
        oh.make_node("Constant", [], ["k"], value=on.from_array(values)),
        oh.make_node("ReduceSum", ["k"], ["s"]),
        oh.make_node("Add", ["a", "s"], ["c"]),
    ]
    return calling(15, inner=inner)


def scans(n):
    """Returns a model with nested scans over the axes of the input."""

    def body(depth):
        """Returns the body of the scan at this depth."""
        if depth < n:
            nodes = [oh.make_node("Scan", ["x", "x"], [f"o{depth}"], body=body(depth + 1), num_scan_inputs=1)]
        else:
            nodes = [oh.make_node("Identity", [f"s{depth}"], [f"o{depth}"])]
        return oh.make_graph(nodes, f"b{depth}", [tensor(f"s{depth}"), tensor(f"p{depth}")], [tensor(f"o{depth}")])

    nodes = [oh.make_node("Scan", ["x", "x"], ["y"], body=body(0), num_scan_inputs=1)]
    return model(nodes)


REFUSED = {
    **{f"functions {n}": lambda n=n: calling(n) for n in (20, 30, 60, 90)},
    "functions by five": lambda: calling(12, 5),
    "deep functions": lambda: calling(2000, 1),
    "recursion": lambda: model(
        [oh.make_node("f0", ["x"], ["y"], domain="local")],
        [
            oh.make_function(
                "local", f"f{i}", ["a"], ["c"], [oh.make_node(f"f{1 - i}", ["a"], ["c"], domain="local")], OPSETS
            )
            for i in range(2)
        ],
    ),
    "functions in branches": lambda: within(None, 90),
    "large constants": large_constant,
    **{f"nested {n}": lambda n=n: loops(n) for n in (8, 20)},
    "nested, computed": lambda: loops(8, count="computed"),
    "nested, long": lambda: loops(1, 5000),
    "a long loop": lambda: loops(0, 1 << 25),
    "a long loop that grows": lambda: loops(0, 5000, inner="Concat"),
    "a loop without end": lambda: model(
        [
            oh.make_node(
                "Loop",
                ["", "t", "x"],
                ["y"],
                body=oh.make_graph(
                    [oh.make_node("Identity", ["c"], ["k"]), oh.make_node("Sin", ["v"], ["w"])],
                    "b",
                    [tensor("i", 7, []), tensor("c", 9, []), tensor("v")],
                    [tensor("k", 9, []), tensor("w")],
                ),
            )
        ],
        t=np.array(True),
    ),
    "scans": lambda: scans(30),
}
"""By name: makes a small model that would expand to too many nodes. Each must be refused within a second."""


@pytest.mark.parametrize("which", REFUSED)
def test_models_with_too_many_nodes_are_refused_immediately(which, tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(REFUSED[which]().SerializeToString())
    start = time.process_time()
    with pytest.raises(nn.Error, match="expected"):
        kinnor.onnx.load(path)(X)
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (lambda: calling(8), X),
        (lambda: calling(1, inner=[oh.make_node("Add", ["a", "a"], ["c"])]), 2 * X),
        (lambda: loops(0, 100), None),
        (lambda: loops(1, 10), None),
        (lambda: loops(1, 10, count="computed"), None),
        (lambda: loops(0, 5000), None),
        (lambda: loops(4, 4), None),
        (lambda: many_loops(3), None),
        (lambda: loops(0, 0), X),
        (lambda: scans(3), X),
    ],
)
def test_what_is_small_runs(made, wanted):
    """Models with few nodes run although they use functions and loops."""
    y = kinnor.onnx.Model(made())(X)
    assert y.shape == X.shape
    if wanted is not None:
        np.testing.assert_array_equal(y, wanted)


def test_a_loop_that_its_body_ends_may_have_any_count():
    body = oh.make_graph(
        [oh.make_node("Add", ["v", "x"], ["w"]), oh.make_node("Less", ["i", "five"], ["k"])],
        "b",
        [tensor("i", 7, []), tensor("c", 9, []), tensor("v")],
        [tensor("k", 9, []), tensor("w")],
    )
    most = np.int64(np.iinfo(np.int64).max)
    made = model([oh.make_node("Loop", ["n", "t", "x"], ["y"], body=body)], n=most, t=np.array(True), five=np.int64(5))
    np.testing.assert_array_equal(kinnor.onnx.Model(made)(X), 7 * X)

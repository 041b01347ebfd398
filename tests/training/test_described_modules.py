"""Modules called on `ProtoVariable`s: network descriptions with the parameters of the modules."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF


class Side(nn.Module):
    """An affine layer with `n` outputs."""

    def __init__(self, n: int) -> None:
        self.n = n

    def call(self, x: nn.Variable) -> nn.Variable:
        """Returns the output of the module."""
        return F.tanh(PF.affine(x, self.n))


class BothSides(nn.Module):
    """Two `Side` modules with concatenated outputs."""

    def __init__(self, n: int) -> None:
        self.left, self.right = Side(n), Side(n)

    def call(self, x: nn.Variable, y: nn.Variable) -> nn.Variable:
        """Returns the output of the module."""
        return F.concatenate(self.left(x), self.right(y), axis=1)

    def other(self, x: nn.Variable, y: nn.Variable) -> nn.Variable:
        """A method other than `call`."""
        return self.left(x) + self.right(y)


@pytest.fixture(autouse=True)
def nothing_described():
    """Clears all network descriptions before and after the test."""
    nn.graph_def.reset_default_graph()
    yield
    nn.graph_def.reset_default_graph()


def variables(*shapes):
    """Returns variables of these shapes with random values."""
    return [nn.Variable.from_numpy_array(np.random.default_rng(3).normal(size=shape)) for shape in shapes]


def check(network, module, *shapes, method="call"):
    """Asserts that a network computes the same as its module, for several batch sizes."""
    inputs = variables(*shapes)
    found, expected = network(*inputs), getattr(module, method)(*inputs)
    nn.forward_all([found, expected])
    np.testing.assert_array_equal(found.d, expected.d)


def test_a_module_is_a_network_with_its_parameters():
    """A traced module becomes a network with the module's parameters."""
    module = BothSides(2)
    with nn.graph_def.graph() as g:
        module(nn.ProtoVariable((4, 3)), nn.ProtoVariable((4, 5)))
    assert list(g.networks) == ["both_sides"]
    assert list(g.both_sides.parameters) == [
        "@left/affine/W", "@left/affine/b", "@right/affine/W", "@right/affine/b",
    ]  # fmt: skip
    assert g.get_parameters()["@left/affine/W"] is not None
    check(g, module, (4, 3), (4, 5))
    assert nn.get_parameters() == {}


def test_methods_other_than_call_and_inputs_made_before():
    """A description can call any method of a module, on inputs that exist already."""
    module, inputs = BothSides(2), [nn.ProtoVariable((4, 3)), nn.ProtoVariable((4, 3))]
    with nn.graph_def.graph(name="sum") as g:
        module.other(*inputs)
    check(g["sum"], module, (4, 3), (4, 3), method="other")
    assert nn.graph_def.get_default_graph().networks == {}


def test_separate_modules_are_separate_networks():
    """Each traced module becomes a network with a name of its own."""
    one, two, three = BothSides(2), Side(3), Side(4)
    with nn.graph_def.graph() as g:
        for module, n in ((one, 2), (two, 1), (three, 1)):
            module(*[nn.ProtoVariable((4, 3)) for _ in range(n)])
    assert list(g.networks) == ["both_sides", "side", "side_1"]
    assert list(g.side_1.parameters) == ["@side_1/affine/W", "@side_1/affine/b"]
    for network, module, n in zip(g.networks.values(), (one, two, three), (2, 1, 1), strict=True):
        check(network, module, *[(4, 3)] * n)


def test_networks_get_names_and_outputs_know_their_network():
    module = Side(2)
    with nn.graph_def.graph_name("first") as name:
        y = module(nn.ProtoVariable((4, 3)))
    with nn.graph_def.graph_name("second"):
        z = F.relu(module(F.sin(nn.ProtoVariable((4, 3)))))
    assert name == "first"
    assert nn.graph_def.get_default_graph_by_variable(y).name == "first"
    assert nn.graph_def.get_default_graph_by_variable(z).name == "second"
    check(nn.graph_def.get_default_graph("first"), module, (7, 3))
    assert list(nn.graph_def.get_default_graph("second").parameters) == ["affine/W", "affine/b"]


def test_a_file_has_the_parameters_of_a_module(tmp_path):
    module = BothSides(2)
    with nn.graph_def.graph() as g:
        module(nn.ProtoVariable((4, 3)), nn.ProtoVariable((4, 3)))
    g.save(tmp_path / "net.nnp")
    check(nn.graph_def.load(tmp_path / "net.nnp"), module, (4, 3), (4, 3))


def test_modules_of_other_variables_are_not_kept():
    """Calls on untraced variables are not recorded."""
    waiting = nn.ProtoVariable((4, 3))
    module = Side(2)
    y = module(nn.Variable((4, 3)))
    kept = weakref.ref(y)
    del y
    gc.collect()
    assert kept() is None
    assert waiting.function_references == []


class Row(nn.Module):
    """Layers in a list, and a constant."""

    def __init__(self):
        self.layers = [One(n) for n in (4, 5)]

    def call(self, x):
        """Returns the output of the module."""
        for layer in self.layers:
            x = layer(x)
        return x * nn.Variable.from_numpy_array(np.full((1, 5), 2.0))


class One(nn.Module):
    """An affine layer with a named parameter scope."""

    def __init__(self, n):
        self.n = n

    def call(self, x):
        """Returns the output of the module."""
        return PF.affine(x, self.n, name="one")


def test_variables_that_are_no_inputs_are_saved(tmp_path):
    module = Row()
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).rand(3, 2))
    y = module(x)
    with nn.graph_def.graph() as graph:
        kept = module(nn.ProtoVariable((3, 2)))
    assert len(graph.default_graph().inputs) == 1
    assert len(graph.default_graph().parameters) == 5
    graph.save(str(tmp_path / "net.nnp"))
    again = nn.graph_def.load(str(tmp_path / "net.nnp"))
    made = [graph(x), again(x)]
    nn.forward_all([y, *made])
    for found in made:
        np.testing.assert_allclose(found.d, y.d, rtol=1e-6)
    assert kept.shape == (3, 5)

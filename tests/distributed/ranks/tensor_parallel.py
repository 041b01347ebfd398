"""Layers with weights sharded over processes compute and train like layers of one process."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.communicators.parametric_functions as CPF
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.communicators import CommunicatorError, MultiProcessDataParallelCommunicator

comm = MultiProcessDataParallelCommunicator()
comm.init()
rank, size = comm.rank, comm.size
BATCH, WIDTH = 6, 8
rng = np.random.default_rng(0)
examples = rng.standard_normal((BATCH, WIDTH)).astype(np.float32)
targets = rng.standard_normal((BATCH, 4)).astype(np.float32)


def network(x, first, second, third, fourth):
    """A network of four layers, each given as a function of its input and the number of its outputs."""
    h = second(F.relu(first(x, 12)), WIDTH)
    return fourth(F.tanh(third(h, 8)), 4)


def one(x):
    """The network with ordinary layers."""
    layers = [lambda h, n, name=name: PF.affine(h, n, name=name) for name in "abcd"]
    return network(x, *layers)


def spread(x):
    """The network with sharded layers."""
    return network(
        x,
        lambda h, n: CPF.affine_columns(h, n, comm, gather=False, name="a"),
        lambda h, n: CPF.affine_rows(h, n, comm, scatter=False, name="b"),
        lambda h, n: CPF.affine_columns(h, n, comm, name="c"),
        lambda h, n: CPF.affine_rows(h, n, comm, name="d"),
    )


class Trained:
    """A network, its parameters and its solver."""

    def __init__(self, make, scope):
        """Builds the loss of the network `make(x)`, with its parameters in the scope `scope`."""
        nn.seed(3)
        self.x = nn.Variable.from_numpy_array(examples, need_grad=True)
        with nn.parameter_scope(scope):
            self.loss = F.mean((make(self.x) - nn.Variable.from_numpy_array(targets)) ** 2)
            self.parameters = nn.get_parameters()
        self.solver = S.Momentum(0.1)
        self.solver.set_parameters(self.parameters)

    def step(self):
        """Runs a training step and returns the loss."""
        self.loss.forward()
        self.x.grad.zero()
        self.solver.zero_grad()
        self.loss.backward()
        self.solver.update()
        return float(self.loss.d)


def part_of(name, whole):
    """Returns the part of a parameter that belongs to this process."""
    axis = {"a/affine/W": 1, "a/affine/b": 0, "b/affine/W": 0, "c/affine/W": 1, "c/affine/b": 0, "d/affine/W": 0}
    return np.split(whole, size, axis[name])[rank] if name in axis else whole


whole, parts = Trained(one, "whole"), Trained(spread, "parts")
sizes = [sum(v.size for v in trained.parameters.values()) for trained in (whole, parts)]
assert size == 1 or sizes[1] < sizes[0] / size + 20, sizes
for name, v in whole.parameters.items():
    np.testing.assert_array_equal(part_of(name, v.d), parts.parameters[name].d)
for _ in range(6):
    np.testing.assert_allclose(parts.step(), whole.step(), rtol=1e-5)
    np.testing.assert_allclose(parts.x.g, whole.x.g, rtol=1e-4, atol=1e-6)
    for name, v in whole.parameters.items():
        np.testing.assert_allclose(parts.parameters[name].g, part_of(name, v.g), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(parts.parameters[name].d, part_of(name, v.d), rtol=1e-4, atol=1e-6)

# Second derivatives pass through the exchange.
penalties = []
for trained in (whole, parts):
    (g,) = nn.grad([trained.loss], [trained.x])
    penalty = F.sum(g**2)
    penalty.forward()
    trained.solver.zero_grad()
    penalty.backward()
    penalties.append(float(penalty.d))
np.testing.assert_allclose(*penalties, rtol=1e-4)
for name, v in whole.parameters.items():
    np.testing.assert_allclose(parts.parameters[name].g, part_of(name, v.g), rtol=1e-3, atol=1e-6)

# Inputs with several batch axes, and layers without bias.
x = nn.Variable.from_numpy_array(examples.reshape(2, 3, WIDTH))
results = []
for scope, columns, rows in (
    ("one", lambda h: PF.affine(h, 4, 2, with_bias=False, name="e"), lambda h: PF.affine(h, 4, 2, name="f")),
    (
        "all",
        lambda h: CPF.affine_columns(h, 4, comm, base_axis=2, with_bias=False, name="e"),
        lambda h: CPF.affine_rows(h, 4, comm, name="f"),
    ),
):
    nn.seed(5)
    with nn.parameter_scope(scope):
        y = rows(F.tanh(columns(x)))
    y.forward()
    results.append(y.d.copy())
np.testing.assert_allclose(*results, rtol=1e-5, atol=1e-6)

# Wrong use raises on every process before any of them waits.
wrong_uses = [
    (lambda: CPF.affine_columns(whole.x, 4 * size + 1, comm, name="w"), "n_outmaps to be a multiple"),
    (lambda: CPF.affine_rows(nn.Variable((2, 4 * size + 1)), 3, comm, name="w"), "the inputs to be a multiple"),
    (lambda: CPF.affine_columns(whole.x, 4 * size * (rank + 1), comm, name="w"), "rank 1: affine_columns"),
    (lambda: CPF.affine_columns(whole.x, (4, 4), comm, name="w"), "one number"),
]
for wrong, told in wrong_uses if size > 1 else wrong_uses[-1:]:
    with pytest.raises(CommunicatorError, match=told):
        wrong()
assert not any(key.startswith("w/") for key in nn.get_parameters())
print("right")

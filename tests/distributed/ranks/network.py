"""A small network, to compare copies on parts of a batch with one network on the whole batch."""

from __future__ import annotations

from typing import Any

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

EXAMPLES, FEATURES, CLASSES = 12, 10, 5
"""Examples in a step over all processes, features of an example, and classes."""


class Network:
    """A network with parameters of its own, for one batch size."""

    def __init__(self, batch: int, name: str) -> None:
        """Builds the network for `batch` examples, with its parameters in the scope `name`."""
        self.batch = batch
        self.x, self.t = nn.Variable((batch, FEATURES)), nn.Variable((batch, 1))
        nn.seed(7)
        with nn.parameter_scope(name):
            h = F.tanh(PF.affine(self.x, 16, name="one"))
            h = F.tanh(PF.affine(h, 16, name="two"))
            self.loss = F.mean(F.softmax_cross_entropy(PF.affine(h, CLASSES, name="three"), self.t))
            self.parameters = nn.get_parameters()

    def feed(self, step: int, part: int = 0) -> None:
        """Writes part number `part` of a step's batch to the inputs."""
        rng = np.random.default_rng(step)
        rows = slice(part * self.batch, (part + 1) * self.batch)
        self.x.d = rng.standard_normal((EXAMPLES, FEATURES)).astype(np.float32)[rows]
        self.t.d = rng.integers(0, CLASSES, (EXAMPLES, 1))[rows]

    def step(self, solver: Any, callback: Any = None, after: bool = False) -> None:
        """Runs one training step. Gradients are summed after backward if `after`, else during it."""
        self.loss.forward()
        solver.zero_grad()
        self.loss.backward(clear_buffer=True, communicator_callbacks=None if after else callback)
        if after:
            callback.sum_gradients()
        solver.update()


def distance(a: Network, b: Network) -> float:
    """Returns the largest difference between the parameters of two networks."""
    return max(float(np.abs(v.d - b.parameters[name].d).max()) for name, v in a.parameters.items())

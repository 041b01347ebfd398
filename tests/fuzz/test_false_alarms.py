"""Gradients are not refused for unchanged values: random programs that compare all values byte by byte."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

ONE = {
    "sin": F.sin,
    "tanh": F.tanh,
    "exp": F.exp,
    "sigmoid": F.sigmoid,
    "half": lambda x: x * 0.5,
    "turned": lambda x: F.reshape(x, x.shape[::-1]),
    "reshape": lambda x: F.reshape(x, x.shape, inplace=True),
    "dropout": lambda x: F.dropout(x, 0.5),
    "relu": lambda x: F.relu(x, inplace=True),
    "softmax": F.softmax,
    "add_scalar": lambda x: F.add_scalar(x, 1.0, inplace=True),
    "abs": F.abs,
}
"""Functions of one variable, by name."""
TWO = {
    "mul": lambda a, b: a * b,
    "add": lambda a, b: F.add2(a, b, inplace=True),
    "sub": lambda a, b: a - b,
    "maximum": F.maximum2,
    "div": lambda a, b: a / (b * b + 1),
}
"""Functions of two variables of one shape, by name."""
STEPS = ["one", "one", "two", "two", "run", "run", "run", "clear", "both", "back", "back", "back", "engine", "grad"]
"""Names of steps, each as often as its weight."""
STEPS += ["write", "same", "copy", "look", "zero", "graph", "assign", "unlink"]


def content(v: Any) -> bytes | None:
    """Returns the bytes of a variable without making a view. None if they are cleared."""
    try:
        return F.identity(v.data).data.tobytes()
    except nn.ClearedError:
        return None


class FalseAlarm(Exception):
    """Raised if a gradient was refused although no value changed."""


class Program:
    """A random program. Records the inputs and outputs of each function when it runs."""

    def __init__(self, seed: int) -> None:
        """Begins a program with two leaves. The seed decides all later steps."""
        self.random = random.Random(seed)
        self.variables: list[Any] = []
        self.seen: dict[Any, list[bytes | None]] = {}
        self.log: list[str] = []
        for _ in range(2):
            values = np.array([[self.random.uniform(-1, 1) for _ in range(3)] for _ in range(2)], np.float32)
            self.variables.append(nn.Variable.from_numpy_array(values, need_grad=True))

    def note(self, f: Any) -> None:
        """Hook: records the inputs and outputs of a function."""
        self.seen[f] = [content(v) for v in (*f.inputs, *f.outputs)]

    def computed(self) -> Any:
        """Returns a random computed variable."""
        return self.random.choice([v for v in self.variables if v.parent is not None])

    def back(self, name: str, y: Any) -> None:
        """Differentiates in one of several ways. Raises `FalseAlarm` if a refusal names an unchanged value."""
        start = nn.NdArray.from_numpy_array(np.ones(y.shape, np.float32))
        try:
            if name == "back":
                y.backward(clear_buffer=self.random.random() < 0.2)
            elif name == "engine":
                autodiff.backward(y, start, retain_graph=True)
            else:
                autodiff.grad(y, self.variables[0], start, retain_graph=True, allow_unused=True)
        except nn.ModifiedError as error:
            above: list[Any] = []
            y.visit(above.append)
            known = [f for f in above if f in self.seen]
            if all(self.seen[f] == [content(v) for v in (*f.inputs, *f.outputs)] for f in known):
                raise FalseAlarm(f"{error}: {'; '.join(self.log)}") from error

    def step(self) -> None:
        """Does a random step."""
        name = self.random.choice(STEPS)
        v = self.random.choice(self.variables)
        self.log.append(f"{name} {self.variables.index(v)}")
        if name == "one":
            self.variables.append(self.random.choice(list(ONE.values()))(v))
        elif name == "two":
            fitting = [w for w in self.variables if w.shape == v.shape]
            self.variables.append(self.random.choice(list(TWO.values()))(v, self.random.choice(fitting)))
        elif name == "write":
            v.d = self.random.uniform(-1, 1)
        elif name == "same":
            v.d = np.array(F.identity(v.data).data)
        elif name == "copy":
            v.data.copy_from(F.identity(v.data))
        elif name == "look":
            str(v.d)
        elif name == "zero":
            v.grad.zero()
        elif name == "unlink":
            self.variables.append(v.get_unlinked_variable())
        elif any(v.parent is not None for v in self.variables):
            self.with_graph(name, self.computed())

    def with_graph(self, name: str, y: Any) -> None:
        """Runs the graph or differentiates it, as the name of the step says."""
        if name == "run":
            y.forward(function_post_hook=self.note)
        elif name == "clear":
            how = self.random.choice(["clear_buffer", "clear_no_need_grad"])
            y.forward(function_post_hook=self.note, **{how: True})
        elif name == "both":
            nn.forward_all([y, self.computed()], function_post_hook=self.note)
        elif name == "graph":
            self.variables.extend(nn.grad([y], [self.variables[0]]))
        elif name == "assign":
            y[0] = 0.25
        else:
            self.back(name, y)


@pytest.mark.parametrize("block", range(4))
def test_gradients_accept_unchanged_values(block):
    """Random programs are never refused a gradient for a value that did not change."""
    nn.config.check_saved = "raise"
    try:
        for seed in range(block * 150, block * 150 + 150):
            program = Program(seed)
            for _ in range(20):
                try:
                    program.step()
                except nn.Error:
                    continue  # this step does not apply
    finally:
        nn.config.check_saved = "warn"

"""The cost of a training step of a small static network: alone, next to eager code, and by `autodiff`.

    python benches/steps.py

Each figure is the minimum of many steps, in microseconds. Steps to compare take turns. Gradients are zeroed in
each step, as in training.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import autodiff

if TYPE_CHECKING:
    from collections.abc import Callable

    Pair = tuple[Callable[[], object], Callable[[], object]]


def least(steps: dict[str, Pair], number: int) -> dict[str, float]:
    """Returns the microseconds of one call of each second function, right after its first function."""
    found = dict.fromkeys(steps, float("inf"))
    for _ in range(20):
        for name, (before, step) in steps.items():
            for _ in range(number):
                before()
                start = time.perf_counter_ns()
                step()
                found[name] = min(found[name], (time.perf_counter_ns() - start) / 1e3)
    return found


def network(width: int, layers: int = 10) -> nn.Variable:
    """Returns the mean of a network of tanh layers. The batch size equals the width."""
    nn.clear_parameters()
    rng = np.random.default_rng(1)
    h = nn.Variable.from_numpy_array(rng.normal(size=(width, width)).astype(np.float32))
    for n in range(layers):
        h = F.tanh(PF.affine(h, width, name=f"layer{n}"))
    return F.mean(h)


def compare(width: int, number: int) -> None:
    """Prints the cost of each kind of step, also relative to the first."""
    loss = network(width)
    parameters = list(nn.get_parameters().values())
    x = nn.Variable.from_numpy_array(np.ones(16, np.float32), need_grad=True)

    def run() -> None:
        """Runs forward and zeroes the gradients."""
        loss.forward(clear_no_need_grad=True)
        for p in parameters:
            p.grad.zero()

    def static() -> None:
        """A step by `Variable.backward`."""
        run()
        loss.backward(clear_buffer=True)

    def differentiated() -> None:
        """A step by `autodiff.backward`."""
        run()
        autodiff.backward(loss)

    def eager() -> None:
        """Eager code to run before a step."""
        with nn.auto_forward():
            F.tanh(x).backward()

    def python() -> None:
        """Plain Python code to run before a step."""
        sum(range(300))  # takes about as long as the eager code

    steps = {"static": (python, static), "autodiff": (python, differentiated), "beside": (eager, static)}
    for before, step in [*steps.values()] * 3:
        before()
        step()
    found = least(steps, number)
    alone = found["static"]

    def row(what: str, name: str, most: str = "") -> None:
        """Prints a row."""
        print(f"{what:<58} {found[name]:8.1f} us   {found[name] / alone:5.2f} times{most}")

    row(f"ten tanh layers of {width}, Variable.backward", "static")
    row("... after a line of eager code with backward", "beside", ", at most 1.05")
    row("... with autodiff.backward", "autodiff", ", at most 1.05")


if __name__ == "__main__":
    compare(16, 200)
    compare(128, 3)

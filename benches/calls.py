"""Measures the cost of calls from Python: building, eager execution, and runs through a chain of tiny functions.

    python benches/calls.py

Each figure is the minimum of many repetitions, in nanoseconds of processor time. Other programs on the machine
still raise it, so NumPy's own `a + b` is measured for comparison.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import timeit
from typing import TYPE_CHECKING

import numpy as np

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable


def least(f: Callable[[], object], number: int, repeat: int = 30) -> float:
    """Returns the nanoseconds of one call."""
    return min(timeit.repeat(f, number=number, repeat=repeat, timer=time.process_time)) / number * 1e9


def row(what: str, measured: float, most: float) -> None:
    """Prints a figure and its limit."""
    print(f"{what:<58} {measured:8.1f} ns   at most {most:g} ns")


def calls() -> None:
    """Measures calls of one function on 16 elements."""
    a = nn.Variable.from_numpy_array(np.ones(16, np.float32), need_grad=True)
    b = nn.Variable.from_numpy_array(np.ones(16, np.float32))
    add2 = F.add2
    p, q = np.ones(16, np.float32), np.ones(16, np.float32)
    print(f"{'(NumPy: p + q on 16 elements)':<58} {least(lambda: p + q, 20_000):8.1f} ns")
    row("F.add2(a, b), static, with what it leaves behind freed", least(lambda: add2(a, b), 20_000), 150)
    row("a + b, static", least(lambda: a + b, 20_000), 150)
    with nn.auto_forward():
        row("F.add2(a, b) on 16 elements, computed at once", least(lambda: add2(a, b), 20_000), 250)
        row("a * 2.0 on 16 elements, computed at once", least(lambda: a * 2.0, 20_000), 250)
    row("a.d (a view)", least(lambda: a.d, 20_000), 200)


def chain(n: int = 1000) -> None:
    """Measures a chain of functions of 16 elements, forward and backward, and prints the time of one function."""
    x = nn.Variable.from_numpy_array(np.ones(16, np.float32), need_grad=True)
    y = x
    for _ in range(n):
        y = F.mul_scalar(y, 0.5) if _ % 2 else F.add_scalar(y, 0.5)
    y.forward()
    y.backward()
    row(f"forward of a chain of {n}, each function", least(y.forward, 20) / n, 60)
    row(f"backward of a chain of {n}, each function", least(y.backward, 20) / n, 100)

    def hook(f: object) -> None:
        """A hook that does nothing."""

    row("forward with a hook, each function", least(lambda: y.forward(function_pre_hook=hook), 5, 10) / n, 400)


def import_time() -> None:
    """Measures the import beyond NumPy's own import, with byte code, as in an installed package."""
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}

    def run(code: str) -> float:
        """Returns the seconds that a statement takes in a new process."""
        program = f"import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)"
        return min(float(subprocess.check_output([sys.executable, "-c", program], env=settings)) for _ in range(10))

    with_numpy = run("import numpy")
    both = run("import numpy, kinnor, kinnor.functions, kinnor.parametric_functions, kinnor.solvers")
    print(f"{'import of kinnor and its modules over NumPy':<58} {(both - with_numpy) * 1e3:8.1f} ms   at most 25 ms")


if __name__ == "__main__":
    calls()
    chain()
    import_time()

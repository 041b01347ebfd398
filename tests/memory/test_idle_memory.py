"""Memory that is no longer used goes back to the system, but steps find the memory of the step before."""

import subprocess
import sys

import pytest

BEGIN = """
import gc
import numpy as np
import kinnor as nn, kinnor.functions as F, kinnor.parametric_functions as PF

def held():
    "Mebibytes that the library holds."
    stats = nn.memory_stats()
    return (stats["live"] + stats["cached"]) >> 20
"""

TRAINING = """
from kinnor.solvers import Momentum

x = nn.Variable.from_numpy_array(np.ones((4096, 1024), np.float32))

def loss():
    h = x
    for i in range(6):
        h = F.tanh(PF.affine(h, 1024, name=f"affine{i}"))
    return F.mean(h)

def steps(n):
    "The memory held after each of `n` steps."
    found = []
    for _ in range(n):
        if IS_DYNAMIC:
            with nn.auto_forward():
                y = loss()
        else:
            y = graph
            y.forward(clear_no_need_grad=True)
        solver.zero_grad()
        y.backward(clear_buffer=True)
        solver.update()
        del y
        found.append(held())
    return found

graph = loss()
solver = Momentum(0.01)
solver.set_parameters(nn.get_parameters())
first, second, third, fourth, fifth = steps(5)
assert third == fourth == fifth, (first, second, third, fourth, fifth)
assert fifth > 100
nn.clear_parameters()
del graph, solver
x = None
gc.collect()
assert held() < 64, held()
"""

SMALL = """
arrays = [nn.Variable.from_numpy_array(np.ones(200, np.float32)) for _ in range(300_000)]
assert held() > 200
del arrays
gc.collect()
assert held() <= 128, held()
"""


@pytest.mark.parametrize(
    "program",
    [f"IS_DYNAMIC = False\n{TRAINING}", f"IS_DYNAMIC = True\n{TRAINING}", SMALL],
    ids=["static", "dynamic", "small-arrays"],
)
def test_idle_memory_is_returned(program: str) -> None:
    """After models and arrays are deleted, without a call of `clear_memory_cache`."""
    code = [sys.executable, "-c", BEGIN + program]
    run = subprocess.run(code, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr

"""A process with a limited address space: failed allocations raise MemoryError and do not abort."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

SHORT = """
import gc, resource, sys, threading
import numpy as np
import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor import autodiff

which, extra, is_warm = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "warm"
rng = np.random.default_rng(0)

def leaf(*shape):
    return nn.Variable.from_numpy_array((rng.standard_normal(shape) * 0.1).astype(np.float32), need_grad=True)

w = leaf(8, 8)
y = F.sum(F.affine(w, w))
y.forward()
y.backward()
if is_warm:  # the threads of the pool are there
    F.exp(leaf(1000, 1000)).forward()

def convolution():
    h = F.relu(F.convolution(leaf(8, 8, 48, 48), leaf(16, 8, 3, 3), pad=(1, 1)))
    return F.mean(F.dropout(F.max_pooling(h, (2, 2)), 0.5))

def product():
    return F.mean(F.tanh(F.affine(F.affine(leaf(900, 900), leaf(900, 900)), leaf(900, 900))))

def many():
    return F.sum(F.add_n(*[leaf(10) for _ in range(3000)]))

used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))
try:
    loss = {"convolution": convolution, "product": product, "many": many}[which]()
    loss.forward()
    loss.backward(clear_buffer=True)
    solver = S.Adam()
    solver.set_parameters({"w": w})
    solver.update()
    loss.forward()
    autodiff.backward(loss)
except MemoryError:
    pass
loss = None
gc.collect()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
y.forward()
y.backward()
assert np.isfinite(w.g).all()
print("ends")
"""


@pytest.mark.parametrize("start", ["warm", "cold"])
@pytest.mark.parametrize("which", ["convolution", "product", "many"])
def test_short_of_addresses(which, start):
    """If any allocation fails because addresses are exhausted, the process continues, and another graph runs."""
    for extra in (0, 200, 300_000, 2_500_000, 5_000_000, 12_000_000):
        command = [sys.executable, "-c", SHORT, which, str(extra), start]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (found.returncode, found.stdout) == (0, "ends\n"), f"{extra} bytes: {found.stderr[-500:]}"


GROWING = """
import gc, resource, sys
import numpy as np
import kinnor as nn
import kinnor.functions as F

kind, extra = sys.argv[1], int(sys.argv[2])
x = nn.Variable.from_numpy_array(np.ones(4, np.float32), need_grad=True)
first = F.sum(F.exp(x))
first.forward()
first.backward()

def leaves():
    while True:
        yield nn.Variable((2, 3))

def chain():
    y = x
    while True:
        yield (y := F.tanh(y))

def star():
    while True:
        yield F.tanh(x)

def wide():
    while True:
        yield F.add_n(*[x] * 1000)

def eager():
    y = x
    with nn.auto_forward():
        while True:
            yield (y := F.tanh(y))

# CPython keeps the memory of the others for its own objects: 3.11 crashes in places where it has none for them.
spare = [bytes(480) for _ in range(100_000)][::1000]
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + extra, resource.RLIM_INFINITY))
made = []
try:
    for v in {"leaves": leaves, "chain": chain, "star": star, "wide": wide, "eager": eager}[kind]():
        made.append(v)
        if len(made) == 300_000:
            break
except MemoryError:
    pass
count = len(made)
v = None
made.clear()
gc.collect()
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
first.forward()
first.backward()
assert F.exp(x).shape == (4,)
print("ends", count)
"""


@pytest.mark.parametrize("kind", ["leaves", "chain", "star", "wide", "eager"])
def test_a_graph_that_grows_until_no_addresses_are_left(kind):
    """A graph grows until no addresses are left. The program then ends with MemoryError, and is not aborted."""
    # Small arenas, so that tables of the graph need addresses soon.
    environment = {**os.environ, "MIMALLOC_ARENA_RESERVE": "4M"}
    for extra in (0, 3_000_000, 20_000_000):
        command = [sys.executable, "-c", GROWING, kind, str(extra)]
        found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=environment)
        assert found.returncode == 0, f"{extra} bytes: {found.returncode} {found.stderr[-500:]}"
        what, count = found.stdout.split()
        assert what == "ends" and int(count) < 300_000, extra

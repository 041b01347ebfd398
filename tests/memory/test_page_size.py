"""Systems with pages larger than 4 KiB, as on 64-bit ARM: freeing pages never frees memory in use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="preloads a library")

LIVE = """
import numpy as np
import kinnor as nn

rng, live = np.random.default_rng(3), []
for turn in range(12):
    some = []
    for i in range(40):
        n = int(np.exp(rng.uniform(np.log(300), np.log(300_000))))
        array = nn.NdArray((n,))
        array.data = np.full(n, i, np.float32)
        some.append((array, i))
    live += some[1::2]
    del some, array
    nn.clear_memory_cache()
    assert all((array.data == i).all() for array, i in live), "a live array has changed"
    live = live[-60:]
del live
nn.clear_memory_cache()
stats = nn.memory_stats()
assert stats["live"] == 0, stats
"""

TRAINING = """
import numpy as np
import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S

rng, solver = np.random.default_rng(0), S.Adam()
losses = []
for turn in range(14):
    n = 300 if turn % 5 == 0 else int(rng.integers(1, 40))
    x, t = nn.Variable((n, 3, 20, 20)), nn.Variable((n, 1))
    h = F.relu(PF.convolution(x, 12, (3, 3), pad=(1, 1), name="a"))
    h = F.max_pooling(F.relu(PF.convolution(h, 12, (3, 3), name="b")), (2, 2))
    loss = F.mean(F.softmax_cross_entropy(PF.affine(h, 10, name="c"), t))
    if turn == 0:
        solver.set_parameters(nn.get_parameters())
    x.d, t.d = rng.standard_normal(x.shape), rng.integers(0, 10, t.shape)
    solver.zero_grad()
    loss.forward(clear_no_need_grad=True)
    loss.backward(clear_buffer=True)
    solver.update()
    losses.append(float(loss.d))
    if turn % 4 == 3:
        nn.clear_memory_cache()
print(losses)
assert np.isfinite(losses).all()
"""


@pytest.fixture(scope="module")
def big_pages(tmp_path_factory):
    """Returns a function that runs Python with a preloaded library that reports a larger page size."""
    assert COMPILER, "expected a C compiler as cc, gcc or clang, got none"
    library = tmp_path_factory.mktemp("pages") / "big_pages.so"
    source = Path(__file__).with_name("big_pages.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)

    def run(page, *command):
        """Runs Python with pages of this size."""
        environment = {**os.environ, "LD_PRELOAD": str(library), "PAGE_BYTES": str(page), "KINNOR_NUM_THREADS": "2"}
        return subprocess.run(
            [sys.executable, *command], env=environment, capture_output=True, text=True, check=False, timeout=120
        )

    return run


@pytest.mark.parametrize("page", [16 << 10, 64 << 10])
def test_live_arrays_survive_freed_neighbours(big_pages, page):
    """Returning memory to a system with large pages does not damage live arrays."""
    found = big_pages(page, "-c", LIVE)
    assert found.returncode == 0, found.stderr


def test_training_is_the_same_for_pages_of_any_length(big_pages):
    found = [big_pages(page, "-c", TRAINING) for page in (4 << 10, 16 << 10, 64 << 10)]
    assert [each.returncode for each in found] == [0, 0, 0], found[-1].stderr
    assert len({each.stdout for each in found}) == 1


def test_the_tests_of_memory(big_pages):
    """The tests of memory pass with pages of 64 KiB."""
    folder = Path(__file__).parent
    files = [str(folder / name) for name in ("test_in_place_memory.py", "test_memory_budget.py")]
    found = big_pages(64 << 10, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", *files)
    assert found.returncode == 0, found.stdout[-3000:] + found.stderr[-1000:]

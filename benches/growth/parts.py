"""Parts of the bench of growth. Each function of `PARTS` runs in a process of its own."""

from __future__ import annotations

import gc
import hashlib
import os
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kinnor as nn
import kinnor.solvers as S

from .networks import Network, mixed, mlp
from .series import MODELS, SERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy as np

THREADS = (1, 2, 4, 8, 16)
MIB = 2**20


class Training:
    """A network and a solver."""

    def __init__(self, network: Network) -> None:
        nn.clear_parameters()
        nn.random.seed(0)
        self.inputs = [nn.Variable(array.shape) for array in network.inputs]
        self.loss = network.build(*self.inputs)
        self.parameters = nn.get_parameters()
        self.solver = S.Adam(1e-4)
        self.solver.set_parameters(self.parameters)

    def step(self, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Trains on these inputs. Their batch may differ from the batch before."""
        for v, array in zip(self.inputs, arrays, strict=True):
            if v.shape != array.shape:
                v.reset_shape(array.shape, True)
            v.d = array
        self.loss.forward(clear_no_need_grad=True)
        self.solver.zero_grad()
        self.loss.backward(clear_buffer=True)
        self.solver.update()


def seconds(action: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """Returns the seconds of an action: processor time unless there is another clock."""
    start = clock()
    action()
    return clock() - start


def warm(step: Callable[[], None], budget: float, clock: Callable[[], float] = time.process_time) -> float:
    """Returns the least seconds of a step: of at least three steps, and of more within `budget` seconds."""
    taken = [seconds(step, clock) for _ in range(3)]
    end = time.perf_counter() + budget
    while time.perf_counter() < end:
        taken.append(seconds(step, clock))
    return min(taken)


def resident() -> float:
    """Returns the resident memory of the process in MiB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MIB


def grow(name: str, is_quick: bool) -> dict[str, Any]:
    """Returns seconds to build networks of a series, of the first step and of a warm step, and MiB, by size.

    Each network is built twice. The first step of the second one, `reused`, finds memory in the cache.
    """
    series = SERIES[name]
    Training(series.network(series.sizes[0])).step(series.network(series.sizes[0]).inputs)
    rows = {}
    for size in series.sizes[: 2 if is_quick else None]:
        network = series.network(size)
        nn.clear_parameters()
        gc.collect()
        nn.clear_memory_cache()
        before = nn.memory_stats()["live"]
        nn.reset_peak_memory()
        row: dict[str, float] = {}
        for which in ("first", "reused"):
            made: list[Training] = []
            row["build"] = seconds(lambda made=made, network=network: made.append(Training(network)))
            row[which] = seconds(lambda made=made, network=network: made[0].step(network.inputs))
            if which == "first":
                nn.clear_parameters()
                made.clear()
                gc.collect()
        row["step"] = warm(lambda made=made, network=network: made[0].step(network.inputs), 0.0 if is_quick else 0.5)
        row["MiB"] = (nn.memory_stats()["peak"] - before) / MIB
        rows[str(size)] = row
        made.clear()
    return rows


def first_steps(name: str, is_quick: bool) -> dict[str, Any]:
    """Returns seconds of steps of a model from the start of a process on, and with other batches."""
    full, tiny, batch = MODELS[name]
    network = tiny if is_quick else full
    made: list[Training] = []
    found = {"build": seconds(lambda: made.append(Training(network(batch))))}
    (training,) = made
    seen = set()
    for n in (batch, batch // 2, batch * 3 // 2, batch):
        arrays = network(n).inputs
        key = f"{n} again" if n in seen else str(n)
        seen.add(n)
        found[f"{key} first"] = seconds(lambda arrays=arrays: training.step(arrays))
        found[f"{key} second"] = seconds(lambda arrays=arrays: training.step(arrays))
        found[f"{key} warm"] = warm(lambda arrays=arrays: training.step(arrays), 0.0)
    return found


def give_back(name: str, is_quick: bool) -> dict[str, Any]:
    """Returns MiB of the process before, during and after a training."""
    full, tiny, batch = MODELS[name]
    network = tiny if is_quick else full
    small = Training(mlp(8, 64, 2))
    arrays = mlp(8, 64, 2).inputs
    small.step(arrays)
    small.step(arrays)
    gc.collect()
    nn.clear_memory_cache()
    found: dict[str, Any] = {}

    def note(what: str) -> None:
        """Records resident, used and cached memory."""
        stats = nn.memory_stats()
        found[what] = [resident(), stats["live"] / MIB, stats["cached"] / MIB]

    note("before")
    kept = dict(nn.get_parameters())
    large = Training(network(batch))
    for _ in range(2):
        large.step(network(batch).inputs)
    note("after two steps")
    nn.clear_memory_cache()
    note("after `nn.clear_memory_cache()`")
    large.step(network(batch).inputs)
    nn.clear_parameters()
    del large
    gc.collect()
    note("network deleted")
    for _ in range(100):
        small.step(arrays)
    time.sleep(0.1 if is_quick else 5.0)
    note("and 100 small steps, five seconds")
    nn.clear_memory_cache()
    note("and `nn.clear_memory_cache()`")
    del kept
    return found


def more_threads(is_quick: bool) -> dict[str, Any]:
    """Returns seconds of a step, and a digest of all parameters after five steps, by number of threads."""
    network = mixed(4 if is_quick else 32)
    rows = {}
    for n in THREADS:
        nn.set_num_threads(n)
        training = Training(network)
        for _ in range(5):
            training.step(network.inputs)
        digest = hashlib.sha256(b"".join(v.d.tobytes() for v in training.parameters.values())).hexdigest()
        budget = 0.0 if is_quick else 0.5
        step = warm(lambda training=training: training.step(network.inputs), budget, time.perf_counter)
        rows[str(n)] = {"step": step, "digest": digest}
    return rows


PARTS: dict[str, Callable[[bool], dict[str, Any]]] = {
    **{name: partial(grow, name) for name in SERIES},
    **{f"first steps, {name}": partial(first_steps, name) for name in MODELS},
    **{f"memory after, {name}": partial(give_back, name) for name in MODELS},
    "threads": more_threads,
}
"""Functions that measure, by name. Each returns figures in nested dictionaries and lists."""

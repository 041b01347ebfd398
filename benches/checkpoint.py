"""Memory and time of training steps with recomputation: `python benches/checkpoint.py`.

A chain of 50 layers is trained in several ways, which take turns. Static graphs keep every value, mark segments
for recomputation, or have a memory budget of a third of the intermediate values. Eager code keeps every value or
has the same budget. PyTorch, if an interpreter with it is given, keeps all or uses `torch.utils.checkpoint`.

Memory is the peak of a step beyond the memory before it. The library counts it for Kinnor, the system for
PyTorch.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEPTH, SEGMENT = 50, 7
WORKLOADS = {"mlp": (1024, 256), "convolution": (8, 32, 32, 32)}
"""Shape of the input and output of each layer."""

Way = tuple[str, "Callable[[], None]", "Callable[[], int]", "Callable[[], None]"]
"""A way to train: its name, a function that runs a step, and two more functions. One returns the memory of the last
step. The other is called before each step."""


def kinnor_ways(workload: str) -> Iterator[Way]:
    """Yields training steps in Kinnor."""
    import numpy as np

    import kinnor as nn
    import kinnor.functions as F
    import kinnor.parametric_functions as PF

    nn.set_num_threads(1)
    shape = WORKLOADS[workload]
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).randn(*shape).astype(np.float32))

    def layer(h: nn.Variable) -> nn.Variable:
        """Returns one layer of the chain."""
        if workload == "mlp":
            return F.relu(PF.affine(h, shape[1]))
        return F.relu(PF.convolution(h, shape[1], (3, 3), pad=(1, 1)))

    def network(by_hand: bool) -> nn.Variable:
        """Returns the loss. `by_hand` marks segments for recomputation."""
        h = x
        for i in range(DEPTH):
            with nn.parameter_scope(f"layer{i}"), nn.recompute(by_hand and (i + 1) % SEGMENT != 0 and i < DEPTH - 1):
                h = layer(h)
        return F.mean(h * h)

    before = 0

    def start() -> None:
        """Zeroes gradients and resets the peak of memory."""
        nonlocal before
        for p in nn.get_parameters().values():
            p.grad.zero()
        before = nn.memory_stats()["live"]
        nn.reset_peak_memory()

    def way(name: str, loss: nn.Variable, budget: int | None = None) -> Way:
        """Returns the way of a static graph."""

        def step() -> None:
            """Runs the static graph forward and backward under the budget."""
            loss.forward(clear_no_need_grad=True, memory_budget=budget)
            loss.backward(clear_buffer=True)

        return name, step, lambda: nn.memory_stats()["peak"] - before, start

    def at_once(name: str, budget: int | None = None) -> Way:
        """Returns the way of eager code."""

        def step() -> None:
            """Builds the graph eagerly and runs it backward, under the budget."""
            with nn.auto_forward(), nn.memory_budget(budget):
                network(by_hand=False).backward(clear_buffer=budget is None)

        return name, step, lambda: nn.memory_stats()["peak"] - before, start

    keeping = network(by_hand=False)
    fixed = 2 * sum(4 * p.size for p in nn.get_parameters().values()) + 4 * x.size
    values = nn._core.plan_facts(keeping, None)["peak_clearing"] - fixed
    yield way("keep everything", keeping)
    yield way("recompute by hand", network(by_hand=True))
    yield way("budget: a third", keeping, fixed + values // 3)
    yield at_once("at once, keep everything")
    yield at_once("at once, budget: a third", fixed + values // 3)


def torch_ways(workload: str) -> Iterator[Way]:
    """Yields training steps in PyTorch."""
    import ctypes

    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint_sequential

    torch.set_num_threads(1)
    torch.manual_seed(0)
    shape = WORKLOADS[workload]
    x = torch.randn(shape)

    def layer() -> list[nn.Module]:
        """Returns one layer of the chain."""
        n = shape[1]
        return [nn.Linear(n, n) if workload == "mlp" else nn.Conv2d(n, n, 3, padding=1), nn.ReLU()]

    model = nn.Sequential(*(module for _ in range(DEPTH) for module in layer()))
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    before = 0

    def status(what: str) -> int:
        """Returns bytes of the entry `what` in the status of this process."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(what))

    def start() -> None:
        """Zeroes gradients, frees memory and resets the peak."""
        nonlocal before
        model.zero_grad(set_to_none=False)
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak of memory
        before = status("VmRSS")

    def keep() -> None:
        """A step that keeps every value."""
        (model(x) ** 2).mean().backward()

    def checkpoint() -> None:
        """A step with checkpointed segments."""
        segments = round(DEPTH / SEGMENT)
        (checkpoint_sequential(model, segments, x, use_reentrant=False) ** 2).mean().backward()

    for name, step in (("keep everything", keep), ("torch.utils.checkpoint", checkpoint)):
        yield name, step, lambda: status("VmHWM") - before, start


def work(framework: str, workload: str, rounds: int) -> None:
    """Runs all ways of a framework in turns. Prints memory and time of each step as a line of JSON."""
    for n in range(rounds + 1):
        if n == 0:
            ways = list(kinnor_ways(workload) if framework == "Kinnor" else torch_ways(workload))
        for name, step, memory, start in ways:
            start()
            began = time.process_time()
            step()
            took = time.process_time() - began
            # The first step loads code and allocates memory.
            print(json.dumps({"way": name, "memory": memory(), "time": took if n else None}), flush=True)


def steps(python: str, framework: str, workload: str, rounds: int, counting: bool = False) -> Iterator[dict[str, Any]]:
    """Yields the steps that a new process reports.

    With `counting`, memory is returned to the system immediately, which takes time.
    """
    environment = os.environ | ({"MALLOC_MMAP_THRESHOLD_": "65536"} if counting else {})
    command = [python, __file__, "--work", framework, "--only", workload, "--rounds", str(rounds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode:
        sys.exit(f"{framework} ended with {process.returncode}")


def main() -> None:
    """Runs everything and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peer", help="an interpreter that has PyTorch")
    parser.add_argument("--only", choices=WORKLOADS, nargs="+", default=[*WORKLOADS])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.work:
        work(chosen.work, chosen.only[0], chosen.rounds)
        return
    from tqdm import tqdm

    frameworks = {"Kinnor": sys.executable} | ({"PyTorch": chosen.peer} if chosen.peer else {})
    rows: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    ways = {"Kinnor": 5, "PyTorch": 2}
    total = len(chosen.only) * (chosen.rounds + 1) * sum(ways[f] for f in frameworks)
    with tqdm(total=total, unit="step") as bar:
        for workload in chosen.only:
            for framework, python in frameworks.items():
                bar.set_description(f"{workload}, {framework}")
                for step in steps(python, framework, workload, chosen.rounds):
                    rows.setdefault((workload, framework, step["way"]), []).append(step)
                    bar.update()
            if chosen.peer:
                for step in steps(chosen.peer, "PyTorch", workload, 1, counting=True):
                    rows[workload, "PyTorch", step["way"]][0]["memory"] = step["memory"]
    print(f"{'':13}{'':9}{'':26}{'MiB':>9}{'part':>7}{'ms':>9}{'times':>8}")
    kept: tuple[float, float] = (1.0, 1.0)
    for (workload, framework, way), found in rows.items():
        memory = (found[0] if framework == "PyTorch" else found[-1])["memory"]
        best = min(step["time"] for step in found[1:])
        if way.endswith("keep everything"):
            kept = memory, best
        print(
            f"{workload:13}{framework:9}{way:26}{memory / 2**20:9.1f}{memory / kept[0]:7.2f}"
            f"{best * 1000:9.1f}{best / kept[1]:8.2f}"
        )


if __name__ == "__main__":
    main()

"""Scaling of training with processes: measures links and plans, and simulates plans over a model of a link.

    python -m benches.scale                             # all: measurements and predictions, then 2 to 1,024 processes
    python -m benches.scale --gigabits 1 5              # also over a throttled loopback (root, `ip` and `tc`)
    python -m benches.scale --link 20e-6 1.25e9         # a given link, with measured plans
    python -m kinnor.launch -n 2 -m benches.scale link  # one part alone, in JSON; see --help

A plan describes a training step of one process: seconds of forward, backward and update, and the times when
backward completes each gradient. `docs/maintainers/scale.md` explains the model.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from math import ceil, log2
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .peers.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .peers.workloads import Batch, Workload

ROOT = Path(__file__).parents[1]
NETWORKS = ("mlp 64", "mlp 1024", "vgg", "resnet-20", "transformer")
"""Default networks. The processes share the batch of each."""

SIZES = [1 << n for n in range(3, 24, 2)]
"""Sizes in bytes of the messages for the fit of a link."""

PACKING = 1 << 18
"""Number of values in a bucket."""


class Link(NamedTuple):
    """A link between processes: seconds of an empty message, bytes per second, and bytes summed per second."""

    latency: float
    bandwidth: float
    sums: float


class Plan(NamedTuple):
    """A step on one process, in seconds, and the gradients in the order in which backward completes them."""

    forward: float
    backward: float
    update: float
    gradients: list[tuple[float, int]]
    """Time of completion from the start of backward, and bytes, of each gradient."""


# --- The model


def all_reduce_time(link: Link, ranks: int, size: float) -> float:
    """Returns the seconds in which `ranks` processes sum arrays of `size` bytes, by a ring or by doubling.

    The faster of both counts.

    >>> all_reduce_time(Link(1.0, 1.0, float("inf")), 4, 8.0)  # 2 (4 - 1) messages of 2 bytes, or 2 of 8 bytes
    18.0
    >>> all_reduce_time(Link(1.0, 1.0, float("inf")), 4, 1.0)
    4.0
    """
    if ranks == 1:
        return 0.0
    ring = 2 * (ranks - 1) * (link.latency + size / ranks / link.bandwidth) + (ranks - 1) * size / ranks / link.sums
    doubling = ceil(log2(ranks)) * (link.latency + size / link.bandwidth + size / link.sums)
    return min(ring, doubling)


def buckets(plan: Plan, packing: int) -> list[tuple[float, int]]:
    """Returns the time when each bucket is full, and its bytes. Buckets have at least `packing` values.

    >>> buckets(Plan(0, 3, 0, [(1, 8), (2, 8), (3, 4)]), 4)
    [(2, 16), (3, 4)]
    """
    found, size = [], 0
    for n, (ready, own) in enumerate(plan.gradients):
        size += own
        if size >= 4 * packing or n == len(plan.gradients) - 1:
            found.append((ready, size))
            size = 0
    return found


def step_time(plan: Plan, link: Link, ranks: int, overlap: str, packing: int = PACKING) -> float:
    """Returns the seconds of a step, if a link sums one bucket at a time.

    With `overlap` `"thread"`, a bucket is sent when it is full and the link is free, while backward continues. With
    `"blocking"`, backward waits for each bucket. With `"none"`, buckets are sent after backward.

    >>> plan, link = Plan(1.0, 4.0, 1.0, [(2.0, 8), (4.0, 8)]), Link(1.0, 8.0, float("inf"))
    >>> [step_time(plan, link, 2, overlap, packing=1) for overlap in ("none", "blocking", "thread")]
    [10.0, 10.0, 8.0]
    """
    free = 0.0
    full = buckets(plan, packing)
    for ready, size in full:
        took = all_reduce_time(link, ranks, size)
        free = max(free, ready) + took if overlap == "thread" else free + took
    backward = max(plan.backward, free) if overlap == "thread" else plan.backward + free
    return plan.forward + backward + plan.update


def least_step_time(plan: Plan, link: Link, ranks: int, packing: int = PACKING) -> float:
    """Returns the lower bound of any overlap in seconds: the longer of computing and sending."""
    sent = sum(all_reduce_time(link, ranks, size) for _, size in buckets(plan, packing))
    return max(plan.forward + plan.backward + plan.update, sent)


def fit(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Returns latency and bandwidth from the smallest and the largest of (bytes, seconds) of messages.

    Other sizes are not used, because a throttled link passes short messages at full speed.

    >>> fit([(0, 1.0), (8, 9.0), (16, 3.0)])
    (1.0, 8.0)
    """
    (small, soon), (large, late) = min(points), max(points)
    bandwidth = (large - small) / max(late - soon, 1e-9)
    return max(soon - small / bandwidth, 0.0), bandwidth


# --- In the processes


def measure_link(repeats: int) -> dict[str, Any]:
    """Measures a ping-pong between the first two processes, and sums of all. Returns medians of `repeats`."""
    import numpy as np

    import kinnor.communicators as C

    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    if comm.size == 1:
        raise SystemExit("scale: expected at least two processes to measure a link, got one")
    members = comm._members("scale", "world")
    points, sums = [], []
    for size in SIZES:
        values, taken, summed = np.zeros(size // 4 or 1, np.float32), [], []
        for _ in range(repeats):
            members.barrier()
            start = time.perf_counter()
            if members.rank == 0:
                members.send(values, 1, 0)
                members.receive(values, 1, 0)
            elif members.rank == 1:
                members.receive(values, 0, 0)
                members.send(values, 0, 0)
            taken.append((time.perf_counter() - start) / 2)
            members.barrier()
            start = time.perf_counter()
            members.all_reduce(values)
            summed.append(time.perf_counter() - start)
        points.append((values.nbytes, statistics.median(taken)))
        sums.append((values.nbytes, statistics.median(summed)))
    a, b = np.ones(1 << 20, np.float32), np.ones(1 << 20, np.float32)
    added = []
    for _ in range(repeats):
        start = time.perf_counter()
        np.add(a, b, out=a)
        added.append(time.perf_counter() - start)
    return {"rank": members.rank, "points": points, "sums": sums, "rate": a.nbytes / statistics.median(added)}


def part(workload: Workload, rank: int, ranks: int) -> list[Batch]:
    """Returns the examples of one of `ranks` processes, for each batch."""
    return [(x[rank::ranks].copy(), t[rank::ranks].copy()) for x, t in workload.batches]


class Training:
    """A network and a solver on the examples of one process."""

    def __init__(self, name: str, rank: int, ranks: int) -> None:
        import kinnor as nn

        from .peers.on_kinnor import SOLVERS, Model, set_weights

        workload = WORKLOADS[name](False)
        self.batches = part(workload, rank, ranks)
        nn.clear_parameters()
        self.x, self.t = (nn.Variable(array.shape) for array in self.batches[0])
        self.loss = Model(workload, False)(self.x, self.t)
        set_weights(workload)
        self.parameters = nn.get_parameters()
        self.solver = SOLVERS[workload.solver](workload.rate)
        self.solver.set_parameters(self.parameters)
        self.steps = 0

    def feed(self) -> None:
        """Writes the next batch to the inputs."""
        self.x.d, self.t.d = self.batches[self.steps % len(self.batches)]
        self.steps += 1

    def step(self, callback: Any = None) -> tuple[float, float, float]:
        """Runs a step. Returns seconds of forward, of backward with its sums, and of the update."""
        sums_after = callback is not None and callback.overlap == "none"
        times = [time.perf_counter()]
        self.feed()
        self.loss.forward(clear_no_need_grad=True)
        self.solver.zero_grad()
        times.append(time.perf_counter())
        self.loss.backward(clear_buffer=True, communicator_callbacks=None if sums_after else callback)
        if sums_after:
            callback.sum_gradients()
        times.append(time.perf_counter())
        self.solver.update()
        times.append(time.perf_counter())
        forward, backward, update = (b - a for a, b in pairwise(times))
        return forward, backward, update


def measure_steps(name: str, overlap: str, repeats: int) -> dict[str, Any]:
    """Returns median seconds of a step of all processes, with communication."""
    import kinnor as nn
    import kinnor.communicators as C

    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    training = Training(name, comm.rank, comm.size)
    comm.add_context_and_parameters((nn.Context(), training.parameters))
    callback = comm.get_all_reduce_callback(PACKING, division=True, overlap=overlap)
    taken = []
    for n in range(repeats + 3):
        comm.barrier()
        start = time.perf_counter()
        training.step(callback)
        if n >= 3:  # the first runs make plans and pack gradients into one array
            taken.append(time.perf_counter() - start)
    return {"rank": comm.rank, "step": statistics.median(taken)}


def record(name: str, ranks: int, repeats: int) -> Plan:
    """Returns the plan of one of `ranks` processes, measured without communication."""
    import kinnor as nn

    training = Training(name, 0, ranks)
    names = {v.grad: key for key, v in training.parameters.items()}

    class Note(nn.CommunicatorBackwardCallback):
        """Records the time when each gradient is complete: after the last function that adds to it."""

        def on_finish_function_backward(self, f: nn.Function) -> None:
            """Notes when the gradient of each named parameter among the inputs was last added to."""
            now = time.perf_counter() - start
            for v in f.inputs:
                if v.need_grad and v.grad in names:
                    key = names[v.grad]
                    done.pop(key, None)
                    done[key] = now

    done: dict[str, float] = {}
    runs, plain = [], []
    for n in range(repeats + 3):
        plain.append(training.step())
        training.feed()
        training.loss.forward(clear_no_need_grad=True)
        done.clear()
        start = time.perf_counter()
        training.loss.backward(clear_buffer=True, communicator_callbacks=Note())
        if n >= 3:
            runs.append((time.perf_counter() - start, dict(done)))
    forward, backward, update = (statistics.median(times) for times in zip(*plain[3:], strict=True))
    order = list(runs[0][1])
    shares = {key: statistics.median(run[key] / total for total, run in runs) for key in order}
    gradients = [(shares[key] * backward, 4 * training.parameters[key].size) for key in order]
    return Plan(forward, backward, update, gradients)


def measure_plan(name: str, repeats: int) -> dict[str, Any]:
    """Returns the plan of each process while the others compute too.

    The processes share caches, memory and perhaps cores.
    """
    import kinnor.communicators as C

    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    comm.barrier()
    return {"rank": comm.rank, "plan": record(name, comm.size, repeats)}


# --- All together


def started(
    ranks: int, *arguments: str, namespace: str | None = None, module: str = "benches.scale"
) -> list[dict[str, Any]]:
    """Runs several processes of a module. Returns the results that they print."""
    command = [sys.executable, "-m", "kinnor.launch", "--oversubscribe", "--threads", "1", "-n", str(ranks)]
    command += ["-m", module, *arguments]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    if namespace is not None:
        command = ["ip", "netns", "exec", namespace, *command]
        environment |= {"OMPI_MCA_btl": "tcp,self", "OMPI_MCA_btl_tcp_if_include": "lo", "OMPI_MCA_pml": "ob1"}
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(out.stderr)
    found = [json.loads(line) for line in out.stdout.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda each: each["rank"])


def links(gigabits: Sequence[float]) -> Iterator[tuple[str, str | None]]:
    """Yields names of links, and their network namespaces."""
    yield "shared memory", None
    for rate in gigabits:
        if shutil.which("tc") is None or shutil.which("ip") is None:
            raise SystemExit("scale: expected `ip` and `tc` for a throttled link, got none")
        name = f"kinnor{os.getpid()}"
        limits = ["rate", f"{rate}gbit", "burst", "256kb", "latency", "50ms"]
        try:
            subprocess.run(["ip", "netns", "add", name], check=True)
            for rest in (
                ["ip", "link", "set", "lo", "up"],
                ["tc", "qdisc", "add", "dev", "lo", "root", "tbf", *limits],
            ):
                subprocess.run(["ip", "netns", "exec", name, *rest], check=True)
            yield f"{rate:g} Gbit/s", name
        finally:
            subprocess.run(["ip", "netns", "delete", name], check=False)


def _fitted(found: list[dict[str, Any]]) -> Link:
    """Fits a link to the measurements of all processes."""
    latency, bandwidth = fit(found[0]["points"])
    return Link(latency, bandwidth, min(each["rate"] for each in found))


def _compare(title: str, namespace: str | None, given: argparse.Namespace) -> Link:
    """Prints measurements and predictions of the model."""
    link = _fitted(started(2, "link", "--repeats", str(given.repeats), namespace=namespace))
    print(f"{title}: {link.latency * 1e6:.0f} us, {link.bandwidth / 1e9:.2f} GB/s, sums {link.sums / 1e9:.2f} GB/s")
    print("  network       ranks  overlap   measured ms  predicted ms  ratio")
    for name in given.networks:
        for ranks in given.ranks:
            found = started(ranks, "plan", name, "--repeats", str(given.repeats), namespace=namespace)
            plan = max((Plan(*each["plan"]) for each in found), key=lambda plan: plan.forward + plan.backward)
            for overlap in ("none", "blocking", "thread"):
                told = started(ranks, "steps", name, overlap, "--repeats", str(given.repeats), namespace=namespace)
                measured = max(each["step"] for each in told)
                said = step_time(plan, link, ranks, overlap)
                print(
                    f"  {name:12}  {ranks:5}  {overlap:8}  {measured * 1e3:11.2f}  {said * 1e3:12.2f}  "
                    f"{measured / said:5.2f}",
                    flush=True,
                )
    return link


def _predict(title: str, link: Link, given: argparse.Namespace) -> None:
    """Prints predictions for many processes.

    Each process has the whole batch of a plan, so the examples grow with the processes.
    """
    print(f"{title}: efficiency (time of one process / time of a step), and what the floor allows")
    print("  network       ranks  none  blocking  thread  floor")
    for name in given.networks:
        plan = record(name, 1, given.repeats)
        alone = plan.forward + plan.backward + plan.update
        for ranks in (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024):
            shares = [alone / step_time(plan, link, ranks, overlap) for overlap in ("none", "blocking", "thread")]
            shares.append(alone / least_step_time(plan, link, ranks))
            none, blocking, thread, floor = shares
            print(f"  {name:12}  {ranks:5}  {none:4.2f}  {blocking:8.2f}  {thread:6.2f}  {floor:5.2f}")


def main() -> None:
    """Runs the part that the command line selects."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "part", nargs="*", help="`link`, `plan WORKLOAD` or `steps WORKLOAD OVERLAP`: one part, of several processes"
    )
    parser.add_argument("--repeats", type=int, default=20, help="how many times each figure is taken")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--networks", nargs="+", choices=WORKLOADS, default=NETWORKS)
    parser.add_argument("--gigabits", type=float, nargs="*", default=[], help="also over loopbacks of these rates")
    parser.add_argument("--link", type=float, nargs=2, metavar=("SECONDS", "BYTES"), help="latency and bandwidth")
    given = parser.parse_args()
    if given.part:
        what, *about = given.part
        parts = {"link": measure_link, "steps": measure_steps, "plan": measure_plan}
        print(json.dumps(parts[what](*about, given.repeats)))
        return
    os.environ["KINNOR_NUM_THREADS"] = "1"
    if given.link is not None:
        _predict("A link of your own", Link(*given.link, sums=4e9), given)
        return
    for title, namespace in links(given.gigabits):
        _predict(title, _compare(title, namespace, given), given)


if __name__ == "__main__":
    main()

"""Compares steps with overlapped gradient sums to the floor: computing alone or sending alone.

    python -m benches.overlap                     # shared memory
    python -m benches.overlap --gigabits 1 5      # also loopbacks throttled to these rates (root, `ip` and `tc`)

The ways to sum take turns, step by step, so that a disturbance affects all. The floor is the longer of a step
without sums and the sums without a step, both with all processes at work. No order of sums can reach the floor. A
bucket is sent when its last gradient is complete, and the first layer's gradient is complete only at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from .peers.workloads import WORKLOADS
from .scale import PACKING, Training, buckets, links, record, started

if TYPE_CHECKING:
    from collections.abc import Callable

WAYS = ("none", "blocking", "thread")


def measure(name: str, repeats: int) -> dict[str, Any]:
    """Returns median seconds of a step without sums, of sums alone, and of steps with sums.

    A measurement ends when all processes are done.
    """
    import numpy as np

    import kinnor as nn
    import kinnor.communicators as C

    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    alone = Training(name, comm.rank, comm.size)
    runs: dict[str, Callable[[], Any]] = {"computed": lambda: (alone.step(), comm.barrier())}
    for way in WAYS:
        training = Training(name, comm.rank, comm.size)
        comm.clear_context_parameters()
        comm.add_context_and_parameters((nn.Context(), training.parameters))
        callback = comm.get_all_reduce_callback(PACKING, division=True, overlap=way)
        runs[way] = lambda training=training, callback=callback: training.step(callback)  # type: ignore[misc]
    for _ in range(3):  # the first runs make plans and pack gradients into one array
        for run in runs.values():
            run()
    members = comm._members("overlap", "world")
    plan = record(name, comm.size, 3)
    parts = [np.zeros(size // 4, np.float32) for _, size in buckets(plan, PACKING)]

    def send(sender: Any) -> list[float]:
        """Sums all parts. Returns the seconds of each."""
        times = [time.perf_counter()]
        for values in parts:
            sender.all_reduce(values)
            times.append(time.perf_counter())
        return [after - before for before, after in pairwise(times)]

    runs |= {"sent": lambda: send(members), "asleep": lambda: send(members.beside())}
    taken: dict[str, list[float]] = {way: [] for way in runs}
    each: list[list[float]] = []
    worked = []
    for _ in range(repeats):
        for way, run in runs.items():
            comm.barrier()
            start, work = time.perf_counter(), time.process_time()
            told = run()
            taken[way].append(time.perf_counter() - start)
            if way == "asleep":
                worked.append(time.process_time() - work)
                each.append(told)
    steps = {way: median(times) for way, times in taken.items()} | {"worked": median(worked)}
    share = steps["computed"] / (plan.forward + plan.backward + plan.update)
    free = 0.0
    for (ready, _), sent in zip(buckets(plan, PACKING), map(median, zip(*each, strict=True)), strict=True):
        free = max(free, share * ready) + sent
    steps["allowed"] = share * (plan.forward + max(plan.backward, free / share) + plan.update)
    return {"rank": comm.rank, "steps": steps}


def main() -> None:
    """Runs the measurements that the command line selects."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--work", nargs=2, metavar=("WORKLOAD", "REPEATS"), help=argparse.SUPPRESS)
    parser.add_argument("--networks", nargs="+", choices=WORKLOADS, default=["mlp 1024", "vgg"])
    parser.add_argument("--gigabits", type=float, nargs="*", default=[], help="also over loopbacks of these rates")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=15, help="how many times each figure is taken")
    given = parser.parse_args()
    if given.work:
        print(json.dumps(measure(given.work[0], int(given.work[1]))))
        return
    os.environ["KINNOR_NUM_THREADS"] = "1"
    print(
        "milliseconds; sums alone: in turn, in a thread's way, its processor time; ways with their ratio to the floor"
    )
    for title, namespace in links(given.gigabits):
        for name in given.networks:
            work = ["--work", name, str(given.repeats)]
            found = started(given.ranks, *work, namespace=namespace, module="benches.overlap")
            steps = {way: max(each["steps"][way] for each in found) for way in found[0]["steps"]}
            floor = max(steps["computed"], min(steps["sent"], steps["asleep"]))
            row = [f"{what} {1e3 * steps[what]:6.1f}" for what in ("computed", "sent", "asleep", "worked", "allowed")]
            row += [f"{way} {1e3 * steps[way]:6.1f} {steps[way] / floor:4.2f}" for way in WAYS]
            print(f"{title:13}  {name:9}", *row, sep="  ", flush=True)


if __name__ == "__main__":
    main()

"""Training steps of several processes, beside PyTorch's `DistributedDataParallel` over gloo.

    python benches/distributed.py                                       # torch from .venv-peers, see `make peers`
    python benches/distributed.py --ranks 2 4 --only resnet-20 --rounds 3
    python benches/distributed.py --python elsewhere/bin/python

The processes of a workload share its batch, each computes on one thread. The frameworks take turns, so that a noisy
minute meets both alike; the losses of the first steps, averaged over processes, have to agree.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from peers.workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Callable

    from peers.workloads import Batch, Workload

N_LOSSES = 3
"""Losses that both frameworks must agree on."""

PACKING = 1 << 20
"""Values of a bucket, 4 MB: PyTorch's are up to 25 MB, the first of 1 MB."""

NETWORKS = ("mlp 1024", "resnet-20", "transformer", "vgg")


# --- What runs in several processes


def part(workload: Workload, rank: int, ranks: int) -> list[Batch]:
    """The examples of one process, of each batch."""
    return [(x[rank::ranks].copy(), t[rank::ranks].copy()) for x, t in workload.batches]


def on_kinnor(workload: Workload, overlap: str) -> tuple[Callable[[Batch], Any], list[Batch], int]:
    """A step, what it takes, and the rank."""
    from peers.on_kinnor import SOLVERS, Model, set_weights

    import kinnor as nn
    from kinnor import communicators

    communicator = communicators.MultiProcessDataParallelCommunicator()
    communicator.init()
    batches = part(workload, communicator.rank, communicator.size)
    x, t = (nn.Variable(array.shape) for array in batches[0])
    loss = Model(workload, False)(x, t)
    set_weights(workload)
    solver = SOLVERS[workload.solver](workload.rate)
    solver.set_parameters(nn.get_parameters())
    communicator.add_context_and_parameters((nn.Context(), nn.get_parameters()))
    callback = communicator.get_all_reduce_callback(PACKING, division=True, overlap=overlap)
    is_after = callback.overlap == "none"

    def step(batch: Batch) -> nn.Variable:
        x.d, t.d = batch
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True, communicator_callbacks=None if is_after else callback)
        if is_after:
            callback.sum_gradients()
        solver.update()
        return loss

    return step, batches, communicator.rank


def on_torch(workload: Workload) -> tuple[Callable[[Any], Any], list[Any], int]:
    """The same in PyTorch, in the form that `make peers` found the fastest for images."""
    import torch
    from peers.on_torch import MODELS, optimizer, set_weights, tensors
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    model = MODELS[workload.model](workload.sizes)
    set_weights(model, workload)
    batches = [tensors(batch) for batch in part(workload, rank, ranks)]
    if batches[0][0].ndim == 4:
        model = model.to(memory_format=torch.channels_last)
        batches = [(x.to(memory_format=torch.channels_last), t) for x, t in batches]
    solver = optimizer(workload, list(model.parameters()))
    parallel = DistributedDataParallel(model, gradient_as_bucket_view=True)
    criterion = F.cross_entropy if workload.is_classifier else F.mse_loss

    def step(batch: Any) -> Any:
        x, t = batch
        loss = criterion(parallel(x), t)
        solver.zero_grad()
        loss.backward()
        solver.step()
        return loss.detach()

    return step, batches, rank


def work(framework: str, name: str, overlap: str, seconds: float) -> None:
    """Take steps for a while, and print what they took."""
    workload = WORKLOADS[name](False)
    step, batches, rank = on_kinnor(workload, overlap) if framework == "kinnor" else on_torch(workload)
    source = cycle(batches)
    losses = [float(step(next(source))) for _ in range(N_LOSSES)]
    start = time.perf_counter()
    for _ in range(3):
        float(step(next(source)))
    # All processes take the same number of steps, which a clock would not give them.
    steps = max(5, round(3 * seconds / (time.perf_counter() - start))) if rank == 0 else 0
    steps = agreed(framework, steps)
    taken = []
    for _ in range(steps):
        start = time.perf_counter()
        float(step(next(source)))
        taken.append(time.perf_counter() - start)
    print(json.dumps({"rank": rank, "losses": losses, "step": median(taken)}), flush=True)


def agreed(framework: str, steps: int) -> int:
    """The number of the first process."""
    if framework == "kinnor":
        from kinnor import communicators

        communicator = communicators.MultiProcessDataParallelCommunicator()
        communicator.init()
        return int(communicator._members("distributed", "world").exchange(str(steps))[0])
    import torch

    number = torch.tensor([steps])
    torch.distributed.broadcast(number, 0)
    return int(number)


# --- Who starts them


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def started(framework: str, python: Path, ranks: int, arguments: list[str]) -> list[dict[str, Any]]:
    """What each of several processes prints."""
    program = [str(Path(__file__)), "--work", framework, *arguments]
    path = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "KINNOR_NUM_THREADS": "1", "PYTHONPATH": path}
    if framework == "kinnor":
        launch = ["-m", "kinnor.launch", "--oversubscribe", "--threads", "1", "-n", str(ranks)]
        processes = [subprocess.Popen([sys.executable, *launch, *program], env=environment, stdout=subprocess.PIPE)]
    else:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        environment = environment | group | {"PYTHONPATH": str(Path(__file__).parent)}
        processes = [
            subprocess.Popen([str(python), *program], env=environment | {"RANK": str(rank)}, stdout=subprocess.PIPE)
            for rank in range(ranks)
        ]
    out = [process.communicate()[0].decode() for process in processes]
    if any(process.returncode for process in processes):
        sys.exit(f"distributed: a process of {framework} failed")
    found = [json.loads(line) for text in out for line in text.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda each: each["rank"])


def main() -> None:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, default=Path(__file__).parents[1] / ".venv-peers/bin/python")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=NETWORKS, help="workloads")
    parser.add_argument("--overlap", nargs="+", default=["none"], choices=["none", "blocking", "thread"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each framework in each round")
    parser.add_argument("--work", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        framework, name, overlap, seconds = given.work
        work(framework, name, overlap, float(seconds))
        return
    print("workload      ranks  overlap    kinnor ms  torch ms  ratio  alone ms  efficiency")
    for name in given.only:
        for ranks in given.ranks:
            for overlap in given.overlap:
                compare(name, ranks, overlap, given)


def compare(name: str, ranks: int, overlap: str, given: argparse.Namespace) -> None:
    """Print a row: the medians over rounds, and the ratio of them. Alone is one process with the whole batch."""
    steps: dict[str, list[float]] = {"kinnor": [], "torch": [], "alone": []}
    for _ in range(given.rounds):
        losses = {}
        for who in steps:
            framework, processes = ("kinnor", 1) if who == "alone" else (who, ranks)
            found = started(framework, given.python, processes, [name, overlap, str(given.seconds)])
            steps[who].append(1e3 * max(each["step"] for each in found))
            losses[who] = np.mean([each["losses"] for each in found], axis=0)
        np.testing.assert_allclose(losses["kinnor"], losses["torch"], rtol=2e-3)
    kinnor, torch, alone = (median(steps[who]) for who in ("kinnor", "torch", "alone"))
    print(
        f"{name:12}  {ranks:5}  {overlap:8}  {kinnor:10.2f}  {torch:8.2f}  {kinnor / torch:5.2f}  {alone:8.2f}  "
        f"{alone / kinnor / min(ranks, os.cpu_count() or 1):10.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""Training steps of several processes, compared with PyTorch's `DistributedDataParallel` over gloo.

    python -m benches.distributed                                       # torch from .venv-peers, see `make peers`
    python -m benches.distributed --ranks 2 4 --only resnet-20 --rounds 3
    python -m benches.distributed --python elsewhere/bin/python

The processes of a workload share its batch, and each uses one thread. The frameworks take turns, so that a
disturbance affects both. The losses of the first steps, averaged over processes, must agree.
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

from .peers.contenders import installed
from .peers.workloads import WORKLOADS
from .scale import PACKING, Training, part

if TYPE_CHECKING:
    from collections.abc import Callable

N_LOSSES = 3
"""Number of losses that both frameworks must agree on."""

ROOT = Path(__file__).parents[1]
NETWORKS = ("mlp 1024", "resnet-20", "transformer", "vgg")


# --- In the processes


def on_kinnor(name: str, overlap: str) -> tuple[Callable[[Any], Any], list[Any], int]:
    """Returns a training step in Kinnor, its batches and the rank."""
    import kinnor as nn
    from kinnor import communicators

    communicator = communicators.MultiProcessDataParallelCommunicator()
    communicator.init()
    training = Training(name, communicator.rank, communicator.size)
    communicator.add_context_and_parameters((nn.Context(), training.parameters))
    callback = communicator.get_all_reduce_callback(PACKING, division=True, overlap=overlap)

    def step(_: Any) -> nn.Variable:
        """Runs one training step and returns its loss. The batch is in the graph already."""
        training.step(callback)
        return training.loss

    return step, training.batches, communicator.rank


def on_torch(name: str) -> tuple[Callable[[Any], Any], list[Any], int]:
    """The same in PyTorch, in the form that `make peers` found fastest for images."""
    import torch
    from torch.nn import functional as F
    from torch.nn.parallel import DistributedDataParallel

    from .peers.on_torch import MODELS, optimizer, set_weights, tensors

    workload = WORKLOADS[name](False)
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
        """Runs one training step on a batch. Returns its loss without its graph."""
        x, t = batch
        loss = criterion(parallel(x), t)
        solver.zero_grad()
        loss.backward()
        solver.step()
        return loss.detach()

    return step, batches, rank


def work(framework: str, name: str, overlap: str, seconds: float) -> None:
    """Runs steps for a while, and prints losses and times."""
    step, batches, rank = on_kinnor(name, overlap) if framework == "kinnor" else on_torch(name)
    source = cycle(batches)
    losses = [float(step(next(source))) for _ in range(N_LOSSES)]
    start = time.perf_counter()
    for _ in range(3):
        float(step(next(source)))
    # All processes must run the same number of steps, which a clock would not ensure.
    steps = max(5, round(3 * seconds / (time.perf_counter() - start))) if rank == 0 else 0
    steps = agreed(framework, steps)
    taken = []
    for _ in range(steps):
        start = time.perf_counter()
        float(step(next(source)))
        taken.append(time.perf_counter() - start)
    print(json.dumps({"rank": rank, "losses": losses, "step": median(taken)}), flush=True)


def agreed(framework: str, steps: int) -> int:
    """Returns the number of steps of the first process."""
    if framework == "kinnor":
        from kinnor import communicators

        communicator = communicators.MultiProcessDataParallelCommunicator()
        communicator.init()
        return int(communicator._members("distributed", "world").exchange(str(steps))[0])
    import torch

    number = torch.tensor([steps])
    torch.distributed.broadcast(number, 0)
    return int(number)


# --- In the launcher


def free_port() -> int:
    """Returns a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def started(framework: str, python: Path, ranks: int, arguments: list[str]) -> list[dict[str, Any]]:
    """Runs several processes. Returns the results that they print."""
    program = ["-m", "benches.distributed", "--work", framework, *arguments]
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = os.environ | {"OMP_NUM_THREADS": "1", "KINNOR_NUM_THREADS": "1", "PYTHONPATH": path}
    if framework == "kinnor":
        launch = ["-m", "kinnor.launch", "--oversubscribe", "--threads", "1", "-n", str(ranks)]
        processes = [subprocess.Popen([sys.executable, *launch, *program], env=environment, stdout=subprocess.PIPE)]
    else:
        group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks)}
        environment = environment | group | {"PYTHONPATH": str(ROOT)}
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
    """Runs the comparisons that the command line selects."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-peers/bin/python")
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
    if "torch" not in installed(given.python):
        sys.exit(f"distributed: expected PyTorch for {given.python}, found none: `PEERS=torch make peers` installs it")
    print("workload      ranks  overlap    kinnor ms  torch ms  ratio  alone ms  efficiency")
    for name in given.only:
        for ranks in given.ranks:
            for overlap in given.overlap:
                compare(name, ranks, overlap, given)


def compare(name: str, ranks: int, overlap: str, given: argparse.Namespace) -> None:
    """Prints a row: medians over rounds, and their ratio. One process alone gets the whole batch."""
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

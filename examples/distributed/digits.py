"""Trains the digits with several processes: `python -m kinnor.launch -n 2 examples/distributed/digits.py`.

Each process has a copy of the network and trains it on its part of each batch. Gradients are summed while
backward runs. The first process shows progress, and draws the learning curve to `--output`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor.communicators import MultiProcessDataParallelCommunicator
from kinnor.utils.data_iterator import data_iterator_simple
from kinnor.utils.learning_rate_scheduler import CosineScheduler

sys.path.insert(0, str(Path(__file__).parents[1]))
from lenet import lenet, split_digits


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--batch-size", type=int, default=64, help="examples of all processes together")
    parser.add_argument("--output", type=Path, help="folder for the checkpoint and the learning curve")
    args = parser.parse_args()

    comm = MultiProcessDataParallelCommunicator()
    comm.init()
    nn.seed(313)
    batch = args.batch_size // comm.size
    (images, labels), (test_images, test_labels) = split_digits()
    batches = data_iterator_simple(
        lambda i: (images[i], labels[i]), len(images), batch, shuffle=True, rng=np.random.RandomState(0)
    ).shard(comm.rank, comm.size)

    x, t = nn.Variable((batch, *images.shape[1:])), nn.Variable((batch, 1))
    loss = F.mean(F.softmax_cross_entropy(lenet(x), t))
    solver = S.Adam()
    solver.set_parameters(nn.get_parameters())
    comm.add_context_and_parameters((nn.Context(), nn.get_parameters()))
    callback = comm.get_all_reduce_callback(division=True)
    steps = args.epochs * len(images) // args.batch_size
    rate = CosineScheduler(4e-3, steps)
    curve = []
    for step in progress(range(steps), comm.rank == 0):
        x.d, t.d = batches.next()
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True, communicator_callbacks=callback)
        solver.set_learning_rate(rate.get_learning_rate(step))
        solver.update()
        curve.append(float(loss.d))
    batches.close()

    # Each process tests every comm.size-th image. The sums are global.
    mine = slice(comm.rank, None, comm.size)
    with nn.no_grad(), nn.auto_forward():
        y = lenet(nn.Variable.from_numpy_array(test_images[mine]))
    right = nn.NdArray.from_numpy_array(np.array([np.sum(y.d.argmax(1) == test_labels[mine, 0])], np.int64))
    losses = nn.NdArray.from_numpy_array(np.array(curve, np.float32))
    comm.all_reduce([right])
    comm.all_reduce(losses, division=True)
    if comm.rank == 0:
        print(f"{comm.size} processes, loss {losses.data[:20].mean():.3f} -> {losses.data[-20:].mean():.3f}")
        print(f"test accuracy {100 * int(right.data[0]) / len(test_images):.2f} %")
    if args.output is not None:
        if comm.rank == 0:
            args.output.mkdir(parents=True, exist_ok=True)
            draw(losses.data, args.output / "learning_curve.png")
        comm.barrier()
        nn.save_checkpoint(args.output / "digits.checkpoint", solvers={"adam": solver}, communicator=comm)


def progress(steps, shown):
    """Returns a progress bar that only one process shows."""
    try:
        from tqdm import tqdm
    except ImportError:
        return steps
    # under mpirun, standard error is not a terminal
    return tqdm(steps, file=sys.stdout, disable=None if shown else True)


def draw(losses, path):
    """Draws the loss of each step."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    figure = Figure(figsize=(6, 4))
    axes = figure.subplots()
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss", yscale="log", title="Digits, all processes")
    figure.savefig(path)


if __name__ == "__main__":
    main()

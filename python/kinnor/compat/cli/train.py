"""`kinnor train`: trains the network of a project file, with its data sets, solvers and monitors.

The steps of a training have the order of NNabla's. `kinnor.utils.load` reads the file.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import nnp
from ... import parameter as parameters
from ..._core import Error
from ...cli import wrote
from ...cli.accepted import without_effect
from ...files import network_file
from ...files.progress import Progress
from ...nnp import NetworkError
from ..utils import solver_messages
from ..utils.load import Info, Linked, Monitor, Optimizer, load

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ...data.data_iterator import DataIterator

__all__ = ["add", "feed", "train"]

MONITORED_FIRST = 5
"""The monitors are evaluated after each of this many first epochs."""


class TrainingError(Error, RuntimeError):
    """Training failed: the cost is not finite."""


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: Its name.
        parser: The parser of the command.
    """
    parser.add_argument("-c", "--config", required=True, help="project file: .nnp, .nntxt or .prototxt")
    parser.add_argument("-p", "--param", help="file of parameters to start from")
    parser.add_argument("-o", "--outdir", required=True, help="folder for results")
    parser.add_argument("-r", "--resume", action="store_true", help="continue from the last epoch saved in the folder")
    why = "there is no memory of another device that results would have to leave"
    without_effect(parser, why, "-O", "--enable-ooc")
    without_effect(parser, why, "-m", "--ooc-gpu-memory-size", takes="SIZE")
    without_effect(parser, why, "-w", "--ooc-window-length", takes="LENGTH")
    parser.add_argument("-C", "--context", help="cpu, which is what there is")
    return lambda args: _train(args.config, args.outdir, args.param, args.resume, args.context)


def _train(config: str, outdir: str, *args: Any) -> None:
    """Trains, then prints the paths of the result files that exist."""
    train(config, outdir, *args)
    names = ("results.nnp", "monitoring_report.yml")
    wrote(path for path in (Path(outdir, name) for name in names) if path.is_file())


def train(
    config: str, outdir: str, param: str | None = None, resume: bool = False, context: str | None = None
) -> dict[str, float]:
    """Train the network of a project file.

    Writes three files to the folder. `results.nnp` is the network of the epoch with the least `valid_error`.
    `results_current_N.nnp` is the network of the last epoch with the states of the solvers.
    `monitoring_report.yml` has a line for each cost and monitor.

    Args:
        config: Path of the project file.
        outdir: Path of the folder for results, which is created.
        param: Path of a file of parameters to start from.
        resume: Whether to continue from the last epoch saved in the folder.
        context: `cpu`, or None.

    Returns:
        The last values of the monitors by name, and of `cost`.

    Raises:
        NetworkError: If the project file is malformed or has no optimizer.
        TrainingError: If the cost is not finite.
        OSError: If a file cannot be read or written.
    """
    folder = Path(outdir)
    folder.mkdir(parents=True, exist_ok=True)
    with parameters.parameter_scope("", OrderedDict()):
        info = load(config, prepare_data_iterator=None, exclude_parameter=True, context=context)
        if param is not None:
            parameters.load_parameters(param, strict=False)
        elif Path(config).suffix == ".nnp":
            parameters.put(network_file.read(config).entries, "train")
        return _Training(info, folder).run(resume)


def feed(linked: Linked, data: dict[str, Any], reserved: Callable[[str], float] | None = None) -> None:
    """Copy a batch of data to the inputs of a network.

    Args:
        linked: An optimizer, a monitor or an executor.
        data: Batches by the names of the data set's variables.
        reserved: Function that returns the value of a name that begins with `%`, such as `%iter`.

    Raises:
        NetworkError: If the data set has no such variable.
    """
    for node, name in linked.dataset_assign.items():
        variable: Any = node.variable_instance
        if name in data:
            variable.d = np.reshape(data[name], variable.shape)
        elif name.startswith("%") and reserved is not None:
            variable.data.fill(reserved(name))
        else:
            raise NetworkError(f"{linked.name}: expected a data set with {name!r}, got one with {list(data)}")
        variable.need_grad = False
    for node, generator in linked.generator_assign.items():
        variable = node.variable_instance
        variable.d = generator(list(variable.shape))


class _Training:
    """One run of a training: networks, iterators, results so far.

    Args:
        info: The contents of the project file.
        folder: Path of the folder for results.
    """

    def __init__(self, info: Info, folder: Path) -> None:
        self.info = info
        self.folder = folder
        self.config = info.training_config
        self.best: float | None = None
        self.shown: dict[str, float] = {}

    def run(self, resume: bool) -> dict[str, float]:
        """Train all epochs. Returns the last values of the monitors."""
        n_epochs, n_iterations = self.config.max_epoch, self.config.iter_per_epoch
        if n_epochs < 1 or n_iterations < 1:
            self._save("results", with_states=False)
            return {}
        if not self.info.optimizers:
            raise NetworkError("train: expected an optimizer, got none")
        first = self._resume() if resume else 0
        with ExitStack() as stack:
            trained = self._iterators(stack, list(self.info.optimizers.values()))
            watched = self._iterators(stack, list(self.info.monitors.values()))
            bar = stack.enter_context(Progress(n_epochs * n_iterations, "train"))
            for epoch in range(first, n_epochs):
                costs = []
                for i in range(n_iterations):
                    costs.append(self._update(epoch * n_iterations + i, trained))
                    bar.to(epoch * n_iterations + i + 1, f"epoch {epoch + 1} of {n_epochs}, cost {costs[-1]:.6f}")
                self._end(epoch + 1, float(np.mean(costs)), watched)
        return self.shown

    def _iterators(self, stack: ExitStack, each: list[Any]) -> dict[str, DataIterator]:
        """An iterator for each data set in use. Data sets of the same name share an iterator."""
        found: dict[str, DataIterator] = {}
        for linked in each:
            for name, make in linked.data_iterators.items():
                if name not in found:
                    found[name] = stack.enter_context(make())
        return found

    def _update(self, iteration: int, iterators: dict[str, DataIterator]) -> float:
        """Run one iteration of each optimizer.

        Returns:
            The mean of the first optimizer's losses.
        """
        batches = {name: dict(zip(it.variables, it.next(), strict=True)) for name, it in iterators.items()}
        costs = []
        optimizers = sorted(self.info.optimizers.values(), key=lambda held: held.order)
        for optimizer in optimizers:
            number = iteration + 1
            if number < optimizer.start_iter or (optimizer.end_iter and number > optimizer.end_iter):
                continue
            data: dict[str, Any] = {}
            for name in optimizer.data_iterators:
                data.update(batches[name])
            feed(optimizer, data, lambda name: self._reserved(name, iteration))
            costs.append(self._step(optimizer, iteration))
        if costs and not np.isfinite(costs[0]):
            raise TrainingError(f"train: expected a cost that is a number, got {costs[0]} in iteration {iteration + 1}")
        return costs[0] if costs else 0.0

    def _step(self, optimizer: Optimizer, iteration: int) -> float:
        """Run an iteration of an optimizer. Returns its cost."""
        optimizer.target.forward(clear_no_need_grad=True)
        losses: list[Any] = [node.variable_instance for node in optimizer.loss_variables]
        cost = sum(float(np.mean(loss.d)) for loss in losses)
        if iteration % optimizer.update_interval == 0:
            optimizer.solver.zero_grad()
        optimizer.target.backward(grad=1.0 / max(losses[0].size, 1), clear_buffer=True)
        if iteration % optimizer.update_interval == optimizer.update_interval - 1:
            if optimizer.weight_decay > 0:
                optimizer.solver.weight_decay(optimizer.weight_decay)
            optimizer.solver.set_learning_rate(optimizer.scheduler.get_learning_rate(iteration))
            optimizer.solver.update()
        return cost

    def _reserved(self, name: str, iteration: int) -> float:
        """The value of a name that begins with `%`, such as `%iter`."""
        n_iterations, n_epochs = self.config.iter_per_epoch, self.config.max_epoch
        known = {
            "%iter": iteration,
            "%max_iter": n_epochs * n_iterations,
            "%epoch": iteration // n_iterations,
            "%epochf": iteration / n_iterations,
            "%max_epoch": n_epochs,
            "%progress": iteration / (n_iterations * n_epochs),
        }
        if name not in known:
            raise NetworkError(f"train: expected one of {list(known)}, got {name!r}")
        return known[name]

    def _end(self, epoch: int, cost: float, iterators: dict[str, DataIterator]) -> None:
        """Evaluate the monitors at the end of an epoch, write the report and save the network."""
        lines, self.shown = [f"{epoch - 1}:", f"  cost: {cost}"], {"cost": cost}
        if epoch % self.config.monitor_interval == 0 or epoch <= MONITORED_FIRST or epoch == self.config.max_epoch:
            for monitor in self.info.monitors.values():
                error = self._watch(monitor, iterators)
                self.shown[monitor.name] = error
                lines.append(f"  {monitor.name}: {error}")
            error = self.shown.get("valid_error", 0.0)
            if not self.config.save_best or self.best is None or error <= self.best:
                self.best = error
                self._save("results", with_states=False)
        with (self.folder / "monitoring_report.yml").open("a") as file:
            file.write("\n".join(lines) + "\n")
        shown = ", ".join(f"{name} {value:.6f}" for name, value in self.shown.items())
        print(f"epoch {epoch} of {self.config.max_epoch}: {shown}", flush=True)
        if epoch % 10 == 0 or epoch == self.config.max_epoch:
            old = list(self.folder.glob("results_current_*.nnp"))
            self._save(f"results_current_{epoch}", with_states=True)
            for path in old:
                if path.name != f"results_current_{epoch}.nnp":
                    path.unlink()

    def _watch(self, monitor: Monitor, iterators: dict[str, DataIterator]) -> float:
        """The mean value of a monitor over its data set."""
        found = [iterators[name] for name in monitor.data_iterators]
        if not found:
            raise NetworkError(f"train: expected a data set of monitor {monitor.name!r}, got none")
        sums = []
        for _ in range(max(max(it.size for it in found) // max(it.batch_size for it in found), 1)):
            data: dict[str, Any] = {}
            for it in found:
                data.update(zip(it.variables, it.next(), strict=True))
            feed(monitor, data)
            monitor.target.forward(clear_no_need_grad=True)
            sums.append(sum(float(np.mean(node.variable_instance.d)) for node in _nodes(monitor)))
        return float(np.mean(sums))

    # --- Files

    def _save(self, name: str, with_states: bool) -> None:
        """Save the networks, optionally with the states of the solvers."""
        path = self.folder / f"{name}.nnp"
        optimizers = self.info.optimizers.values() if with_states else ()
        states = [solver_messages.state_file(held.name, held.solver, ".h5") for held in optimizers]
        found = parameters.get_parameters(grad_only=False)
        network_file.write_archive(path, self.info.proto, nnp.entries(found.items()), ".h5", states)

    def _resume(self) -> int:
        """Load the last epoch saved in the folder.

        Returns:
            The number of the epoch, or 0 if none was saved.
        """
        numbers = [path.stem.rpartition("_")[2] for path in self.folder.glob("results_current_*.nnp")]
        last = max((int(number) for number in numbers if number.isdecimal()), default=0)
        if last:
            content = network_file.read(self.folder / f"results_current_{last}.nnp")
            parameters.put(content.entries, "train")
            for optimizer in self.info.optimizers.values():
                solver_messages.load_states(optimizer.name, optimizer.solver, content.states)
        return last


def _nodes(monitor: Monitor) -> list[Any]:
    """The `NetworkVariable`s that a monitor reads. Their values are in `variable_instance`."""
    return list(monitor.monitor_variables)

"""Loads networks with their optimizers, monitors and executors, built and linked as in NNabla."""

from __future__ import annotations

import os
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import _core
from ... import functions as F
from ... import initializer as I
from ... import parameter as parameters
from ...context import Context
from ...data.data_iterator import data_iterator_cache, data_iterator_csv_dataset
from ...files import network_file
from ...learning_rate_scheduler import (
    BaseLearningRateScheduler,
    CosineScheduler,
    ExponentialScheduler,
    LinearWarmupScheduler,
    PolynomialScheduler,
    StepScheduler,
)
from ...logger import logger
from ...nnp import NetworkError, ProtoGraph
from . import solver_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ..._core import Variable
    from ...data.data_iterator import DataIterator
    from ...files.parameter_file import PathOrFile
    from ...nnp import NetworkVariable, ProtoNetwork

__all__ = [
    "Dataset",
    "Executor",
    "Info",
    "Monitor",
    "Optimizer",
    "TrainingConfig",
    "base_load",
    "link_components",
    "load",
    "restore_optimizer_state",
]

Assignment = OrderedDict[Any, Any]
"""A dict with a `NetworkVariable` as key."""


@dataclass
class GlobalConfig:
    """Settings for all networks."""

    default_context: Context
    """The context that networks are built in."""


@dataclass
class TrainingConfig:
    """Duration of the training, and frequency of the monitors."""

    max_epoch: int
    """Number of epochs to train."""
    iter_per_epoch: int
    """Number of training steps in each epoch."""
    save_best: bool
    """Whether training saves parameters only if the error is not above the lowest so far."""
    monitor_interval: int
    """Monitors run in epochs that this divides, in the first ones and in the last."""


@dataclass
class Dataset:
    """A data set. `data_iterator` creates an iterator over it, or is None if none was requested."""

    uri: str
    """Path of the data: a folder of a cache, or a CSV file."""
    cache_dir: str
    """Folder for a cache of the data; empty for none."""
    normalize: bool
    """Whether pixels are scaled to 0 to 1."""
    data_iterator: Callable[[], DataIterator] | None


@dataclass
class Linked:
    """The base of optimizers, monitors and executors: the data sets and generators that fill a network's inputs.

    `network` and the attributes with its variables are set by `link_components`.
    """

    name: str
    """The name of the component."""
    proto: Any
    """The message of the component."""
    network: ProtoNetwork = field(init=False)
    """The network that the component runs."""
    dataset_assign: Assignment = field(default_factory=OrderedDict)
    """The name of the data set's variable that fills each `NetworkVariable`."""
    generator_assign: Assignment = field(default_factory=OrderedDict)
    """The function that draws the values of each `NetworkVariable`."""
    data_iterators: OrderedDict[str, Any] = field(default_factory=OrderedDict)
    """A function that creates an iterator, or None, by the name of the data set."""


@dataclass
class Optimizer(Linked):
    """Trains a network: runs `target` forward and backward, then `solver` updates `parameters`."""

    solver: Any = None
    scheduler: Any = None
    order: int = 0
    """Optimizers of one training run by increasing order."""
    start_iter: int = 0
    end_iter: int = 0
    update_interval: int = 1
    weight_decay: float = 0.0
    lr_decay: float = 1.0
    lr_decay_interval: int = 1
    states: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    """Solver states of the files, by the name of the archive's member: the extension and the bytes."""
    loss_variables: list[NetworkVariable] = field(default_factory=list)
    """The losses, whose sum `target` propagates backward."""
    parameters: OrderedDict[str, Variable] = field(default_factory=OrderedDict)
    """The parameters to train, by the name in the network."""
    parameter_learning_rate_multipliers: Assignment = field(default_factory=OrderedDict)
    """A number for each `NetworkVariable`: a parameter is trained if it is above zero. The size has no effect."""
    target: Any = None
    """The `Variable` to run."""


@dataclass
class Monitor(Linked):
    """Evaluates a network: runs `target` forward, then reads `monitor_variables`."""

    monitor_variables: list[NetworkVariable] = field(default_factory=list)
    target: Any = None
    """The `Variable` to run."""


@dataclass
class Executor(Linked):
    """Runs a network: runs `forward_target` forward, then reads the keys of `output_assign`.

    With `need_back_propagation`, `backward_target` is run backward between these steps. Otherwise it is None.
    """

    num_evaluations: int = 1
    repeat_evaluation_type: str = ""
    need_back_propagation: bool = False
    no_image_normalization: bool = False
    output_assign: Assignment = field(default_factory=OrderedDict)
    """The type and the name of the data of each `NetworkVariable` that is an output, as a list."""
    parameters: Assignment = field(default_factory=OrderedDict)
    """The name of each `NetworkVariable` that is a parameter."""
    loss_variables: list[NetworkVariable] = field(default_factory=list)
    """The losses, whose sum `backward_target` propagates backward."""
    parameter_learning_rate_multipliers: Assignment = field(default_factory=OrderedDict)
    """A number for each `NetworkVariable` of a parameter."""
    forward_target: Any = None
    """The `Variable` to run forward."""
    backward_target: Any = None


class Info:
    """The contents of files: `networks`, `datasets`, `optimizers`, `monitors`, `executors` by name, `training_config`.

    Attributes:
        proto: The message of the files.
        proto_graph: The networks as one graph description, in the order of the files.
        states: Solver states by the names of archive members: the extension and the bytes of each.
    """

    networks: OrderedDict[str, ProtoNetwork]
    datasets: OrderedDict[str, Dataset]
    optimizers: OrderedDict[str, Optimizer]
    monitors: OrderedDict[str, Monitor]
    executors: OrderedDict[str, Executor]
    training_config: TrainingConfig
    global_config: GlobalConfig
    """The context of the files, or the context given to `load`."""
    proto: Any
    proto_graph: ProtoGraph
    states: dict[str, tuple[str, bytes]]


def load(
    filenames: PathOrFile | Sequence[PathOrFile],
    prepare_data_iterator: bool | None = True,
    batch_size: int | None = None,
    exclude_parameter: bool = False,
    parameter_only: bool = False,
    extension: str = ".nntxt",
    context: str | None = None,
) -> Info:
    """Read files, build their networks and link their components. Parameters go into the current scope.

    Args:
        filenames: Path of a `.nnp`, `.nntxt`, `.prototxt`, `.protobuf` or `.h5` file, a file open for reading, or
            several of them.
        prepare_data_iterator: Whether data sets get iterators. None creates them if there are optimizers.
        batch_size: Batch size; the file's by default.
        exclude_parameter: Whether to leave the parameters out.
        parameter_only: Whether to leave everything else out.
        extension: Format of a file object.
        context: `cpu`, or None for the context of the file. The networks are built in it.

    Returns:
        The contents of the files.

    Raises:
        NetworkError: If a file is malformed, or if names in it do not match.
        Error: If a network cannot be built.
        OSError: If a file cannot be read.
    """
    info = base_load(
        filenames, prepare_data_iterator, batch_size, exclude_parameter, parameter_only, extension, context
    )
    for network in info.networks.values():
        network(ctx=info.global_config.default_context, batch_size=batch_size)
        for node in (*network.variables.values(), *network.parameters.values()):
            if node.variable_instance is not None:
                node.variable_instance.name = node.name
    link_components(info)
    return info


def base_load(
    filenames: PathOrFile | Sequence[PathOrFile],
    prepare_data_iterator: bool | None = True,
    batch_size: int | None = None,
    exclude_parameter: bool = False,
    parameter_only: bool = False,
    extension: str = ".nntxt",
    context: str | None = None,
) -> Info:
    """Read files as `load` does, but build no networks: nothing refers to variables, solvers have no parameters.

    Args:
        filenames: As in `load`.
        prepare_data_iterator: Whether data sets get iterators. None creates them if there are optimizers.
        batch_size: Without effect before networks are built.
        exclude_parameter: Whether to leave the parameters out.
        parameter_only: Whether to leave everything else out.
        extension: Format of a file object.
        context: `cpu`, or None for the context of the file.

    Returns:
        The contents of the files.

    Raises:
        NetworkError: If a file is malformed.
        OSError: If a file cannot be read.
    """
    if _core.is_nnabla():
        filenames = _with_known_extension(filenames)
    content = network_file.read(filenames, extension, parameters=not exclude_parameter, networks=not parameter_only)
    info = Info()
    info.proto, info.states = content.proto, content.states
    info.proto_graph = ProtoGraph.from_proto(
        content.proto, None, parameters.get_current_parameter_scope(), np.random.RandomState(0)
    )
    parameters.put(content.entries, "load")
    info.global_config = GlobalConfig(_context(content.proto.global_config.default_context, context))
    held = content.proto.training_config
    info.training_config = TrainingConfig(
        held.max_epoch, held.iter_per_epoch, held.save_best, held.monitor_interval if held.monitor_interval > 0 else 10
    )
    info.proto_graph.expand_loop_control()
    info.networks = info.proto_graph.networks
    wanted = held.max_epoch > 0 if prepare_data_iterator is None else prepare_data_iterator
    info.datasets = OrderedDict((d.name, _dataset(d, i, wanted)) for i, d in enumerate(content.proto.dataset))
    info.optimizers = OrderedDict((o.name, _optimizer(o, content.states)) for o in content.proto.optimizer)
    info.monitors = OrderedDict((m.name, Monitor(m.name, m)) for m in content.proto.monitor)
    info.executors = OrderedDict((e.name, _executor(e)) for e in content.proto.executor)
    return info


def _with_known_extension(filenames: PathOrFile | Sequence[PathOrFile]) -> list[PathOrFile]:
    """The files with a known extension or without one. Others are skipped with a warning, as in NNabla."""
    each: Any = filenames if isinstance(filenames, (list, tuple)) else [filenames]
    found = []
    for file in each:
        ending = Path(file).suffix.lower() if isinstance(file, (str, os.PathLike)) else ""
        if ending and ending not in network_file.EXTENSIONS:
            logger.warning(f"{file} is omitted.")
        else:
            found.append(file)
    return found


def link_components(info: Info) -> None:
    """Link optimizers, monitors and executors to the variables of built networks, and set the solvers' parameters.

    Args:
        info: The result of `base_load`. Each of its networks must have been called.

    Raises:
        NetworkError: If names do not match, or if a network was not built.
    """
    for optimizer in info.optimizers.values():
        _link_optimizer(info, optimizer)
    for monitor in info.monitors.values():
        _link_monitor(info, monitor)
    for executor in info.executors.values():
        _link_executor(info, executor)


def restore_optimizer_state(optimizer: Optimizer) -> None:
    """Load the states of an optimizer's solver from the files, if they contain any.

    Args:
        optimizer: The optimizer. Its solver must have its parameters.

    Raises:
        ParameterError: If the states are malformed or belong to another solver.
        GraphError: If a state belongs to a parameter that the solver does not have.
    """
    optimizer.solver.set_states_from_protobuf(optimizer.proto)
    solver_messages.load_states(optimizer.name, optimizer.solver, optimizer.states)


def _context(proto: Any, wanted: str | None) -> Context:
    """The context of a file, restricted to what this machine supports."""
    if wanted is not None and wanted != "cpu":
        raise NetworkError(f"load: expected `context` to be 'cpu', got {wanted!r}")
    backends = list(proto.backends)
    half = any(backend.endswith(":half") for backend in backends)
    return Context(["cpu:half" if half else "cpu:float"], "CpuCachedArray", "0")


def _reader(uri: str, cache_dir: str | None, overwrite_cache: bool) -> partial[DataIterator]:
    """The iterator of a data set: over its cache if that exists and is not to be overwritten, else over the file."""
    if uri.endswith(".cache"):
        return partial(data_iterator_cache, uri)
    if cache_dir and not overwrite_cache and Path(cache_dir, "cache_index.csv").is_file():
        return partial(data_iterator_cache, cache_dir)
    return partial(data_iterator_csv_dataset, uri)


def _dataset(proto: Any, number: int, prepare: bool) -> Dataset:
    """Create the data set of a message."""
    if prepare and proto.batch_size < 1:
        raise NetworkError(f"load: expected a batch size of data set {proto.name!r}, got {proto.batch_size}")
    return _create_dataset(
        proto.uri,
        proto.batch_size,
        proto.shuffle,
        proto.no_image_normalization,
        proto.cache_dir,
        proto.overwrite_cache,
        proto.create_cache_explicitly,
        prepare,
        number,
    )


def _create_dataset(
    uri: str,
    batch_size: int,
    shuffle: bool,
    no_image_normalization: bool,
    cache_dir: str | None,
    overwrite_cache: bool,
    create_cache_explicitly: bool,
    prepare_data_iterator: bool,
    dataset_index: int,
) -> Dataset:
    """Create a data set. Programs of NNabla import this function.

    Args:
        uri: Path of a CSV file, or of a folder `.cache`.
        batch_size: Examples in a batch.
        shuffle: Whether to shuffle the examples.
        no_image_normalization: Whether to keep pixels as whole numbers.
        cache_dir: Folder with a cache of the data set, which is read if it exists.
        overwrite_cache: Whether to ignore the cache.
        create_cache_explicitly: Without effect: nothing is written.
        prepare_data_iterator: Whether the data set gets an iterator.
        dataset_index: Seed of the random order.
    """
    make: Callable[[], DataIterator] | None = None
    if prepare_data_iterator:
        rng = np.random.RandomState(dataset_index)
        reader = _reader(uri, cache_dir, overwrite_cache)
        make = partial(reader, batch_size, shuffle, rng=rng, normalize=not no_image_normalization)
    return Dataset(uri, cache_dir or "", not no_image_normalization, make)


# --- Inputs of networks


def _network(info: Info, proto: Any) -> ProtoNetwork:
    """The network that a message refers to."""
    if proto.network_name not in info.networks:
        raise NetworkError(
            f"load: expected one of the networks {list(info.networks)} in {proto.name!r}, got {proto.network_name!r}"
        )
    return info.networks[proto.network_name]


def _feed(info: Info, linked: Linked) -> None:
    """Link the inputs of a network to data sets and generators."""
    proto = linked.proto
    network = linked.network = _network(info, proto)
    for name in getattr(proto, "dataset_name", ()):
        if name not in info.datasets:
            raise NetworkError(f"load: expected one of the data sets {list(info.datasets)}, got {name!r}")
        linked.data_iterators[name] = info.datasets[name].data_iterator
    for held in proto.data_variable:
        linked.dataset_assign[network.variable(held.variable_name)] = held.data_name
    for held in proto.generator_variable:
        linked.generator_assign[network.variable(held.variable_name)] = _generator(held)


def _generator(proto: Any) -> Callable[[Sequence[int]], Any]:
    """The function from a shape to values that a message describes."""
    if proto.type == "Normal":
        return I.NormalInitializer(proto.multiplier)
    if proto.type == "Uniform":
        return I.UniformInitializer((-abs(proto.multiplier), abs(proto.multiplier)))
    if proto.type == "Range":
        return I.RangeInitializer(0, proto.multiplier)
    if proto.type == "Constant":
        return I.ConstantInitializer(proto.multiplier)
    raise NetworkError(f"load: expected a generator of type Normal, Uniform, Range or Constant, got {proto.type!r}")


def matching(network: ProtoNetwork, name: str) -> list[str]:
    """The variables that a name refers to: the variable itself, or all copies if it has repetitions in braces.

    Args:
        network: A network with unrolled repetitions.
        name: The name, such as `affine{loop}/W`.

    Raises:
        NetworkError: If there are no such variables.
    """
    if name in network.parameters or name in network.variables:
        return [name]
    parts = [re.escape(part) for part in re.split(r"\{[^}]*\}", name)]
    pattern = re.compile(r"\[\d+\]".join(parts))
    found = [other for other in (*network.parameters, *network.variables) if pattern.match(other)]
    if not found:
        raise NetworkError(f"load: expected the name of a variable of {network.name!r}, got {name!r}")
    return found


def _instances(nodes: Iterable[NetworkVariable]) -> list[Any]:
    """The built variables of some nodes."""
    found = [node.variable_instance for node in nodes]
    if not found or any(variable is None for variable in found):
        raise NetworkError("load: expected variables that the network computes, got others or none")
    return found


def _optimizer(proto: Any, states: dict[str, tuple[str, bytes]]) -> Optimizer:
    """Create an optimizer from a message."""
    made = Optimizer(proto.name, proto, solver=solver_messages.read(proto.solver), states=states)
    made.scheduler = _scheduler(proto.solver)
    made.order, made.start_iter, made.end_iter = proto.order, proto.start_iter, proto.end_iter
    made.update_interval = max(proto.update_interval, 1)
    made.weight_decay = proto.solver.weight_decay
    made.lr_decay = proto.solver.lr_decay if proto.solver.lr_decay > 0 else 1.0
    made.lr_decay_interval = max(proto.solver.lr_decay_interval, 1)
    return made


def _rates(made: Optimizer | Executor) -> None:
    """Set the learning rate multipliers of the parameters named in the message."""
    for held in made.proto.parameter_variable:
        for name in matching(made.network, held.variable_name):
            made.parameter_learning_rate_multipliers[made.network.variable(name)] = held.learning_rate_multiplier


def _link_optimizer(info: Info, made: Optimizer) -> None:
    """Link an optimizer to the variables of its network, and set its solver's parameters."""
    _feed(info, made)
    made.loss_variables = [made.network.variable(held.variable_name) for held in made.proto.loss_variable]
    moving: dict[str, Variable] = {}
    _rates(made)
    for node, rate in made.parameter_learning_rate_multipliers.items():
        (variable,) = _instances([node])
        if rate > 0:
            moving[node.name] = variable
        else:
            variable.need_grad = False
    made.parameters = OrderedDict(sorted(moving.items()))
    made.solver.set_parameters(made.parameters)
    restore_optimizer_state(made)
    losses = _instances(made.loss_variables)
    for loss in losses:
        loss.grad.fill(1.0 / max(loss.size, 1))
    made.target = losses[0] if len(losses) == 1 else F.sink(*losses, one_input_grad=False)


def _scheduler(proto: Any) -> BaseLearningRateScheduler:
    """Create the learning-rate schedule of a solver's message."""
    rate = solver_messages.learning_rate(proto)
    kind = proto.lr_scheduler_type
    found: BaseLearningRateScheduler = ExponentialScheduler(rate, 1.0, 1)
    if kind == "Polynomial":
        held = proto.polynomial_scheduler_param
        if held.power:
            found = PolynomialScheduler(rate, int(held.max_iter), held.power)
    elif kind == "Cosine":
        found = CosineScheduler(rate, int(proto.cosine_scheduler_param.max_iter))
    elif kind == "Exponential":
        held = proto.exponential_scheduler_param
        found = ExponentialScheduler(rate, held.gamma, max(held.iter_interval, 1))
    elif kind == "Step":
        held = proto.step_scheduler_param
        if held.iter_steps:
            found = StepScheduler(rate, held.gamma, list(held.iter_steps))
    elif kind == "":
        found = ExponentialScheduler(rate, proto.lr_decay or 1.0, max(proto.lr_decay_interval, 1))
    else:
        raise NetworkError(f"load: expected a learning rate Polynomial, Cosine, Exponential or Step, got {kind!r}")
    if proto.lr_warmup_scheduler_type == "Linear" and proto.linear_warmup_scheduler_param.warmup_iter > 0:
        found = LinearWarmupScheduler(found, proto.linear_warmup_scheduler_param.warmup_iter)
    return found


def _link_monitor(info: Info, made: Monitor) -> None:
    """Link a monitor to the variables of its network."""
    _feed(info, made)
    made.monitor_variables = [made.network.variable(held.variable_name) for held in made.proto.monitor_variable]
    made.target = F.sink(*_instances(made.monitor_variables))


def _executor(proto: Any) -> Executor:
    """Create an executor from a message."""
    made = Executor(proto.name, proto)
    made.num_evaluations = max(proto.num_evaluations, 1)
    made.repeat_evaluation_type = proto.repeat_evaluation_type
    made.need_back_propagation = proto.need_back_propagation
    made.no_image_normalization = proto.no_image_normalization
    return made


def _link_executor(info: Info, made: Executor) -> None:
    """Link an executor to the variables of its network."""
    _feed(info, made)
    for held in made.proto.output_variable:
        made.output_assign[made.network.variable(held.variable_name)] = [held.type, held.data_name]
    for held in made.proto.parameter_variable:
        for name in matching(made.network, held.variable_name):
            made.parameters[made.network.variable(name)] = name
    made.forward_target = F.sink(*_instances(made.output_assign))
    if made.need_back_propagation:
        made.loss_variables = [made.network.variable(held.variable_name) for held in made.proto.loss_variable]
        _rates(made)
        made.backward_target = F.sink(*_instances(made.loss_variables))

"""Saves networks with their optimizers, monitors and executors, as in NNabla.

save("net.nnp", {
    "networks": [{"name": "net", "batch_size": 16, "outputs": {"y": y}, "names": {"x": x}}],
    "executors": [{"name": "runtime", "network": "net", "data": ["x"], "output": ["y"]}],
})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ... import nnp as graph_def
from ... import parameter as parameters
from ...files import network_file, parameter_protobuf, schema
from ...logger import logger
from ...nnp import NetworkError, ProtoExecutor, ProtoGraph
from . import solver_messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from ..._core import Variable
    from ...files.parameter_file import PathOrFile
    from ...nnp import ProtoNetwork

__all__ = ["create_proto", "save"]


def save(
    filename: PathOrFile,
    contents: Mapping[str, Any],
    include_params: bool = False,
    variable_batch_size: bool = True,
    extension: str = ".nnp",
    parameters: Mapping[str, Variable] | None = None,
    parameter_format: str = ".h5",
    include_solver_state: bool = False,
    solver_state_format: str = ".h5",
) -> None:
    """Write networks and their components to a file, whole or not at all.

    Args:
        filename: Path, or a file open for writing. `.nnp` is an archive with the parameters. `.nntxt` and `.prototxt`
            are protobuf text, `.protobuf` is binary.
        contents: Lists of dicts, all optional. `networks`: `name`, `batch_size`, `outputs` and `names` (variables by
            name). `datasets`: `name`, `uri`, `cache_dir`, `variables`, `shuffle`, `batch_size`,
            `no_image_normalization`. `optimizers`: `name`, `solver`, `network`, `dataset`, `weight_decay`, `lr_decay`,
            `lr_decay_interval`, `update_interval`, `data_variables`, `generator_variables`, `loss_variables`. Without
            `networks`, `network` and `dataset` are "None", and the file is for `kinnor.utils.load.base_load`.
            `monitors`: `name`, `network`, `dataset`, `data_variables`, `generator_variables`, `monitor_variables`.
            `executors`: `name`, `network`, `data`, `output`, `remp`, `generator_variables`. There are also two dicts:
            `global_config` with `default_context`, and `training_config` with `max_epoch`, `iter_per_epoch` and
            `save_best`.
        include_params: Whether to include the parameters of the current scope in files other than `.nnp`.
        variable_batch_size: Whether to save the batch size as -1, so that the network runs with any batch size.
        extension: Format of a file object.
        parameters: Parameters by path, for `.nnp`; by default the parameters of the current scope.
        parameter_format: Format of the parameters in a `.nnp` file: `.h5` or `.protobuf`.
        include_solver_state: Whether to include the states of the solvers of `optimizers` in a `.nnp` file.
        solver_state_format: Format of the solver states: `.h5` or `.protobuf`.

    Raises:
        NetworkError: If the format is unknown, if `contents` is malformed, or if the format cannot store it.
        OSError: If the file cannot be written.
    """
    is_archive = network_file.is_archive(filename, extension)
    keeps_states = include_solver_state and not is_archive
    proto, constants = _described(contents, include_params and not is_archive, variable_batch_size, keeps_states)
    if not is_archive:
        network_file.write(filename, proto, extension)
    else:
        found = {**(_current() if parameters is None else parameters), **constants}
        states = _states(contents, solver_state_format) if include_solver_state else []
        if parameter_format not in (".h5", ".protobuf"):
            raise NetworkError(f"save: expected .h5 or .protobuf as `parameter_format`, got {parameter_format!r}")
        network_file.write_archive(filename, proto, graph_def.entries(found.items()), parameter_format, states)
    logger.info(f"Model file is saved as {filename}.")


def _current() -> Mapping[str, Variable]:
    """The parameters of the current scope."""
    return parameters.get_parameters(grad_only=False)


def _states(contents: Mapping[str, Any], extension: str) -> Iterable[tuple[str, bytes]]:
    """Names and bytes of the archive members with solver states."""
    for held in contents.get("optimizers", ()):
        yield solver_messages.state_file(held["name"], held["solver"], extension)


def create_proto(
    contents: Mapping[str, Any],
    include_params: bool = False,
    variable_batch_size: bool = True,
    save_solver_in_proto: bool = False,
) -> Any:
    """The `NNablaProtoBuf` message that `save` writes.

    Args:
        contents: As in `save`.
        include_params: Whether to include the parameters of the current scope.
        variable_batch_size: Whether to save the batch size as -1.
        save_solver_in_proto: Whether to include the states of the solvers of `optimizers`.

    Raises:
        NetworkError: If `contents` is malformed, or if a message cannot store it.
    """
    return _described(contents, include_params, variable_batch_size, save_solver_in_proto)[0]


def _described(
    contents: Mapping[str, Any], include_params: bool, variable_batch_size: bool, save_solver_in_proto: bool
) -> tuple[Any, Mapping[str, Variable]]:
    """The message of `create_proto`, and constants in functions of the networks, by path."""
    proto = schema.messages().NNablaProtoBuf()
    try:
        _fill_config(proto, contents)
        graph = ProtoGraph()
        for held in contents.get("networks", ()):
            proto.network.append(_network(graph, held).as_proto(variable_batch_size))
            proto.network[-1].batch_size = held["batch_size"]
        datasets = [_fill_dataset(proto.dataset.add(), held) for held in contents.get("datasets", ())]
        for held in contents.get("optimizers", ()):
            _fill_optimizer(proto.optimizer.add(), held, graph, datasets, save_solver_in_proto)
        for held in contents.get("monitors", ()):
            _fill_monitor(proto.monitor.add(), held, graph, datasets)
        for held in contents.get("executors", ()):
            proto.executor.append(ProtoExecutor.create_from_dict(held, _named(graph, held["network"])).as_proto())
    except KeyError as error:
        if isinstance(error, NetworkError):
            raise
        raise NetworkError(f"save: expected an entry {error} in `contents`, got none") from error
    except (TypeError, AttributeError) as error:
        raise NetworkError(f"save: expected `contents` as NNabla has them, got {error}") from error
    if include_params:
        found = {**parameters.get_parameters(grad_only=False), **graph.get_parameters()}
        for entry in graph_def.entries(found.items()):
            proto.MergeFromString(parameter_protobuf.encode([entry]))
    return proto, graph.get_parameters()


def _fill_config(proto: Any, contents: Mapping[str, Any]) -> None:
    """Write the global and training settings into a message."""
    if "global_config" in contents:
        context = contents["global_config"]["default_context"]
        held = proto.global_config.default_context
        held.backends.extend([context.backend] if isinstance(context.backend, str) else context.backend)
        held.array_class, held.device_id = context.array_class, str(context.device_id)
    if "training_config" in contents:
        for name in ("max_epoch", "iter_per_epoch", "save_best"):
            setattr(proto.training_config, name, contents["training_config"][name])


def _network(graph: ProtoGraph, held: Mapping[str, Any]) -> ProtoNetwork:
    """Describe a network of `contents` and add it to the graph."""
    names = {**held["names"], **held["outputs"]}
    scope = parameters.get_current_parameter_scope().copy()
    own = set(parameters.get_parameters(grad_only=False))
    described = graph_def.create_graph_from_variable(held["name"], list(held["outputs"].values()), names, scope)
    network = described.default_graph()
    constants = described.get_parameters().items()
    graph.set_parameters({path: value for path, value in constants if path not in own})
    if held["name"] in graph.networks:
        raise NetworkError(f"save: expected each name once, got two networks {held['name']!r}")
    network.owner, network.batch_size = graph, held["batch_size"]
    graph.networks[network.name] = network
    return network


def _named(graph: ProtoGraph, name: str) -> ProtoNetwork:
    """A network of the graph by name."""
    if name not in graph.networks:
        raise NetworkError(f"save: expected one of the networks {list(graph.networks)}, got {name!r}")
    return graph.networks[name]


def _fill_dataset(proto: Any, held: Mapping[str, Any]) -> str:
    """Write a data set into a message. Returns its name."""
    for name in ("name", "uri", "shuffle", "batch_size", "no_image_normalization"):
        setattr(proto, name, held[name])
    if held.get("cache_dir") is not None:
        proto.cache_dir = held["cache_dir"]
    proto.variable.extend(held["variables"])
    return str(proto.name)


def _fill_datasets(proto: Any, held: Mapping[str, Any], datasets: Sequence[str]) -> None:
    """Write the names of data sets into a message."""
    given = held["dataset"]
    for name in [given] if isinstance(given, str) else list(given or ()):
        if name not in datasets:
            raise NetworkError(f"save: expected one of the datasets {list(datasets)} in {proto.name!r}, got {name!r}")
        proto.dataset_name.append(name)


def _fill_inputs(proto: Any, held: Mapping[str, Any]) -> None:
    """Write the data and generators of a network's inputs into a message."""
    for variable, data in held.get("data_variables", {}).items():
        proto.data_variable.add(variable_name=variable, data_name=data)
    for name in held.get("generator_variables", ()):
        proto.generator_variable.add(variable_name=name, type="Constant", multiplier=0)


def _fill_optimizer(
    proto: Any, held: Mapping[str, Any], graph: ProtoGraph, datasets: Sequence[str], keeps_states: bool
) -> None:
    """Write an optimizer into a message."""
    solver = held["solver"]
    network = _named(graph, held["network"]) if graph.networks else None
    proto.name = held["name"]
    proto.network_name = "None" if network is None else network.name
    if network is None and held["dataset"] == "None":
        proto.dataset_name.append("None")
    else:
        _fill_datasets(proto, held, datasets)
    solver_messages.fill(proto.solver, solver)
    for name in ("weight_decay", "lr_decay", "lr_decay_interval"):
        setattr(proto.solver, name, held[name])
    proto.update_interval = held["update_interval"]
    _fill_inputs(proto, held)
    if network is not None:
        for name in held.get("loss_variables", network.outputs):
            proto.loss_variable.add(variable_name=name)
    moving = solver.get_parameters()
    for name in network.parameters if network is not None else parameters.get_parameters():
        proto.parameter_variable.add(variable_name=name, learning_rate_multiplier=float(name in moving))
    if keeps_states:
        solver.set_states_to_protobuf(proto)


def _fill_monitor(proto: Any, held: Mapping[str, Any], graph: ProtoGraph, datasets: Sequence[str]) -> None:
    """Write a monitor into a message."""
    network = _named(graph, held["network"])
    proto.name, proto.network_name = held["name"], network.name
    _fill_datasets(proto, held, datasets)
    _fill_inputs(proto, held)
    for name in held.get("monitor_variables", network.outputs):
        proto.monitor_variable.add(variable_name=name, type="Error")

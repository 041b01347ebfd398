"""Networks with shared parameters, and the executors that run them.

No file access.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import parameter as parameters
from .._core import CallError, Variable
from ..context import Context, get_current_context
from ..files import network_file, parameter_protobuf, schema
from ..files.network_file import NetworkError
from ..files.parameter_file import Entry
from ..logger import logger
from .network import ProtoNetwork

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.random import RandomState

    from ..display import Parameters
    from ..files.parameter_file import PathOrFile
    from ..parameter.tree import Scope

__all__ = ["ProtoExecutor", "ProtoGraph", "entries"]


class ProtoExecutor:
    """Describes how a network is run on new data: its inputs, outputs and repetitions.

    Args:
        proto: An `Executor` message.
    """

    def __init__(self, proto: Any) -> None:
        self.proto = proto

    @staticmethod
    def from_proto(proto: Any) -> ProtoExecutor:
        """Create an executor from a message.

        Args:
            proto: An `Executor`.
        """
        return ProtoExecutor(proto)

    @staticmethod
    def create_from_dict(executor: Mapping[str, Any], network: ProtoNetwork) -> ProtoExecutor:
        """Create an executor from a dict.

        Args:
            executor: `name` and `network`. Optional: `data`, `output`, `remp`, `generator_variables`,
                `no_image_normalization`, `num_evaluations`, `repeat_evaluation_type` and `need_back_propagation`. The
                names of `data` and `output` are by default the network's inputs and outputs. If `output` is a dict of
                variables, its keys are the names.
            network: The network that it runs.

        Raises:
            NetworkError: If the network has no such variable.
        """
        proto = schema.messages().Executor(name=executor["name"], network_name=executor["network"])
        for name in ("no_image_normalization", "num_evaluations", "repeat_evaluation_type", "need_back_propagation"):
            if executor.get(name) is not None:
                setattr(proto, name, executor[name])
        data_names = executor.get("remp", {})
        outputs = executor.get("output", network.outputs)
        if isinstance(outputs, dict):
            for key, variable in outputs.items():
                if isinstance(variable, Variable):
                    network.rename(network.name_of(variable) or key, key)
        for name in executor.get("data", network.inputs):
            network.variable(name)
            proto.data_variable.add(variable_name=name, data_name=data_names.get(name, name))
        for name in list(outputs):
            network.variable(name)
            proto.output_variable.add(variable_name=name, data_name=data_names.get(name, name))
        for name in network.parameters:
            proto.parameter_variable.add(variable_name=name)
        for name in executor.get("generator_variables", ()):
            proto.generator_variable.add(variable_name=name, type="Constant", multiplier=0)
        return ProtoExecutor(proto)

    def as_proto(self) -> Any:
        """The `Executor` message."""
        return self.proto


class ProtoGraph:
    """A set of networks and the parameters that they share. A call builds the first network.

    Args:
        networks: Networks by name.
        parameter_scope: The scope with the parameters; a new one by default.

    Attributes:
        networks: Networks by name. Each is also an attribute if its name is an identifier.
        executors: Executors by name.
        parameter_scope: The scope with the parameters.
    """

    def __init__(
        self, networks: OrderedDict[str, ProtoNetwork] | None = None, parameter_scope: Scope | None = None
    ) -> None:
        self.networks = OrderedDict() if networks is None else networks
        self.executors: OrderedDict[str, ProtoExecutor] = OrderedDict()
        self.parameter_scope: Scope = OrderedDict() if parameter_scope is None else parameter_scope
        self.global_variables: dict[str, Variable] = {}
        self._context: Context | None = None

    def __repr__(self) -> str:
        return f"<ProtoGraph {list(self.networks.values())}>"

    def __getattr__(self, name: str) -> Any:
        """Returns the network of a name, or an attribute of the default network."""
        networks = self.__dict__.get("networks", {})
        if name in networks:
            return networks[name]
        if name in ("inputs", "outputs", "variables", "parameters", "functions") and networks:
            return getattr(self.default_graph(), name)
        raise AttributeError(f"ProtoGraph has no attribute or network {name!r}")

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def __setitem__(self, name: str, value: Any) -> None:
        """Sets a network or an attribute."""
        if isinstance(value, ProtoNetwork):
            self.networks[name] = value
        else:
            setattr(self, name, value)

    def __contains__(self, name: str) -> bool:
        return name in self.networks or name in vars(self)

    def get(self, key: str, value: Any = None) -> Any:
        """Get a network or an attribute.

        Args:
            key: Name of the network or attribute.
            value: Default value.
        """
        return getattr(self, key) if key in self else value

    @property
    def current_context(self) -> Context:
        """The context for building networks: the one set here, else the current context."""
        return self._context or get_current_context()

    @current_context.setter
    def current_context(self, ctx: Context) -> None:
        if not isinstance(ctx, Context):
            raise CallError(f"ProtoGraph.current_context: expected a Context, got {ctx!r}")
        self._context = ctx

    def __call__(self, *args: Variable, **kwargs: Any) -> Any:
        """Build the graph of the first network; see `ProtoNetwork`.

        Args:
            args: The inputs of the network.
            kwargs: `batch_size` and `ctx`.
        """
        return self.default_graph()(*args, **kwargs)

    def default_graph(self) -> ProtoNetwork:
        """The first network.

        Raises:
            NetworkError: If there are no networks.
        """
        for network in self.networks.values():
            return network
        raise NetworkError("ProtoGraph: expected a network, got none")

    def get_parameters(self, grad_only: bool = False) -> Parameters:
        """The parameters by path.

        Args:
            grad_only: Whether to leave out parameters that need no gradient.
        """
        return parameters.get_parameters(self.parameter_scope, grad_only=grad_only)

    def set_parameter(self, key: str, param: Variable) -> None:
        """Register a parameter.

        Args:
            key: Its path.
            param: The variable.
        """
        with parameters.parameter_scope("", self.parameter_scope):
            parameters.set_parameter(key, param)

    def set_parameters(self, params: Mapping[str, Variable]) -> None:
        """Register parameters.

        Args:
            params: Variables by path.
        """
        for key, param in params.items():
            self.set_parameter(key, param)

    @staticmethod
    def from_proto(
        proto: Any,
        batch_size: int | None = None,
        param_scope: Scope | None = None,
        rng: RandomState | None = None,
    ) -> ProtoGraph:
        """Create a graph description from a message.

        Args:
            proto: An `NNablaProtoBuf`.
            batch_size: Length of the axes saved as -1; the message's batch size by default.
            param_scope: The scope with the parameters; a new one by default.
            rng: Random generator for new parameters; `RandomState(0)` by default.

        Raises:
            NetworkError: If names in a network do not match.
        """
        rng = rng or np.random.RandomState(0)
        graph = ProtoGraph(None, param_scope)
        for held in proto.network:
            if held.name in graph.networks:
                raise NetworkError(f"load: expected each name once, got two networks {held.name!r}")
            graph.networks[held.name] = ProtoNetwork.from_proto(graph, held, rng, batch_size)
        for held in proto.executor:
            graph.executors[held.name] = ProtoExecutor.from_proto(held)
        return graph

    def as_proto(
        self,
        include_parameter: bool = False,
        only_parameter: bool = False,
        networks: Iterable[ProtoNetwork] | None = None,
        variable_batch_size: bool = True,
    ) -> Any:
        """The graph as an `NNablaProtoBuf` message.

        Args:
            include_parameter: Whether to include the values of the parameters.
            only_parameter: Whether to include only the parameters.
            networks: The networks to include; all by default.
            variable_batch_size: Whether to save the batch size as -1.

        Raises:
            NetworkError: If a message cannot store a function, or if a shape argument does not begin with the batch
                size.
        """
        proto = schema.messages().NNablaProtoBuf()
        if not only_parameter:
            for network in self.networks.values() if networks is None else networks:
                proto.network.append(network.as_proto(variable_batch_size))
            proto.executor.extend(executor.as_proto() for executor in self.executors.values())
        if include_parameter:
            for key, held in self.get_parameters().items():
                for piece in parameter_protobuf.pieces([(key, held.data.get_data("r"), held.need_grad)]):
                    proto.MergeFromString(piece)
        return proto

    def save(
        self,
        filename: Any,
        include_parameter: bool = False,
        variable_batch_size: bool = True,
        executors: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Write the graph, as `kinnor.nnp.save` does.

        Args:
            filename: Path, or a file open for writing.
            include_parameter: Whether to include the parameters in files other than `.nnp`, too.
            variable_batch_size: Whether to save the batch size as -1.
            executors: Executors to save, as in `kinnor.nnp.save`.
        """
        self.write(filename, None, include_parameter, variable_batch_size, executors=executors)

    def write(
        self,
        filename: PathOrFile,
        networks: list[ProtoNetwork] | None,
        include_parameters: bool,
        variable_batch_size: bool,
        extension: str = ".nnp",
        executors: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Writes some of the networks, or all of them if `networks` is None. The others are `save`'s arguments."""
        for held in executors or ():
            self.executors[held["name"]] = ProtoExecutor.create_from_dict(held, self.networks[held["network"]])
        is_archive = network_file.is_archive(filename, extension)
        proto = self.as_proto(include_parameters and not is_archive, False, networks, variable_batch_size)
        if is_archive:
            network_file.write_archive(filename, proto, entries(self.get_parameters().items()))
        else:
            network_file.write(filename, proto, extension)
        logger.info(f"Model file is saved as {filename}.")

    def expand_loop_control(self) -> None:
        """Unroll the repetitions of each network.

        Raises:
            NetworkError: If a repetition is malformed, or if a network would have too many nodes.
        """
        self.networks = OrderedDict((name, n.expand_loop_control()) for name, n in self.networks.items())


def entries(found: Iterable[tuple[str, Variable]]) -> list[Entry]:
    """Parameters as files hold them.

    Args:
        found: Variables by path.
    """
    return [Entry(key, variable.data.get_data("r"), variable.need_grad) for key, variable in found]

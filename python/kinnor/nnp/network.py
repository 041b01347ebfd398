"""A network description: variables, functions, and the code that builds a graph from them.

Names may come from untrusted files: a network is checked when it is read, and is built without recursion. No file
access.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import parameter as parameters
from .._core import Error, Variable
from .._graph_pool import BuildLock
from ..context import context_scope
from ..files import schema
from ..files.network_file import MOST_NODES, NetworkError
from . import batch, loops, messages
from .nodes import NetworkVariable, ProtoFunction, read_initializer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.random import RandomState

    from ..context import Context
    from .graph import ProtoGraph

__all__ = ["ProtoNetwork"]

MOST_ELEMENTS = 1 << 48
"""Upper limit of the elements of an array: more than any machine's memory."""


class ProtoNetwork:
    """A network described by names.

    A call builds a graph: `network(x)` with the inputs in the order of `inputs`, or `network()`, which creates
    variables for them. `network(batch_size=8)` sets the length of the axes saved as -1. By default this is the batch
    size of the inputs, or the one that the network was saved with. The parameters belong to `owner`.

    Args:
        owner: The graph that contains the network and its parameters.
        name: Name of the network.
        batch_size: Length of the axes saved as -1.

    Attributes:
        variables: Inputs, outputs and intermediate variables by name.
        parameters: Parameters by name.
        functions: Functions by name.
        inputs: Names of the variables that no function computes.
        outputs: Names of the variables that no function reads.
        repeat_info: Number of runs of each repetition, by id.
    """

    def __init__(self, owner: ProtoGraph, name: str | None = None, batch_size: int | None = None) -> None:
        self.owner = owner
        self.name = name or "network"
        self.batch_size = batch_size
        self.variables: OrderedDict[str, NetworkVariable] = OrderedDict()
        self.parameters: OrderedDict[str, NetworkVariable] = OrderedDict()
        self.functions: OrderedDict[str, ProtoFunction] = OrderedDict()
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.repeat_info: dict[str, int] = {}
        self._lock = BuildLock(f"network {self.name!r}")

    def __getitem__(self, item: str) -> Any:
        return vars(self)[item]

    def __repr__(self) -> str:
        return f"<ProtoNetwork {self.name!r} {self.inputs} -> {self.outputs}, {len(self.functions)} functions>"

    @property
    def current_context(self) -> Context:
        """The context for building the network, taken from `owner`."""
        return self.owner.current_context

    # --- Nodes

    def variable(self, name: str) -> NetworkVariable:
        """Get a variable or parameter by name.

        Args:
            name: The name.

        Raises:
            NetworkError: If the name is unknown.
        """
        found = self.variables.get(name) or self.parameters.get(name)
        if found is None:
            raise NetworkError(f"network {self.name!r}: expected the name of a variable, got {name!r}")
        return found

    def name_of(self, variable: Variable) -> str | None:
        """The name of the node that a built variable belongs to, or None.

        Args:
            variable: The built variable.
        """
        for name, node in self.variables.items():
            if node.variable_instance is not None and node.variable_instance == variable:
                return name
        return None

    def rename(self, old: str, new: str) -> None:
        """Rename a variable.

        Args:
            old: The old name.
            new: The new name.

        Raises:
            NetworkError: If the old name is unknown, or if the new name is in use.
        """
        if old == new:
            return
        node = self.variable(old)
        if new in self.variables or new in self.parameters:
            raise NetworkError(f"network {self.name!r}: expected each name once, got two variables {new!r}")
        node.name = new
        self.variables = OrderedDict((v.name, v) for v in self.variables.values())
        self.parameters = OrderedDict((v.name, v) for v in self.parameters.values())
        for names in (self.inputs, self.outputs):
            names[:] = [new if name == old else name for name in names]
        for function in self.functions.values():
            for names in (function.inputs, function.outputs):
                names[:] = [new if name == old else name for name in names]

    def add_variable(self, variable: NetworkVariable) -> None:
        """Add a variable or parameter.

        Args:
            variable: The variable.

        Raises:
            NetworkError: If its name is in use, or if the network has too many nodes.
        """
        if variable.name in self.variables or variable.name in self.parameters:
            raise NetworkError(f"network {self.name!r}: expected each name once, got two variables {variable.name!r}")
        (self.parameters if variable.type == "Parameter" else self.variables)[variable.name] = variable
        self._check_size()

    def add_function(self, function: ProtoFunction) -> None:
        """Add a function between existing variables.

        Args:
            function: The function.

        Raises:
            NetworkError: If its name is in use, if a variable is missing or has another parent, or if the
                network has too many nodes.
        """
        if function.name in self.functions:
            raise NetworkError(f"network {self.name!r}: expected each name once, got two functions {function.name!r}")
        for name in function.inputs:
            self.variable(name).required.append(function.name)
        for name in function.outputs:
            made = self.variable(name)
            if made.parent is not None:
                raise NetworkError(
                    f"network {self.name!r}: expected one function to make {name!r}, "
                    f"got {made.parent!r} and {function.name!r}"
                )
            made.parent = function.name
        self.functions[function.name] = function
        self._check_size()

    def _check_size(self) -> None:
        """Raise NetworkError if the network has too many nodes."""
        if len(self.variables) + len(self.parameters) + len(self.functions) > MOST_NODES:
            raise NetworkError(f"network {self.name!r}: expected at most {MOST_NODES} nodes, got more")

    def find_ports(self) -> None:
        """Update the lists of inputs and outputs."""
        self.inputs = [name for name, v in self.variables.items() if v.parent is None and v.required]
        self.outputs = [name for name, v in self.variables.items() if v.parent is not None and not v.required]

    def forward_sequence(self) -> Iterator[ProtoFunction]:
        """The functions that the outputs need, in the order of a forward run.

        Raises:
            NetworkError: If the network has a cycle.
        """
        done: set[str] = set()
        begun: set[str] = set()
        for output in self.outputs:
            stack = [self.variables[output].parent]
            while stack:
                name = stack[-1]
                if name is None or name in done:
                    stack.pop()
                    continue
                function = self.functions[name]
                parents = [self.variable(i).parent for i in function.inputs]
                waiting = [parent for parent in parents if parent is not None and parent not in done]
                if not waiting:
                    done.add(name)
                    stack.pop()
                    yield function
                elif name in begun:
                    raise NetworkError(f"network {self.name!r}: expected no cycle, got one through {name!r}")
                else:
                    begun.add(name)
                    stack += reversed(waiting)

    def execute_on_proto(self, execute: Callable[[ProtoFunction], object]) -> None:
        """Call a function for each function of the network, in the order of a forward run.

        Args:
            execute: The function to call. It is not called for functions that only stopped variables need.
        """
        for function in self.forward_sequence():
            made = [self.variable(name) for name in function.outputs]
            if function.inputs and any(self.variable(name).stop for name in function.inputs):
                for variable in made:
                    variable.stop = True
            else:
                execute(function)

    # --- Graphs

    def __call__(self, *args: Variable, batch_size: int | None = None, ctx: Any = None) -> Any:
        """Build the graph.

        Args:
            args: The inputs, in the order of `inputs`; created if not given.
            batch_size: Length of the axes saved as -1.
            ctx: The context for building; by default the context of `owner`, which defaults to the current one.

        Returns:
            The output, or a tuple of the outputs in the order of `outputs`.

        Raises:
            NetworkError: If a name, a function, or the batch size is missing.
        """
        with self._lock.held():
            return self._called(args, batch_size, ctx)

    def _built(self, args: Sequence[Variable]) -> dict[str, Variable]:
        """Build the graph without storing it in the nodes. Returns variables and parameters by name.

        Args:
            args: The inputs.
        """
        with self._lock.held():
            nodes = {**self.variables, **self.parameters}
            try:
                self._called(args)
                made = {name: node.variable_instance for name, node in nodes.items()}
            finally:
                for node in nodes.values():
                    node.variable_instance = None
        return {name: variable for name, variable in made.items() if variable is not None}

    def _called(self, args: Sequence[Variable], batch_size: int | None = None, ctx: Any = None) -> Any:
        """Build the graph in the context of the network."""
        if args and len(args) != len(self.inputs):
            raise NetworkError(f"network {self.name!r}: expected inputs {self.inputs}, got {len(args)}")
        batch_size = batch_size or self._given_batch(args) or self.batch_size
        ctx = ctx or self.owner._context
        with parameters.parameter_scope("", self.owner.parameter_scope):
            try:
                with nullcontext() if ctx is None else context_scope(ctx):
                    return self._build(args, batch_size)
            except (TypeError, ValueError, OverflowError) as error:
                if isinstance(error, Error):
                    raise
                raise NetworkError(
                    f"network {self.name!r}: expected a network that can be built, got {error}"
                ) from error

    def _given_batch(self, args: Sequence[Variable]) -> int | None:
        """The batch size of the inputs, or None."""
        for name, given in zip(self.inputs, args, strict=False):
            if self.variables[name].shape[:1] == (-1,) and given.shape:
                return given.shape[0]
        return None

    def _build(self, args: Sequence[Variable], batch_size: int | None) -> Any:
        """Build the graph. Returns its outputs."""
        for i, name in enumerate(self.inputs):
            variable = self.variables[name]
            variable.variable_instance = args[i] if args else self._input(variable, batch_size)
        for name, variable in self.parameters.items():
            known = parameters.get_parameter(name)
            need_grad = variable.need_grad if known is None else known.need_grad
            shape = self._shape(variable.shape, batch_size)
            variable.variable_instance = parameters.get_parameter_or_create(
                name, shape, variable.initializer, need_grad, need_grad and variable.need_grad
            )
        self.execute_on_proto(lambda function: self._call(function, batch_size))
        found = [self.variables[name].variable_instance for name in self.outputs if not self.variables[name].stop]
        return found[0] if len(found) == 1 else tuple(found)

    def _input(self, variable: NetworkVariable, batch_size: int | None) -> Variable:
        """The input variable of the last built graph if its shape fits, else a new one."""
        shape = self._shape(variable.shape, batch_size)
        if variable.variable_instance is not None and variable.variable_instance.shape == shape:
            return variable.variable_instance
        if variable.initializer is None:
            return Variable(shape)
        shared = self.owner.global_variables
        if variable.name not in shared:
            values = np.asarray(variable.initializer(list(shape)))
            shared[variable.name] = Variable.from_numpy_array(values, need_grad=True)
        return shared[variable.name]

    def _shape(self, shape: Sequence[int], batch_size: int | None) -> tuple[int, ...]:
        """A shape with the batch size for -1."""
        found = tuple(shape)
        if any(length < 0 for length in shape):
            if not batch_size or batch_size < 0:
                raise NetworkError(f"network {self.name!r}: expected a batch size for shape {found}, got none")
            found = tuple(batch_size if length < 0 else length for length in shape)
        if prod(found) >= MOST_ELEMENTS:
            raise NetworkError(f"network {self.name!r}: expected a shape that memory can hold, got {found}")
        return found

    def _call(self, function: ProtoFunction, batch_size: int | None) -> None:
        """Build a function and store its outputs in the nodes."""
        inputs = []
        for name in function.inputs:
            found = self.variable(name).variable_instance
            if found is None:
                raise NetworkError(f"network {self.name!r}: expected input {name!r} of {function.name!r}, got none")
            inputs.append(found)
        args = messages.filled(function.args, batch_size)
        made = messages.call(function.type, inputs, args, len(function.outputs))
        if len(made) < len(function.outputs):
            raise NetworkError(
                f"network {self.name!r}: expected {len(function.outputs)} outputs of {function.name!r}, got {len(made)}"
            )
        for name, variable in zip(function.outputs, made, strict=False):
            self.variable(name).variable_instance = variable

    # --- Messages

    def as_proto(self, variable_batch_size: bool = True) -> Any:
        """The network as a `Network` message.

        Args:
            variable_batch_size: Whether to save the batch size as -1.

        Raises:
            NetworkError: If NNabla's files cannot store a function, or if a shape argument does not begin with the
                batch size.
        """
        network = batch.equalized(batch.freed(self) if variable_batch_size else self)
        message = schema.messages().Network(name=self.name, batch_size=network.batch_size or 0)
        for repeat_id, times in self.repeat_info.items():
            message.repeat_info.add(id=repeat_id, times=times)
        for variable in (*network.variables.values(), *network.parameters.values()):
            message.variable.append(variable.proto)
        for function in network.functions.values():
            message.function.append(function.proto)
        return message

    @staticmethod
    def from_proto(owner: ProtoGraph, proto: Any, rng: RandomState, batch_size: int | None = None) -> ProtoNetwork:
        """Create a network description from a message.

        Args:
            owner: The graph that contains the network.
            proto: A `Network`.
            rng: Random generator for new parameters.
            batch_size: Length of the axes saved as -1; the message's batch size by default.

        Raises:
            NetworkError: If names do not match, or if there are too many nodes.
        """
        network = ProtoNetwork(owner, proto.name, batch_size or proto.batch_size or None)
        network.repeat_info = {repeat.id: repeat.times for repeat in proto.repeat_info}
        for held in proto.variable:
            is_parameter = held.type == "Parameter"
            variable = NetworkVariable(held.name, held.shape.dim, held.type, need_grad=is_parameter)
            variable.repeat_id = list(held.repeat_id)
            if held.HasField("initializer"):
                variable.initializer = read_initializer(held.initializer, rng)
            network.add_variable(variable)
        for held in proto.function:
            network.add_function(ProtoFunction.from_proto(held))
        network.find_ports()
        return network

    def clone(self) -> ProtoNetwork:
        """A copy that can be changed. It shares the parameters."""
        made = ProtoNetwork(self.owner, self.name, self.batch_size)
        made.variables = OrderedDict((name, v.clone()) for name, v in self.variables.items())
        made.parameters = OrderedDict((name, v.clone()) for name, v in self.parameters.items())
        made.functions = OrderedDict((name, f.clone()) for name, f in self.functions.items())
        made.inputs, made.outputs, made.repeat_info = list(self.inputs), list(self.outputs), dict(self.repeat_info)
        return made

    def expand_loop_control(self) -> ProtoNetwork:
        """A copy of the network with repetitions unrolled.

        Raises:
            NetworkError: If a repetition is malformed, or if the network would have too many nodes.
        """
        return loops.expanded(self)

    def promote(self, callback: Any, batch_size: int | None = None) -> ProtoNetwork:
        """A copy of the network rewritten by a pass.

        Args:
            callback: An `NnpNetworkPass` of `kinnor.utils.nnp_graph`, or None.
            batch_size: Length of the axes saved as -1, for inferring shapes; the network's batch size by default.
        """
        return self if callback is None else callback.applied_to(self, batch_size)

    def save(
        self,
        filename: Any,
        include_parameter: bool = False,
        variable_batch_size: bool = True,
        executors: Sequence[dict[str, Any]] | None = None,
    ) -> None:
        """Write the network, as `kinnor.nnp.save` does.

        Args:
            filename: Path, or a file open for writing.
            include_parameter: Whether to include the parameters in files other than `.nnp`, too.
            variable_batch_size: Whether to save the batch size as -1.
            executors: Executors to save, as in `kinnor.nnp.save`.
        """
        self.owner.write(filename, [self], include_parameter, variable_batch_size, executors=executors)

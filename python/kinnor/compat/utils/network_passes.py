"""Passes over a network: a user's callbacks change the messages of its nodes.

Defines the objects that callbacks receive, and the order of calls. The result is a new description from the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import Error, Variable
from ...modes import auto_forward
from ...nnp import messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...nnp.network import ProtoNetwork

__all__ = ["PassFunction", "PassVariable", "applied"]


class PassVariable:
    """A variable as the callbacks of a pass see it.

    Attributes:
        proto: Its message, which callbacks may change. The shape comes from the file. Once the function that computes
            the variable was generated, the shape is inferred from its inputs.
        parent: The function that computes it, or None.
        need_grad: Whether it needs a gradient.
        stop: Whether building stops at this variable.
        variable: The user's variable that replaces it, or None.
    """

    def __init__(self, proto: Any, need_grad: bool, variable: Variable | None) -> None:
        self.proto = proto
        self.parent: PassFunction | None = None
        self.need_grad = need_grad
        self.stop = False
        self.variable = variable
        self._referrers: dict[str, PassFunction] = {}

    @property
    def name(self) -> str:
        """The name in the message."""
        return str(self.proto.name)

    @property
    def referrers(self) -> dict[str, PassFunction]:
        """The functions that read it, by name."""
        return dict(self._referrers)

    @property
    def num_referrers(self) -> int:
        """The number of functions that read it."""
        return len(self._referrers)

    def add_referrer(self, f: PassFunction) -> None:
        """Record that a function reads this variable.

        Args:
            f: The function.
        """
        self._referrers[f.name] = f

    def delete_referrer(self, f: PassFunction) -> None:
        """Record that a function no longer reads this variable.

        Args:
            f: The function.
        """
        self._referrers.pop(f.name, None)

    def rewire_on(self, var: PassVariable) -> None:
        """Replace another variable: its parent computes this variable, and its readers read this variable.

        Args:
            var: The other variable.
        """
        maker = var.parent
        if self.parent is not None:
            self.parent.disable()
        self.parent, var.parent = maker, None
        self.variable = var.variable
        self.proto.shape.CopyFrom(var.proto.shape)
        if maker is not None:
            maker.outputs = [self if output is var else output for output in maker.outputs]
        for function in var.referrers.values():
            function.inputs = [self if taken is var else taken for taken in function.inputs]
            var.delete_referrer(function)
            self.add_referrer(function)


class PassFunction:
    """A function as the callbacks of a pass see it.

    Attributes:
        proto: Its message, which callbacks may change.
        inputs: The variables that it reads.
        outputs: The variables that it computes.
        disabled: Whether the function is left out.
    """

    def __init__(self, proto: Any, inputs: Sequence[PassVariable], outputs: Sequence[PassVariable]) -> None:
        self.proto = proto
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.disabled = False
        for variable in self.inputs:
            variable.add_referrer(self)
        for variable in self.outputs:
            variable.parent = self

    @property
    def name(self) -> str:
        """The name in the message."""
        return str(self.proto.name)

    def disable(self) -> None:
        """Leave the function out."""
        self.disabled = True
        for variable in self.inputs:
            variable.delete_referrer(self)
        for variable in self.outputs:
            variable.parent = None
        self.inputs, self.outputs = [], []


def applied(network: ProtoNetwork, callback: Any, batch_size: int | None = None) -> ProtoNetwork:
    """Run a pass over a network and return the new network.

    First the pass generates the variables. Then it drops and rewires functions of the whole network and finds the
    inputs and outputs. At last it generates the remaining functions in the order of a forward run, each with the
    current shapes of its inputs.

    Args:
        network: The network, which is not changed.
        callback: An `NnpNetworkPass`.
        batch_size: Length of the axes saved as -1; the network's batch size by default.

    Returns:
        A network with the same owner.

    Raises:
        NetworkError: If the remaining functions do not match.
    """
    variables: dict[str, PassVariable] = {}
    for node in (*network.variables.values(), *network.parameters.values()):
        generated = callback.generate_variable(PassVariable(node.proto, node.need_grad, node.variable_instance))
        if generated.variable is not node.variable_instance:
            generated.proto.shape.dim[:] = generated.variable.shape
        variables[node.name] = generated
    functions: list[PassFunction] = []
    for function in network.forward_sequence():
        taken, given = [variables[i] for i in function.inputs], [variables[o] for o in function.outputs]
        functions.append(PassFunction(function.proto, taken, given))
    for held in functions:
        if not held.disabled:
            callback.pass_function(held, variables, network.owner.parameter_scope)
    left = {f.name: f for f in functions if not f.disabled}
    for held in left.values():
        callback.stop_at(held.inputs)
    until = _described(network, list(left.values()), list(variables.values()))
    kept: list[PassFunction] = []
    for name in [function.name for function in until.forward_sequence()]:
        made = callback.generate_function(left[name])
        if not made.disabled:
            kept.append(made)
            _shape_outputs(made, batch_size or network.batch_size or 1)
    return _described(network, kept, list(variables.values()))


def _shape_outputs(f: PassFunction, batch_size: int) -> None:
    """Infer the shapes of the outputs from the inputs. Outputs keep the file's shapes if inference fails."""
    inputs = [tuple(batch_size if n < 0 else n for n in v.proto.shape.dim) for v in f.inputs]
    try:
        arguments = messages.filled(messages.read(f.proto), batch_size)
        with auto_forward(False):
            made = messages.call(f.proto.type, [Variable(shape) for shape in inputs], arguments, len(f.outputs))
    except (Error, TypeError, ValueError, OverflowError):
        return  # Building the network reports the error.
    for output, variable in zip(f.outputs, made, strict=False):
        is_batch = output.proto.shape.dim[:1] == [-1] and variable.shape[:1] == (batch_size,)
        output.proto.shape.dim[:] = (-1, *variable.shape[1:]) if is_batch else variable.shape


def _described(network: ProtoNetwork, functions: list[PassFunction], variables: list[PassVariable]) -> ProtoNetwork:
    """A description of the remaining network."""
    proto = network.as_proto(variable_batch_size=False)
    proto.ClearField("variable")
    proto.ClearField("function")
    used = {id(v) for f in functions for v in (*f.inputs, *f.outputs)}
    left = {v.name: v for v in variables if id(v) in used}
    for variable in left.values():
        proto.variable.append(variable.proto)
    for function in functions:
        function.proto.ClearField("input")
        function.proto.input.extend(v.name for v in function.inputs)
        function.proto.ClearField("output")
        function.proto.output.extend(v.name for v in function.outputs)
        proto.function.append(function.proto)
    made = type(network).from_proto(network.owner, proto, np.random.RandomState(1223))
    for name, variable in left.items():
        node = made.variable(name)
        node.need_grad, node.stop, node.variable_instance = variable.need_grad, variable.stop, variable.variable
    for before in (*network.variables.values(), *network.parameters.values()):
        if before.name in left and before.initializer is not None:
            made.variable(before.name).initializer = before.initializer
    _leave_out(made)
    return made


def _leave_out(network: ProtoNetwork) -> None:
    """Remove the functions after stopped variables."""
    stopped: set[str] = set()
    for function in list(network.forward_sequence()):
        if any(name in stopped or network.variable(name).stop for name in function.inputs):
            stopped.update(function.outputs)
            for name in set(function.inputs) - stopped:
                required = network.variable(name).required
                required[:] = [other for other in required if other != function.name]
            for name in function.outputs:
                network.variables.pop(name, None)
            del network.functions[function.name]
    for variable in network.variables.values():
        variable.stop = False
    network.parameters = type(network.parameters)((k, v) for k, v in network.parameters.items() if v.required)
    network.variables = type(network.variables)(
        (k, v) for k, v in network.variables.items() if v.required or v.parent is not None
    )
    network.find_ports()

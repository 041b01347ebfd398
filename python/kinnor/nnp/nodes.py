"""Variables and functions of a network description.

They hold names, shapes, arguments and messages. The order of functions is the network's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..files import schema
from . import initial, messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from .._core import Variable

__all__ = ["NetworkVariable", "ProtoFunction"]


class NetworkVariable:
    """A variable of a network description.

    Args:
        name: Name, unique among the variables of the network.
        shape: Lengths of its axes; -1 is the batch size.
        var_type: `Buffer`, or `Parameter` for a parameter.
        need_grad: Whether it needs a gradient.

    Attributes:
        initializer: Initializer of a parameter, or None.
        parent: The name of the function that computes it, or None.
        required: Names of the functions that read it.
        repeat_id: Ids of the repetitions that contain it.
        variable_instance: The variable of the last built graph, or None.
        stop: Whether building stops at this variable.
    """

    def __init__(self, name: str, shape: Sequence[int], var_type: str = "Buffer", need_grad: bool = False) -> None:
        self.name = name
        self.shape = tuple(shape)
        self.type = var_type
        self.need_grad = need_grad
        self.initializer: Callable[..., Any] | None = None
        self.parent: str | None = None
        self.required: list[str] = []
        self.repeat_id: list[str] = []
        self.variable_instance: Variable | None = None
        self.stop = False

    def __repr__(self) -> str:
        return f"<{self.type} {self.name!r} {self.shape}>"

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to copy or pickle, without the built graph."""
        return {**self.__dict__, "variable_instance": None}

    @property
    def proto(self) -> Any:
        """The node as a `Variable` message."""
        message = schema.messages().Variable(name=self.name, type=self.type, repeat_id=self.repeat_id)
        message.shape.SetInParent()
        message.shape.dim.extend(self.shape)
        initial.fill(message.initializer, self.initializer) if self.initializer is not None else None
        return message

    def clone(self) -> NetworkVariable:
        """A copy that can be changed."""
        made = NetworkVariable.__new__(NetworkVariable)
        vars(made).update(vars(self), required=self.required.copy(), repeat_id=self.repeat_id.copy())
        return made


class ProtoFunction:
    """A function of a network description.

    Args:
        name: Name, unique among the functions of the network.
        f_type: Type, for example `ReLU`.
        args: Arguments as in `Function.info.args`.
        inputs: Names of the variables that it reads.
        outputs: Names of the variables that it computes.

    Attributes:
        repeat_id: Ids of the repetitions that contain it.
        repeat_param: `RepeatParameter` of the message, if a repetition starts or ends here.
        recurrent_param: `RecurrentParameter` of the message, if a sequence starts or ends here.
    """

    def __init__(
        self,
        name: str,
        f_type: str,
        args: Mapping[str, Any],
        inputs: Sequence[str] = (),
        outputs: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.type = f_type
        self.args = dict(args)
        self.inputs = list(inputs)
        self.outputs = list(outputs)
        self.repeat_id: list[str] = []
        self.repeat_param: Any = None
        self.recurrent_param: Any = None

    def __repr__(self) -> str:
        return f"<{self.type} {self.name!r} {self.inputs} -> {self.outputs}>"

    def __getitem__(self, item: str) -> Any:
        """An attribute of this node by name, such as `node["inputs"]`. Does not look into `args`."""
        return vars(self)[item]

    @property
    def proto(self) -> Any:
        """The node as a `Function` message.

        Raises:
            NetworkError: If NNabla's files cannot store an argument.
        """
        message = schema.messages().Function(
            name=self.name, repeat_id=self.repeat_id, input=self.inputs, output=self.outputs
        )
        if self.repeat_param is not None:
            message.type = self.type
            message.repeat_param.CopyFrom(self.repeat_param)
        elif self.recurrent_param is not None:
            message.type = self.type
            message.recurrent_param.CopyFrom(self.recurrent_param)
        else:
            messages.fill(message, self.type, self.args)
        return message

    @staticmethod
    def from_proto(message: Any) -> ProtoFunction:
        """Create a node from a message.

        Args:
            message: A `Function`.
        """
        made = ProtoFunction(message.name, message.type, {}, message.input, message.output)
        made.repeat_id = list(message.repeat_id)
        if message.HasField("repeat_param"):
            made.repeat_param = message.repeat_param
        elif message.HasField("recurrent_param"):
            made.recurrent_param = message.recurrent_param
        else:
            made.args = messages.read(message)
        return made

    def clone(self) -> ProtoFunction:
        """A copy that can be changed."""
        made = ProtoFunction.__new__(ProtoFunction)
        vars(made).update(vars(self), args=dict(self.args), repeat_id=self.repeat_id.copy())
        made.inputs, made.outputs = self.inputs.copy(), self.outputs.copy()
        return made

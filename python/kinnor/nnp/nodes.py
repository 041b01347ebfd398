"""Variables and functions of a network that is described, not built.

Knows names, shapes and arguments, and the messages they are in; knows no order.
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
    """A variable of a network that is described.

    Args:
        name: Its name, which is the only one of its kind in the network.
        shape: Lengths of its axes; -1 stands for the batch.
        var_type: `Buffer`, or `Parameter` for values that are kept.
        need_grad: Whether it needs a gradient.

    Attributes:
        initializer: Where its values start, or None.
        parent: The name of the function it is an output of, or None.
        required: Names of the functions that take it.
        repeat_id: What it is repeated with.
        variable_instance: The variable that was made of it when the network was called last, or None.
        stop: Whether a network is built up to here and no further.
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

    @property
    def proto(self) -> Any:
        """A `Variable` message that says the same."""
        message = schema.messages().Variable(name=self.name, type=self.type, repeat_id=self.repeat_id)
        message.shape.SetInParent()
        message.shape.dim.extend(self.shape)
        initial.fill(message.initializer, self.initializer) if self.initializer is not None else None
        return message

    def clone(self) -> NetworkVariable:
        """A copy that may be changed."""
        made = NetworkVariable.__new__(NetworkVariable)
        vars(made).update(vars(self), required=self.required.copy(), repeat_id=self.repeat_id.copy())
        return made


class ProtoFunction:
    """A function of a network that is described.

    Args:
        name: Its name, which is the only one of its kind in the network.
        f_type: Its type, for example `ReLU`.
        args: Its arguments, as `Function.info.args` has them.
        inputs: Names of the variables it takes.
        outputs: Names of the variables it makes.

    Attributes:
        repeat_id: What it is repeated with.
        repeat_param: `RepeatParameter` of a message, where a repetition starts or ends.
        recurrent_param: `RecurrentParameter` of a message, where a sequence starts or ends.
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
        return vars(self)[item]

    @property
    def proto(self) -> Any:
        """A `Function` message that says the same.

        Raises:
            NetworkError: If NNabla's files have no place for an argument.
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
        """The function that a message describes.

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
        """A copy that may be changed."""
        made = ProtoFunction.__new__(ProtoFunction)
        vars(made).update(vars(self), args=dict(self.args), repeat_id=self.repeat_id.copy())
        made.inputs, made.outputs = self.inputs.copy(), self.outputs.copy()
        return made

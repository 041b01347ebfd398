"""Variables and functions of a network description.

They hold names, shapes, arguments and messages. The order of functions is the network's.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from numpy import ndim

from .. import initializer as I
from ..files import schema
from ..files.network_file import NetworkError
from . import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.random import RandomState
    from numpy.typing import NDArray

    from .._core import Variable

__all__ = ["NetworkVariable", "ProtoFunction", "read_initializer"]

_NORMAL = {
    "HeForward": I.calc_normal_std_he_forward,
    "He": I.calc_normal_std_he_forward,
    "HeBackward": I.calc_normal_std_he_backward,
    "Glorot": I.calc_normal_std_glorot,
}
"""The function that computes the standard deviation of each type of normal initializer."""


def _affine(shape: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """The numbers of input and output maps of the weight of an affine layer, and its kernel."""
    return shape[0], prod(shape[1:]), (1, 1)


def _convolution(shape: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """The same for a convolution."""
    return shape[-3], shape[0], tuple(shape[-2:])


def _channel_last(shape: Sequence[int]) -> tuple[int, int, tuple[int, ...]]:
    """The same for a convolution whose channels are the last axis."""
    return shape[-1], shape[0], tuple(shape[1:3])


_LAYERS = {"Affine": _affine, "Convolution": _convolution, "CLConv": _channel_last}
"""Functions from a weight's shape to its numbers of input maps and output maps, and its kernel."""

LARGEST = 1e30
"""Largest multiplier: keeps random values far from the largest float32."""


def read_initializer(message: Any, rng: RandomState) -> Callable[[Sequence[int]], NDArray[Any]] | None:
    """Create an initializer from a message.

    Args:
        message: An `Initializer`.
        rng: Random generator.

    Returns:
        A function from a shape to values, or None if NNabla has no distribution of this name.

    Raises:
        NetworkError: If random values could overflow.
    """
    kind, multiplier = message.type, message.multiplier
    if kind == "Constant":
        return I.ConstantInitializer(multiplier)
    if not abs(multiplier) <= LARGEST:
        raise NetworkError(f"initializer {kind}: expected a multiplier of at most {LARGEST:g}, got {multiplier:g}")
    if kind == "Range":
        return partial(_times, multiplier, I.RangeInitializer(0, 1))
    if kind == "Uniform":
        return I.UniformInitializer((-abs(multiplier), abs(multiplier)), rng=rng)
    if kind == "Normal":
        return I.NormalInitializer(multiplier, rng=rng)
    for layer, sizes in _LAYERS.items():
        if kind == f"Uniform{layer}Glorot":
            return partial(_times, multiplier, partial(_uniform, sizes, rng))
        for name, deviation in _NORMAL.items():
            if kind == f"Normal{layer}{name}":
                return partial(_times, multiplier, partial(_normal, sizes, deviation, rng))
    return None


def _times(multiplier: float, initializer: Callable[[Sequence[int]], NDArray[Any]], shape: Sequence[int]) -> Any:
    """The values that an initializer gives for a shape, times `multiplier`."""
    return initializer(shape) * multiplier


def _normal(sizes: Any, deviation: Any, rng: RandomState, shape: Sequence[int]) -> Any:
    """Normal values for a weight. `deviation` computes their deviation from the weight's numbers of maps."""
    return I.NormalInitializer(deviation(*_sizes(sizes, shape)), rng=rng)(list(shape))


def _uniform(sizes: Any, rng: RandomState, shape: Sequence[int]) -> Any:
    """Uniform values for a weight, within the limit of Glorot and Bengio."""
    return I.UniformInitializer(I.calc_uniform_lim_glorot(*_sizes(sizes, shape)), rng=rng)(list(shape))


def _sizes(sizes: Any, shape: Sequence[int]) -> Any:
    """Calls `sizes`, which finds the numbers of input and output maps and the kernel of a weight in its shape."""
    try:
        return sizes(shape)
    except IndexError as error:
        raise ValueError(f"expected weights with as many axes as their layer has, got shape {tuple(shape)}") from error


def _fill_initializer(message: Any, initializer: Any) -> None:
    """Write an initializer into a message, if a name and a number describe it (three kinds).

    Args:
        message: An `Initializer`.
        initializer: The initializer in the parameter's `info`.
    """
    if isinstance(initializer, I.ConstantInitializer) and ndim(initializer.value) == 0:
        message.type, message.multiplier = "Constant", float(initializer.value)  # type: ignore[arg-type]
    elif isinstance(initializer, I.UniformInitializer):
        message.type, message.multiplier = "Uniform", abs(float(initializer.lim[0]))
    elif isinstance(initializer, I.NormalInitializer):
        message.type, message.multiplier = "Normal", initializer.sigma


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
        _fill_initializer(message.initializer, self.initializer) if self.initializer is not None else None
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

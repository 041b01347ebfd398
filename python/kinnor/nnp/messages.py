"""Functions as messages: the type, and the arguments in NNabla's message for the type.

All names follow from the type. A function of type `MaxPooling` is created by `F.max_pooling`. Its arguments are in the
field of type `MaxPoolingParameter`, under their names in `Function.info.args`. The declaration of `F.max_pooling` maps
these names to Python's. No knowledge of networks.
"""

from __future__ import annotations

import re
from ast import literal_eval
from functools import cache
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core
from .._python_functions.composed import of_last_axes
from ..files import schema
from ..files.network_file import NetworkError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["call", "fill", "filled", "function_name", "inputs_of_fused_convolution", "read"]

LEAVES_OUT = {"beta": "no_bias", "gamma": "no_scale", "mean": "no_mean", "variance": "no_variance"}
"""Optional inputs, and the arguments that say whether they are present."""

AT_LEAST_ONE = {"divisor", "group", "multiplier", "num_groups", "deformable_group"}
"""Counts that old files lack, because the argument is newer. A missing field reads as 0."""


BY_TYPE = {"BitShift"}
"""Function types with an argument that files do not store: the element type of the input determines it."""


class Declared(NamedTuple):
    """The part of a declaration that is needed to call a function."""

    name: str
    inputs: list[tuple[str, str]]
    """Pairs of an input's name and its kind, such as `optional`."""
    keywords: dict[str, str]
    """Argument names in Python by their names in files."""
    may_be_none: set[str]
    """Names in files of the arguments that are None by default."""
    defaults: dict[str, str | None]
    """Default values as source text, by the name in files. None for a required argument."""


@cache
def declared() -> dict[str, Declared]:
    """Functions that are a single operation, by type."""
    return {
        kind: Declared(
            name,
            inputs,
            {info: keyword for keyword, info, _, _ in arguments},
            {info for _, info, _, default in arguments if default == "None"},
            {info: default for _, info, _, default in arguments},
        )
        for name, kind, inputs, arguments, _ in _core.declarations()
    }


@cache
def holders() -> dict[str, str]:
    """The field of `Function` with the arguments of each type."""
    fields = schema.messages().Function.DESCRIPTOR.fields
    of_arguments = [field for field in fields if field.name.endswith("_param")]
    return {field.message_type.name.removesuffix("Parameter"): field.name for field in of_arguments}


def function_name(kind: str) -> str:
    """The Python name of a function type: as declared here, by the field of NNabla's message, or in snake case."""
    if kind in declared():
        return declared()[kind].name
    if kind in holders():
        return holders()[kind].removesuffix("_param")
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()


def fill(message: Any, kind: str, arguments: Mapping[str, Any]) -> None:
    """Write type and arguments of a function into a message.

    Args:
        message: A `Function`.
        kind: The type.
        arguments: The arguments as in `Function.info.args`. Arguments that NNabla does not have are left out if they
            are None or False.

    Raises:
        NetworkError: If NNabla's files cannot store an argument.
    """
    from .. import functions

    message.type = kind
    holder = holders().get(kind)
    if holder is None:
        if arguments or (kind not in declared() and function_name(kind) not in functions.__all__):
            raise NetworkError(f"save: expected functions that NNabla's files can hold, got {kind}")
        return
    held = getattr(message, holder)
    held.SetInParent()
    places = {field.name for field in held.DESCRIPTOR.fields}
    for name, value in arguments.items():
        if name not in places and not _is_default(kind, name, value):
            raise NetworkError(f"save: expected arguments that NNabla has, got {name}={value!r} of {kind}")
    for field in held.DESCRIPTOR.fields:
        value = arguments.get(field.name)
        if value is not None:
            _set(kind, held, field.name, value)


def _is_default(kind: str, name: str, value: Any) -> bool:
    """True if an argument can be left out: it is None or False, or equals the default of the declared function."""
    if value is None or value is False:
        return True
    default = declared()[kind].defaults.get(name) if kind in declared() else None
    try:
        known = literal_eval(default or "None")
    except (SyntaxError, ValueError):
        return False
    return bool(known == value or (isinstance(known, tuple) and list(known) == value))


def _set(kind: str, held: Any, name: str, value: Any) -> None:
    """Set a field of a message to an argument's value."""
    present = getattr(held, name)
    if hasattr(present, "dim"):
        present.SetInParent()
        present = present.dim
    try:
        if hasattr(present, "extend"):
            present.extend(value if isinstance(value, (list, tuple)) else [value])
        else:
            setattr(held, name, value[0] if isinstance(value, (list, tuple)) and len(value) == 1 else value)
    except (TypeError, ValueError) as error:
        raise NetworkError(f"save: expected a value for `{name}` of {kind}, got {value!r}: {error}") from error


def read(message: Any) -> dict[str, Any]:
    """Read the arguments of a message.

    Args:
        message: A `Function`.

    Returns:
        Numbers, texts and lists of them, by their names in files.
    """
    holder = holders().get(message.type)
    if holder is None:
        return {}
    held = getattr(message, holder)
    found = {}
    for field in held.DESCRIPTOR.fields:
        value = getattr(held, field.name)
        value = getattr(value, "dim", value)
        found[field.name] = list(value) if hasattr(value, "extend") else value
    return found


def filled(arguments: Mapping[str, Any], batch_size: int | None) -> Mapping[str, Any]:
    """Replace -1 at the start of shape arguments by the batch size.

    Args:
        arguments: The arguments, as from `read`.
        batch_size: The batch size, or None if unknown.
    """
    shape = arguments.get("shape")
    if batch_size and shape and shape[0] == -1:
        return {**arguments, "shape": [batch_size, *shape[1:]]}
    return arguments


def call(kind: str, inputs: Sequence[Any], arguments: Mapping[str, Any], n_outputs: int) -> tuple[Any, ...]:
    """Call a function by its type.

    Args:
        kind: The type.
        inputs: The input variables.
        arguments: The arguments, as from `read`.
        n_outputs: Number of outputs, for functions with a variable number.

    Returns:
        The outputs.

    Raises:
        NetworkError: If there is no such function, or if it takes another number of inputs.
    """
    known = declared().get(kind)
    if known is None or kind in BY_TYPE:
        made = _composed(kind, inputs, arguments)
    else:
        given = _keywords(known, arguments)
        if "output_stat" in known.keywords and n_outputs > 1:
            given["output_stat"] = True
        if kind == "Slice" and inputs:
            given = {name: of_last_axes(inputs[0].ndim, value) for name, value in given.items()}
        function = getattr(_core.functions, known.name)
        if known.inputs and known.inputs[-1][1] == "list":
            made = function(*inputs, **given)
        else:
            made = function(**_named(kind, known, inputs, arguments), **given)
    return tuple(made) if isinstance(made, (list, tuple)) else (made,)


def _keywords(known: Declared, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by Python's names."""
    given = {}
    for name, value in arguments.items():
        keyword = known.keywords.get(name)
        left_out = (value == [] and name in known.may_be_none) or (value == 0 and name in AT_LEAST_ONE)
        if keyword is not None and not left_out:
            given[keyword] = value
    return given


def _composed(kind: str, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> Any:
    """Call a function that consists of several operations."""
    from .. import functions

    name = function_name(kind)
    if name not in functions.__all__:
        raise NetworkError(f"load: expected a known function, got the type {kind!r}")
    function = getattr(functions, name)
    takes = signature(function).parameters
    given = {
        key: value
        for key, value in arguments.items()
        if key in takes
        and not (value == [] and takes[key].default is None)
        and not (value == 0 and key in AT_LEAST_ONE)
    }
    return function(*inputs, **given)


def inputs_of_fused_convolution(ndims: Sequence[int]) -> list[str]:
    """The names of the inputs of a fused convolution: a bias has one axis, statistics come as four inputs or none.

    Args:
        ndims: Number of axes of each input.
    """
    names = ["x", "weight"]
    if ndims[2:3] and ndims[2] == 1:
        names.append("bias")
    if len(ndims) >= len(names) + 4:
        names += ["beta", "gamma", "mean", "variance"]
    return [*names, "z"][: max(len(ndims), 2)]


def _named(kind: str, known: Declared, inputs: Sequence[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs by their names in the declaration."""
    left = list(inputs)
    named = {}
    taken = known.inputs
    if kind == "FusedConvolution":
        names = inputs_of_fused_convolution([x.ndim for x in inputs])
        taken = [one for one in taken if one[0] in names]
    n_missing = len(taken) - len(inputs)
    for name, word in taken:
        says_so = bool(arguments.get(LEAVES_OUT.get(name, ""))) or (name, arguments.get("num_layers")) == ("weight", 1)
        # A mask of positions has more axes than the bias that follows it.
        is_bias = name == "mask" and bool(left) and left[0].ndim == 1
        is_out = n_missing > 0 and word == "optional" and (says_so or is_bias)
        n_missing -= is_out
        if left and not is_out:
            named[name] = left.pop(0)
        elif word != "optional":
            left = [None]
            break
    if left:
        raise NetworkError(f"load: expected inputs {[name for name, _ in known.inputs]} of {kind}, got {len(inputs)}")
    return named

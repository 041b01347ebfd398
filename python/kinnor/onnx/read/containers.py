"""Sequences of tensors, and optional values.

The length of a sequence, and the presence of a value, are fixed while a graph is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..._core import ArgumentError, CallError, ShapeError, UnsupportedError, Variable
from .values import OnnxError, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = [
    "NEW_STRINGS",
    "Absent",
    "InputType",
    "Items",
    "Maps",
    "Words",
    "counts",
    "entered",
    "input_type",
    "leaves",
    "parts",
    "words_of",
]

NEW_STRINGS: ContextVar[dict[str, int]] = ContextVar("NEW_STRINGS")
"""Strings among the inputs of the running call that the model does not contain, with their order."""


class Items(Value):
    """A sequence of tensors.

    Args:
        items: The tensors.
        dtype: The element type of an empty sequence.
    """

    def __init__(self, items: Iterable[Value], dtype: Any = np.float32) -> None:
        self.items = list(items)
        sources = frozenset[str]().union(*(item.sources for item in self.items))
        super().__init__(np.zeros(0, self.items[0].dtype if self.items else dtype), sources=sources)

    @property
    def known(self) -> bool:
        """True if all tensors are constants."""
        return all(item.known for item in self.items)

    @property
    def variable(self) -> Variable:
        """Raises OnnxError, as a sequence is no tensor."""
        raise OnnxError(f"expected a tensor, got a sequence of {len(self.items)}")

    def static(self) -> NDArray[Any]:
        """Raises OnnxError, as a sequence is no tensor."""
        raise OnnxError(f"expected a tensor, got a sequence of {len(self.items)}")


class Absent(Value):
    """An optional value that is absent."""

    def __init__(self) -> None:
        super().__init__(np.zeros(0, np.float32))

    @property
    def variable(self) -> Variable:
        """Raises OnnxError, as there is no value."""
        raise OnnxError("expected a value, got an optional one that is absent")

    def static(self) -> NDArray[Any]:
        """Raises OnnxError, as there is no value."""
        raise OnnxError("expected a value, got an optional one that is absent")


class Words(Value):
    """A tensor of strings: the places of its elements in a vocabulary.

    Args:
        places: The places. Strings that are not in the vocabulary have the places after the last, in the order of
            `NEW_STRINGS`.
        vocabulary: The strings.
    """

    def __init__(self, places: Value, vocabulary: Sequence[str]) -> None:
        super().__init__(np.zeros(0, object), sources=places.sources)
        self.places = places
        self.vocabulary = list(vocabulary)

    @property
    def known(self) -> bool:
        """True if the strings are constants."""
        return self.places.known

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the axes."""
        return self.places.shape

    @property
    def variable(self) -> Variable:
        """Raises OnnxError, as strings are no numbers."""
        raise OnnxError("expected numbers, got strings")

    def static(self) -> NDArray[Any]:
        """Raises OnnxError, as strings are no numbers."""
        raise OnnxError("expected numbers, got strings")

    def strings(self, places: NDArray[Any]) -> NDArray[Any]:
        """Returns the strings at places of the vocabulary, as an array of objects.

        Args:
            places: The places.

        Raises:
            OnnxError: If a string is not in the vocabulary.
        """
        at = places.astype(np.int64)
        texts = [*self.vocabulary, *NEW_STRINGS.get({})]
        if at.size and int(at.max()) >= len(texts):
            raise OnnxError("expected strings of the model or of this call as outputs, got those of another call")
        return np.asarray([*texts, ""], object)[:-1][at]


def words_of(array: NDArray[Any]) -> Words:
    """Returns an array of strings as a constant.

    Args:
        array: The strings.
    """
    texts = [text.decode(errors="replace") if isinstance(text, bytes) else str(text) for text in array.ravel().tolist()]
    vocabulary = sorted(set(texts))
    places = {text: at for at, text in enumerate(vocabulary)}
    found = np.array([places[text] for text in texts], np.int64).reshape(array.shape)
    return Words(Value(found), vocabulary)


class Maps(Value):
    """A table of scores by name, one for each row. As an output it is a list of dictionaries with sorted names.

    Args:
        scores: The scores, shape (rows, names).
        names: The names: integers or strings.
    """

    def __init__(self, scores: Value, names: Sequence[int | str]) -> None:
        super().__init__(np.zeros(0, np.float32), sources=scores.sources)
        self.scores = scores
        self.names = list(names)

    @property
    def known(self) -> bool:
        """True if the scores are constants."""
        return self.scores.known

    @property
    def variable(self) -> Variable:
        """Raises OnnxError, as a table of scores is no tensor."""
        raise OnnxError("expected a tensor, got tables of scores")

    def static(self) -> NDArray[Any]:
        """Raises OnnxError, as a table of scores is no tensor."""
        raise OnnxError("expected a tensor, got tables of scores")


def leaves(value: Value) -> list[Value]:
    """The tensors in a value, with nested sequences flattened.

    Args:
        value: A tensor, a sequence or an absent value.
    """
    if isinstance(value, Items):
        return [leaf for item in value.items for leaf in leaves(item)]
    if isinstance(value, (Words, Maps)):
        return [value.places if isinstance(value, Words) else value.scores]
    return [] if isinstance(value, Absent) else [value]


_STRING = 8
"""The number of strings among element types."""


class InputType(NamedTuple):
    """The declared type of a model's input.

    Attributes:
        dtype: The type of its elements.
        shape: Its shape, with None for lengths that are open; None if it says nothing.
        is_sequence: Whether it is a sequence of such tensors.
        is_optional: Whether it may be absent.
        vocabulary: The places of strings, for an input of strings.
        keys: The keys of a dictionary, whose values are a row.
    """

    dtype: np.dtype[Any]
    shape: tuple[int | None, ...] | None
    is_sequence: bool = False
    is_optional: bool = False
    vocabulary: Mapping[str, int] | None = None
    keys: tuple[int | str, ...] | None = None

    def checked(self, name: str, x: Any) -> Any:
        """Checks an argument against this type.

        Args:
            name: The input's name, for errors.
            x: The argument.

        Returns:
            An array or variable; a list of them for a sequence; None if absent.

        Raises:
            CallError: If a required input is None, or a sequence is not a list.
            ArgumentError: If a dictionary has keys of another type.
            ShapeError: If a tensor has another shape.
        """
        if x is None:
            if not self.is_optional:
                raise CallError(f"onnx.Model: expected an array as input {name!r}, got None")
            return None
        if self.is_sequence:
            if not isinstance(x, (list, tuple)):
                raise CallError(f"onnx.Model: expected a list of arrays as input {name!r}, got {type(x).__name__}")
            return [self._tensor(f"{name}[{i}]", item) for i, item in enumerate(x)]
        return self._tensor(name, x if self.keys is None else self._row(name, x, self.keys))

    def _row(self, name: str, x: Any, keys: Sequence[int | str]) -> Any:
        """Returns the values of a dictionary in the order of the keys. Absent values are zero, other keys ignored."""
        if not isinstance(x, Mapping):
            return x  # a row of values
        kind = str if keys and isinstance(keys[0], str) else (int, np.integer)
        if odd := [key for key in x if not isinstance(key, kind)]:
            raise ArgumentError(f"onnx.Model: expected keys like {keys[0]!r} of input {name!r}, got {odd[0]!r}")
        return np.array([[x.get(key, 0) for key in keys]], self.dtype)

    def _placed(self, name: str, x: Any) -> Any:
        """Returns the index of each string in the vocabulary. Unknown strings get the indices after the last."""
        if isinstance(x, Variable) or x.dtype.kind not in "OSTUV":
            raise CallError(f"onnx.Model: expected an array of strings as input {name!r}, got numbers")
        places, new, found = self.vocabulary or {}, NEW_STRINGS.get({}), []
        for text in x.ravel().tolist():
            word = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
            at = places.get(word)
            found.append(len(places) + new.setdefault(word, len(new)) if at is None else at)
        return np.array(found, np.int64).reshape(x.shape)

    def _tensor(self, name: str, x: Any) -> Any:
        """Returns an argument as an array or variable. Raises ShapeError unless it has the declared shape."""
        found = x if isinstance(x, Variable) else np.asarray(x)
        if self.vocabulary is not None:
            found = self._placed(name, found)
        shape = self.shape
        if shape is not None and (
            len(found.shape) != len(shape) or any(b not in (None, a) for a, b in zip(found.shape, shape, strict=True))
        ):
            raise ShapeError(f"onnx.Model: expected shape {shape} of input {name!r}, got {tuple(found.shape)}")
        return found


def input_type(
    held: Any,
    name: str,
    vocabulary: Callable[[], Mapping[str, int]] | None = None,
    keys: Sequence[int | str] | None = None,
) -> InputType:
    """The type that a model declares for an input.

    Args:
        held: A `TypeProto`.
        name: The input, for errors.
        vocabulary: Returns the places of the strings of the model.
        keys: The keys of a dictionary.

    Raises:
        UnsupportedError: If the type is neither a tensor nor a sequence of tensors, optional or not, nor a dictionary.
    """
    from .tensors import dtype_of

    kind = held.WhichOneof("value")
    if kind == "optional_type":
        return input_type(held.optional_type.elem_type, name)._replace(is_optional=True)
    if kind == "sequence_type":
        inner = input_type(held.sequence_type.elem_type, name)
        if not inner.is_sequence and not inner.is_optional:
            return inner._replace(is_sequence=True)
    elif kind == "map_type" and keys is not None:
        element = held.map_type.value_type.tensor_type.elem_type
        return InputType(dtype_of(element), (1, len(keys)), keys=tuple(keys))
    elif kind == "tensor_type":
        tensor = held.tensor_type
        shape = None
        if tensor.HasField("shape"):
            # Older exporters write -1 for a symbolic length.
            shape = tuple(
                axis.dim_value if axis.HasField("dim_value") and axis.dim_value >= 0 else None
                for axis in tensor.shape.dim
            )
        if tensor.elem_type == _STRING and vocabulary is not None:
            return InputType(np.dtype(object), shape, vocabulary=vocabulary())
        return InputType(dtype_of(tensor.elem_type), shape)
    raise UnsupportedError(f"onnx.load: expected a tensor or a sequence of tensors as input {name!r}, got another type")


def parts(given: Mapping[str, Any]) -> dict[str, Any]:
    """All tensors of inputs by name: `x` for a tensor, `x[0]`, `x[1]` and so on for a sequence.

    Args:
        given: The checked inputs by name.
    """
    found: dict[str, Any] = {}
    for name, x in given.items():
        if isinstance(x, list):
            found.update((f"{name}[{i}]", item) for i, item in enumerate(x))
        elif x is not None:
            found[name] = x
    return found


def entered(name: str, x: Any, enter: Callable[[str, Any], Value]) -> Value:
    """An input as a `Value` of the graph.

    Args:
        name: The input's name.
        x: The checked input.
        enter: Function from the name in `parts` and a tensor to a value.
    """
    if x is None:
        return Absent()
    if isinstance(x, list):
        return Items(enter(f"{name}[{i}]", item) for i, item in enumerate(x))
    return enter(name, x)


def counts(given: Sequence[Any]) -> tuple[int, ...]:
    """The structure of inputs: the length of each sequence, -1 for a tensor, -2 for an absent value.

    Args:
        given: The checked inputs.
    """
    return tuple(len(x) if isinstance(x, list) else -2 if x is None else -1 for x in given)

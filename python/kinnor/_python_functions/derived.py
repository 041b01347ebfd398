"""Copies and pickled states of objects of classes derived from `Variable` and `NdArray`."""

from __future__ import annotations

import copy
import copyreg
from typing import TYPE_CHECKING, Any

from .._core import NdArray

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def state(made: Any) -> Any:
    """The attributes of an object as `pickle` expects them: of its own `__getstate__`, or of its class and slots."""
    cls = type(made)
    own = getattr(cls, "__getstate__", None)
    if own is not None and own is not getattr(object, "__getstate__", None):
        return own(made)
    names = copyreg._slotnames(cls)  # type: ignore[attr-defined]
    slots = {name: getattr(made, name) for name in names if hasattr(made, name)}
    attributes = dict(getattr(made, "__dict__", {}))
    return (attributes or None, slots) if slots else attributes or None


def copy_state(made: Any, other: Any, memo: dict[int, Any] | None) -> None:
    """Gives `other` the attributes of an object, or deep copies of them if there is a `memo`."""
    found = state(made)
    if memo is not None:
        memo[id(made)] = other  # An attribute may be the object itself.
        found = copy.deepcopy(found, memo)
    if found is None:
        return
    if hasattr(other, "__setstate__"):
        other.__setstate__(found)
        return
    attributes, slots = found if isinstance(found, tuple) else (found, {})
    if attributes:
        other.__dict__.update(attributes)
    for name, value in slots.items():
        setattr(other, name, value)


def restore_array(values: NDArray[np.generic], cls: type[NdArray] = NdArray) -> NdArray:
    """An array from its pickled state."""
    made = NdArray.from_numpy_array(values)
    return made if cls is NdArray else made._of_class(cls)

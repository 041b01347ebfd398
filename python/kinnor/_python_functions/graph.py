"""Methods of `Variable` that are implemented by functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import _core
from .._core import CallError, GraphError, NdArray, Variable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def without_grad(y: Variable) -> Variable:
    """A copy of the graph of `y` on parameters that need no gradient. Returns the copy of `y`."""
    from ..parameter import get_parameters

    registered = {p.data for p in get_parameters(grad_only=False).values()}
    made: dict[Variable, Variable] = {}

    def twin(v: Variable) -> Variable:
        """The copy of a variable; the variable itself if it does not depend on parameters."""
        if v in made:
            return made[v]
        if v.parent is None and v.data in registered:
            return made.setdefault(v, v.get_unlinked_variable(need_grad=False))
        return v

    def rebuild(f: Any) -> None:
        """Builds a copy of a function on the copies of its inputs."""
        outputs = f(*[twin(v) for v in f.inputs])
        for old, new in zip(f.outputs, outputs if isinstance(outputs, tuple) else (outputs,), strict=True):
            made[old] = new

    outer = _core.scope_auto_forward(False)
    try:
        y.visit(rebuild)
    finally:
        _core.scope_auto_forward(outer)
    return twin(y)


def bool_fill_(x: Variable, mask: Any, value: float) -> Variable:
    """Sets `x` to `value` in place where `mask` is not zero. Returns a variable over the memory of `x`."""
    if x.is_leaf and x.requires_grad and _core.grad_mode() and not _core.is_nnabla():
        raise GraphError(
            "bool_fill_: expected to change a variable in place, got a leaf that requires grad; use no_grad()"
        )
    if isinstance(mask, NdArray):
        leaf = Variable(mask.shape)
        leaf.data = mask
        mask = leaf
    result: Variable = _core.functions.bool_fill(x, mask, value, outputs=[x.data])
    return result


def astype(x: Variable | NdArray, dtype: np.dtype[Any]) -> Any:
    """`x` in another type: an output of `identity` in that type, or a copy for types without gradient."""
    from ..context import COMPUTE_TYPES, DTYPE_NAMES, Context, context_scope

    kind = DTYPE_NAMES.get(dtype.name, dtype.name)
    if kind in COMPUTE_TYPES:
        with context_scope(Context([f"cpu:{kind}"])):
            return _core.functions.identity(x)
    if isinstance(x, NdArray):
        return NdArray.from_numpy_array(x.data.astype(dtype))
    if x.parent is not None or x.need_grad:
        raise CallError(
            f"astype: expected float16, bfloat16, float32 or float64 for a variable with a gradient or a parent, got "
            f"{dtype.name}; x.d.astype({dtype.name!r}) gives its values now"
        )
    return Variable.from_numpy_array(x.d.astype(dtype))


def restore(
    values: NDArray[np.generic],
    need_grad: bool | None,
    persistent: bool,
    recompute: bool,
    name: str | None,
    cls: type[Variable] = Variable,
) -> Variable:
    """A variable from its pickled state, without a graph."""
    v = Variable.from_numpy_array(values, need_grad=need_grad)
    v.persistent, v.recompute = persistent, recompute
    if name:
        v.name = name
    return v if cls is Variable else v._of_class(cls)

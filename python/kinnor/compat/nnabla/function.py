"""Functions as objects: made with their arguments, called with their inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kinnor import _core
from kinnor import functions as F
from kinnor._suggest import absence
from kinnor.function import Function, PythonFunction

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Function", "PythonFunction"]


class Made:
    """A function with its arguments.

    Args:
        ctx: The context that it is made for, which is without effect: that of the call counts.
        *args: Its arguments, in the order of the function's.
        **kwargs: Its arguments by name.
    """

    name: str
    names: Sequence[str]

    def __init__(self, ctx: Any = None, *args: Any, **kwargs: Any) -> None:
        self.ctx, self.args = ctx, {**dict(zip(self.names, args, strict=False)), **kwargs}

    def __call__(self, *inputs: Any, n_outputs: int = -1, auto_forward: bool = False, outputs: Any = None) -> Any:
        """What `kinnor.functions` makes of the inputs.

        Args:
            *inputs: The inputs.
            n_outputs: Without effect.
            auto_forward: Without effect.
            outputs: Arrays to write to.

        Returns:
            The output, or a tuple of them.
        """
        given = {} if outputs is None else {"outputs": outputs}
        return getattr(F, self.name)(*inputs, **self.args, **given)


_FUNCTIONS = {row[1]: (row[0], [arg[0] for arg in row[3]]) for row in _core.declarations()}


def __getattr__(name: str) -> Any:
    if name not in _FUNCTIONS:
        raise AttributeError(absence(f"nnabla.function.{name}", [*__all__, *_FUNCTIONS]))
    function, names = _FUNCTIONS[name]
    made = type(name, (Made,), {"name": function, "names": names, "__doc__": Made.__doc__})
    globals()[name] = made
    return made

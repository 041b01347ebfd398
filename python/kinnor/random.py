"""Random state of the library: seeds, and the generator of initializers.

The engine has its own generator for random functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._check import as_whole, whole
from ._core import GraphError, ParameterError, RangeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.random import RandomState

    from ._core import Function, Variable

__all__ = ["prng", "pseed", "seed", "set_function_seed", "set_parameter_seed"]

#: Seed that the current `prng` was made with.
pseed: int = 313

#: Generator of initial parameters. An initializer takes the current one when it is constructed.
prng: RandomState


def __getattr__(name: str) -> RandomState:
    """Creates the generator `prng` on first use."""
    # Importing `numpy.random` is slow, so the generator is made on first use.
    if name.startswith("_"):  # The import system asks for some.
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name != "prng":
        from ._suggest import absent

        absent(f"{__name__}.{name}", __all__)
    _renew(pseed)
    return prng


def seed(seed_value: int, set_function_seed: bool = True, set_parameter_seed: bool = True) -> None:
    """Seed the random generators, so that a program can be repeated.

    Args:
        seed_value: Seed, from 0 to 2**32 - 1.
        set_function_seed: Whether to restart the generator of random functions (dropout, `F.rand`, ...).
        set_parameter_seed: Whether to replace `prng`, the generator of initial parameters. Initializers that
            exist already keep their generator.

    Raises:
        TypeError: If the seed is not an int.
        ValueError: If the seed is out of range.
    """
    value = _checked(seed_value)
    if set_function_seed:
        _core.seed(value)
    if set_parameter_seed:
        _renew(value)


def set_function_seed(seed_value: int) -> None:
    """Restart the generator of random functions only.

    Args:
        seed_value: Seed, from 0 to 2**32 - 1.

    Raises:
        TypeError: If the seed is not an int.
        ValueError: If the seed is out of range.
    """
    seed(seed_value, set_parameter_seed=False)


def set_parameter_seed(seed_value: int) -> None:
    """Replace the generator of initial parameters only.

    Args:
        seed_value: Seed, from 0 to 2**32 - 1.

    Raises:
        TypeError: If the seed is not an int.
        ValueError: If the seed is out of range.
    """
    seed(seed_value, set_function_seed=False)


def _renew(value: int) -> None:
    """Replaces `prng` and `pseed`."""
    from numpy.random import RandomState

    global prng, pseed
    prng, pseed = RandomState(value), value


def _checked(value: int) -> int:
    """A seed as an int, after a check of its range."""
    value = whole("seed", "seed_value", value)
    if not 0 <= value < 2**32:
        raise RangeError(f"seed: expected a number from 0 to 2**32 - 1, got {value}")
    return value


def _counting_functions(outputs: Iterable[Variable]) -> list[Function]:
    """The functions of a graph with a seed of their own, or that count their runs, in the order of their runs."""
    found: dict[Function, None] = {}

    def note(function: Function) -> None:
        """Keeps a function that has a seed or counts its runs."""
        is_seeded = function.random_position is not None and function.args.get("seed", -1) >= 0
        if is_seeded or function.progress is not None:
            found[function] = None

    for y in outputs:
        y.visit(note)
    return list(found)


def positions(outputs: Iterable[Variable]) -> list[Any]:
    """How far each function of a graph has come that has a seed of its own or counts its runs, for JSON."""
    return [
        [function.name, function.random_position or 0, *([] if kept is None else [kept.hex()])]
        for function in _counting_functions(outputs)
        for kept in [function.progress]
    ]


def _of_json(name: str, drawn: Any, progress: str | None = None) -> tuple[str, int, bytes | None]:
    """An entry of `positions`. Raises ValueError or TypeError if it is of no function.

    Returns:
        The function's type, the count of random numbers it has drawn, and the counts and values that its runs keep for
        later runs, None if it keeps nothing.
    """
    count = as_whole(drawn)
    if count is None or not 0 <= count < 2**64:
        raise ValueError(name)
    return name, count, None if progress is None else bytes.fromhex(progress)


def set_positions(outputs: Iterable[Variable], found: Any, graph: str) -> None:
    """Sets the result of `positions` in the same graph. Raises ParameterError, and sets none, if it is of another."""
    functions = _counting_functions(outputs)
    own = [function.name for function in functions]
    before = [function.progress for function in functions]
    try:
        saved = [_of_json(*entry) for entry in found]
        progress = [kept for _, _, kept in saved]
        fits = [name for name, _, _ in saved] == own
        fits = fits and all((new is None) == (old is None) for new, old in zip(progress, before, strict=True))
        if fits:
            _set_progress(functions, progress)
    except (TypeError, ValueError, GraphError):
        _set_progress(functions, before)
        fits = False
    if not fits:
        expected = f"positions of {graph}, whose functions with a seed or a count of runs are {own}"
        raise ParameterError(f"load_checkpoint: expected {expected}, got {found}")
    for function, (_, drawn, _) in zip(functions, saved, strict=True):
        if function.random_position is not None:
            function.random_position = drawn


def _set_progress(functions: Iterable[Function], progress: Iterable[bytes | None]) -> None:
    """Sets what functions count and keep. Raises GraphError if it is of other functions."""
    for function, kept in zip(functions, progress, strict=True):
        if kept is not None:
            function.progress = kept

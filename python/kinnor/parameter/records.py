"""Records of parameters. They are imported on first use, as classes of named tuples take long to build."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ..initializer import Initializer

__all__ = ["Loaded", "ParameterInfo"]


class ParameterInfo(NamedTuple):
    """The origin of a registered parameter, stored as its `info`."""

    initializer: Initializer | None
    """The initializer that drew its values, or None."""
    is_learned: bool = True
    """False for running statistics and the like, which were made without need of a gradient."""
    is_frozen: bool = False
    """True after `Module.requires_grad_(False)`: parametric functions use the parameter without a gradient."""


class Loaded(NamedTuple):
    """The names that `load_parameters` found in the file, compared with the names in the scope."""

    matched: list[str]
    """Names that both have: these parameters have the values of the file now."""
    missing: list[str]
    """Names that only the scope has: these parameters are as before."""
    unexpected: list[str]
    """Names that only the file has: these are new parameters of the scope now."""

    def __repr__(self) -> str:
        return f"{len(self.matched)} matched, {len(self.missing)} missing, {len(self.unexpected)} unexpected"


for _kind in (Loaded, ParameterInfo):
    _kind.__module__ = __package__  # Programs import them from there.

"""The record of a training run: means of each epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import CallError, ParameterError
from .._suggest import lacks, spelled
from ..display import html_table, text_table

__all__ = ["History"]


class History(list[dict[str, Any]]):
    """A row for each epoch, by name: `epoch`, `loss`, metrics, the same of the validation with `val_` before, and more.

    Epochs are counted from 1.

    Examples:
        >>> history = History([{"epoch": 1, "loss": 2.0}, {"epoch": 2, "loss": 0.5}])
        >>> history.series("loss")
        [2.0, 0.5]
        >>> print(history)
        epoch  loss
        1         2
        2       0.5
    """

    def series(self, name: str) -> list[float]:
        """The values of one name, epoch by epoch.

        Args:
            name: The name, such as `val_loss`.

        Returns:
            The values of all epochs that have one.

        Raises:
            ParameterError: If no epoch has one.
        """
        known = list(dict.fromkeys(each for row in self for each in row))
        if self and name not in known:
            near = spelled(name, known)
            raise ParameterError(f"History.series: expected one of {', '.join(known)}, got {name!r}{near}")
        return [row[name] for row in self if name in row]

    if not TYPE_CHECKING:

        def __getitem__(self, place: Any) -> Any:
            if isinstance(place, str):
                raise CallError(
                    f"History: expected the number of an epoch, got {place!r}; series({place!r}) returns its values"
                )
            return super().__getitem__(place)

        def __getattr__(self, name: str) -> Any:
            lacks(self, name, "HISTORY")

    def __repr__(self) -> str:
        rows = self._rows()
        return "\n".join(text_table(rows, right=range(1, len(rows[0])))) if rows[0] else "no epochs"

    def _repr_html_(self) -> str:
        """Returns the table as HTML, for notebooks."""
        rows = self._rows()
        return html_table(rows, right=range(1, len(rows[0])))

    def _rows(self) -> list[tuple[str, ...]]:
        """Returns the names of all values, then the values of each epoch, as text."""
        names = list(dict.fromkeys(name for row in self for name in row))
        return [tuple(names), *(tuple(shown(row.get(name, "")) for name in names) for row in self)]


def shown(value: Any) -> str:
    """A value in four digits."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)

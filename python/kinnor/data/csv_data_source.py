"""Data sets in CSV files: a header with names of variables, and a row for each example.

Knows headers, cells and the files that cells name, but no batches. NNabla imports `CsvDataSource` from
`data_source_implements`.
"""

from __future__ import annotations

import csv
import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .data_source import DataError, DrawingDataSource, Orders
from .data_source_loader import FileReader, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import RandomState

__all__ = ["CsvDataSource"]


class _Column(NamedTuple):
    """A column of the file: the name of its variable."""

    variable: str
    is_part: bool
    """True if the column is an element of a vector."""


class CsvDataSource(DrawingDataSource):
    """A data set in a CSV file.

    The header of a column is the name of a variable, optionally followed by `:` and a label. A cell is a number, which
    becomes an array of one element, or the path of a file relative to the CSV file: an image, a table or an array.
    Spaces around a header are ignored.
    Columns `v__0`, `v__1` and so on form a vector `v`. Columns whose header begins with `#` are ignored.

    Args:
        filename: Path of the CSV file.
        shuffle: Whether to shuffle the examples, in a new order each epoch.
        rng: Random generator of the order; None is `RandomState(313)`.
        normalize: Whether to divide pixels by the largest value of their type, so that they are in [0, 1].

    Raises:
        DataError: If the file is malformed.
        OSError: If the file cannot be read.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        shuffle: bool = False,
        rng: RandomState | None = None,
        normalize: bool = False,
    ) -> None:
        super().__init__(shuffle, rng)
        self._filename = self._original_source_uri = os.fspath(filename)
        self._normalize = normalize
        self._reader = FileReader(filename)
        try:
            with self._reader.open(textmode=True) as file:
                rows = [row for row in csv.reader(file) if row]
        except (UnicodeDecodeError, csv.Error) as error:
            raise DataError(f"CsvDataSource: expected a CSV file, got {self._filename}: {error}") from error
        if not rows or not any(rows[0]):
            raise DataError(f"CsvDataSource: expected a header, got none in {self._filename}")
        rows[0] = [name.strip() for name in rows[0]]
        kept = [i for i, name in enumerate(rows[0]) if not name.startswith("#")]
        if all(_is_number(rows[0][i]) for i in kept):
            raise DataError(
                f"CsvDataSource: expected a header with names such as x__0,x__1,y, got numbers in {self._filename}"
            )
        if len(rows) == 1:
            raise DataError(f"CsvDataSource: expected rows below the header, got none in {self._filename}")
        for number, row in enumerate(rows):
            if len(row) != len(rows[0]):
                raise DataError(
                    f"CsvDataSource: expected {len(rows[0])} cells, got {len(row)} in row {number} of {self._filename}"
                )
        self._columns = [_column(rows[0][i]) for i in kept]
        names = [rows[0][i].partition(":")[0] for i in kept]
        whole = {column.variable for column in self._columns if not column.is_part}
        for i, column in enumerate(self._columns):
            if names[i] in names[:i] or (column.is_part and column.variable in whole):
                raise DataError(
                    f"CsvDataSource: expected a column for each variable or part of one, got {column.variable!r} twice "
                    f"in {self._filename}"
                )
        self._rows = [[row[i] for i in kept] for row in rows[1:]]
        self._variables = list(dict.fromkeys(column.variable for column in self._columns))
        self._size = len(self._rows)
        self._orders = Orders(self._size, shuffle, self._rng)

    @property
    def _order(self) -> Sequence[int]:
        """The order of this epoch. Programs of NNabla set this attribute."""
        return list(map(int, self.order))

    @_order.setter
    def _order(self, order: Sequence[int]) -> None:
        self._orders.replace(self._generation, order)

    def _get_data_of_generation(self, position: int, generation: int) -> Sequence[Any]:
        """Reads the line at a position of an epoch's order."""
        return self.read(int(self._orders[generation][position]))

    def read(self, index: int) -> tuple[Any, ...]:
        """Read the example in a row.

        Args:
            index: Number of the row after the header, from 0.

        Returns:
            An array for each variable.

        Raises:
            DataError: If a cell is neither a number nor a file that can be read.
        """
        found: dict[str, Any] = {}
        for column, cell in zip(self._columns, self._rows[index], strict=True):
            value = self._value(cell, index)
            if column.is_part:
                found.setdefault(column.variable, []).append(value)
            else:
                found[column.variable] = np.array([value], np.float32) if isinstance(value, float) else value
        return tuple(np.array(v, np.float32) if isinstance(v, list) else v for v in found.values())

    def _value(self, cell: str, index: int) -> Any:
        """The value of a cell: a number, or the contents of a file."""
        try:
            return float(cell)
        except ValueError:
            pass
        _, extension = os.path.splitext(cell)  # noqa: PTH122 - the cell may not be a path
        try:
            if not cell.strip():
                raise DataError("the cell is empty")
            with self._reader.open(cell) as file:
                return load(extension.lower())(file, normalize=self._normalize)
        except (OSError, ValueError) as error:
            where = f"row {index + 1} of {self._filename}"
            raise DataError(f"CsvDataSource: expected a number or a file, got {cell!r} in {where}: {error}") from error


def _is_number(text: str) -> bool:
    """True if a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _column(header: str) -> _Column:
    """Parse the header of a column."""
    name = header.partition(":")[0]
    variable, mark, _ = name.partition("__")
    return _Column(variable, bool(mark))

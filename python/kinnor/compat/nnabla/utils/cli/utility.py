"""Small functions of NNabla's command line program that others use: numbers in texts, paths, data for variables."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from kinnor import ShapeError

if TYPE_CHECKING:
    from kinnor import Context, Variable

__all__ = ["compute_full_path", "is_float", "let_data_to_variable", "str_to_num"]

UNITS = {
    letter: base**power
    for power, pair in enumerate(("Kk", "Mm", "Gg", "Tt", "Pp"), 1)
    for letter, base in zip(pair, (1000, 1024), strict=True)
}
"""What a letter after a number multiplies it by."""


def is_float(x: str) -> bool:
    """Whether a text is a number.

    Args:
        x: The text.

    Examples:
        >>> is_float("1e3"), is_float("nan"), is_float("one")
        (True, True, False)
    """
    try:
        float(x)
    except ValueError:
        return False
    return True


def str_to_num(str: str) -> int:
    """The whole number that a text says, with a unit at its end or an exponent.

    Args:
        str: Digits that do not begin with 0; or a number, which may have decimals, and a letter: `K`, `M`, `G`, `T` or
            `P` for powers of 1000, small ones for powers of 1024; or a number, `e` and its exponent.

    Returns:
        The number, without what follows the point; -1 for any other text.

    Examples:
        >>> str_to_num("1.5K"), str_to_num("2m"), str_to_num("2e10"), str_to_num("x")
        (1500, 2097152, 1024, -1)
    """
    found = re.fullmatch(r"([1-9][0-9]*)((\.[0-9]+)?(e([0-9]+)|([KkMmGgTtPp])))?", str)
    if found is None:
        return -1
    whole, given, decimals, _, exponent, unit = found.groups()
    if given is None:
        return int(whole)
    number = float(whole + (decimals or ""))
    return int(number * UNITS[unit] if unit else number ** int(exponent))


def compute_full_path(root_path: str, file_path: str) -> str:
    r"""The path of a file that is named from a folder, with this system's separators and without `.` within.

    Args:
        root_path: Path of the folder.
        file_path: Path of the file; one from the root stays as it is.

    Examples:
        >>> compute_full_path("/data", "a\\b.csv").replace(os.sep, "/")
        '/data/a/b.csv'
    """
    path = os.path.join(root_path, file_path)  # noqa: PTH118 - keeps a `.` at the start, as in NNabla.
    path = path.replace("\\", os.sep).replace("/", os.sep)
    return path.replace(f"{os.sep}.{os.sep}", os.sep)


def let_data_to_variable(
    variable: Variable,
    data: np.ndarray[Any, Any],
    ctx: Context | None = None,
    data_name: str | None = None,
    variable_name: str | None = None,
) -> None:
    """Put data into a variable, which has their type then and needs no gradient.

    Args:
        variable: The variable.
        data: The data, of its shape or one that is broadcast to it.
        ctx: Where they are to be.
        data_name: What an error calls the data.
        variable_name: What an error calls the variable.

    Raises:
        ShapeError: If the shapes do not fit; the variable is as it was.

    Examples:
        >>> import numpy as np
        >>> import kinnor as nn
        >>> x = nn.Variable((2,), need_grad=True)
        >>> let_data_to_variable(x, np.array([1, 2], np.int32))
        >>> x.d.tolist(), x.data.dtype, x.need_grad
        ([1, 2], <class 'numpy.int32'>, False)
    """
    try:
        values = np.broadcast_to(data, variable.shape)
    except ValueError as error:
        shown = [f' "{name}"' if name else "" for name in (data_name, variable_name)]
        raise ShapeError(
            f"let_data_to_variable: expected data{shown[0]} of the shape {variable.shape} of variable{shown[1]}, "
            f"got {np.shape(data)}"
        ) from error
    variable.d = values
    variable.need_grad = False
    if ctx is not None:
        variable.data.cast(variable.data.dtype, ctx)

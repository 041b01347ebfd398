"""Functions of NNabla's command line program that other programs use: text, paths, data, files of solver states."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from kinnor import ArgumentError, ShapeError
from kinnor import parameter as parameters
from kinnor.compat.utils import solver_messages
from kinnor.files import network_file, schema
from kinnor.files.atomic import replacing
from kinnor.logger import logger

if TYPE_CHECKING:
    from kinnor import Context, Variable
    from kinnor.compat.utils.load import Info

__all__ = [
    "compute_full_path",
    "is_float",
    "let_data_to_variable",
    "load_train_state",
    "save_optimizer_states",
    "str_to_num",
]

UNITS = {
    letter: base**power
    for power, pair in enumerate(("Kk", "Mm", "Gg", "Tt", "Pp"), 1)
    for letter, base in zip(pair, (1000, 1024), strict=True)
}
"""The factor of each unit letter after a number."""


def is_float(x: str) -> bool:
    """True if a text is a number.

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
    """Parse a whole number with an optional unit or exponent.

    Args:
        str: Digits that do not begin with 0, or a number with a unit letter, or a number with `e` and an exponent.
            The letters `K`, `M`, `G`, `T`, `P` are powers of 1000; the small letters are powers of 1024.

    Returns:
        The number without its decimals; -1 for any other text.

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
    r"""Join a folder and a path, with this system's separators and without `.` in the middle.

    Args:
        root_path: Path of the folder.
        file_path: Path of the file; an absolute path is returned unchanged.

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
    """Copy data to a variable. The variable takes the type of the data and needs no gradient afterwards.

    Args:
        variable: The variable.
        data: The data, with the variable's shape or a shape that broadcasts to it.
        ctx: Context for the array.
        data_name: Name of the data in error texts.
        variable_name: Name of the variable in error texts.

    Raises:
        ShapeError: If the shapes do not match. The variable stays unchanged.

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


def save_optimizer_states(filebase: str, ext: str, train_config: Any) -> list[str]:
    """Write the states of a training's solvers. `load_train_state` reads these files from an archive.

    Args:
        filebase: Prefix of the paths. The rest is `_NAME_SOLVER_optimizer.h5.optimizer` for each optimizer, or
            `_optimizer.protobuf.optimizer` for all.
        ext: `.h5` or `.protobuf`.
        train_config: Object whose `optimizers` is a dict, as `nnabla.utils.load` returns it.

    Returns:
        The paths.

    Raises:
        ArgumentError: If `ext` is another extension.
        OSError: If a file cannot be written.
    """
    if ext not in (".h5", ".protobuf"):
        raise ArgumentError(f"save_optimizer_states: expected `ext` to be .h5 or .protobuf, got {ext!r}")
    found = [held.optimizer for held in train_config.optimizers.values()]
    members = [solver_messages.state_file(optimizer.name, optimizer.solver, ext) for optimizer in found]
    if ext == ".protobuf":
        whole = schema.arrays().NNablaProtoBuf()
        for _, content in members:
            whole.MergeFromString(content)
        members = [("optimizer.protobuf.optimizer", whole.SerializeToString())]
    for name, content in members:
        with replacing(f"{filebase}_{name}") as temporary:
            temporary.write_bytes(content)
    return [f"{filebase}_{name}" for name, _ in members]


def load_train_state(filename: str, info: Info) -> None:
    """Resume a training: load parameters into the current scope, and the states of solvers.

    Args:
        filename: Path of a `.nnp` file that holds both.
        info: The result of `nnabla.utils.load.load`. The states of its solvers are set.

    Raises:
        NetworkError: If the file is malformed.
        ParameterError: If the states belong to another solver.
        OSError: If the file cannot be read.
    """
    content = network_file.read(filename)
    parameters.put(content.entries, "load_train_state")
    for optimizer in info.optimizers.values():
        solver_messages.load_states(optimizer.name, optimizer.solver, content.states)
    logger.info(f"Load training resume states: {filename}")

"""Facts about functions, and about networks in a message, in the form of NNabla's converter."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kinnor import _core
from kinnor.nnp import NetworkError

if TYPE_CHECKING:
    import os

__all__ = [
    "calc_shape_size",
    "func_set_import_config",
    "func_set_import_nnp",
    "func_set_nnabla_support",
    "get_category_info",
    "get_function_info",
    "search_network",
    "select_executor",
]

Facts = dict[str, dict[str, Any]]


def get_function_info() -> Facts:
    """The declarations of all functions.

    Returns:
        By type name: the name of the Python function, inputs and arguments by name, documentation.
    """
    facts: Facts = {}
    for name, type_name, inputs, arguments, doc in _core.declarations():
        facts[type_name] = {
            "snake_name": name,
            "doc": doc,
            "inputs": {
                i: {key: True for key, word in (("variadic", "list"), ("optional", "optional")) if word == kind}
                for i, kind in inputs
            },
            "arguments": {
                info: {"type": kind} if default is None else {"type": kind, "default": default}
                for _, info, kind, default in arguments
            },
        }
    return facts


def get_category_info() -> dict[str, Facts]:
    """The declarations of all functions by category. There is one category.

    Returns:
        The facts of `get_function_info` by the name of the category.
    """
    return {"Function": get_function_info()}


def func_set_nnabla_support() -> set[str]:
    """The types of all functions.

    Returns:
        Their names.
    """
    return set(get_function_info())


def func_set_import_config(config: str | os.PathLike[str]) -> set[str]:
    """The function types listed in a text file.

    Args:
        config: Path of the file. A type ends at the first comma of its line; lines that begin with `;` are comments.

    Returns:
        The types.

    Raises:
        OSError: If the file cannot be read.
    """
    lines = [line.strip() for line in Path(config).read_text().splitlines()]
    return {line.partition(",")[0].strip() for line in lines if not line.startswith(";")}


def func_set_import_nnp(nnp: Any) -> set[str]:
    """The function types in the network of the first executor.

    Args:
        nnp: The result of an importer: an object with the message as `protobuf`.

    Returns:
        The types.

    Raises:
        NetworkError: If there is no executor, or if its network is not in the message.
    """
    name = select_executor(nnp).network_name
    network = search_network(nnp, name)
    if network is None:
        raise NetworkError(f"func_set_import_nnp: expected a network {name!r}, got none")
    return {function.type for function in network.function}


def select_executor(nnp: Any, name: str | None = None) -> Any:
    """The first executor of a message.

    Args:
        nnp: The result of an importer: an object with the message as `protobuf`.
        name: Without effect, as in NNabla.

    Raises:
        NetworkError: If there is no executor.
    """
    if not nnp.protobuf.executor:
        raise NetworkError("select_executor: expected an executor, got none")
    return nnp.protobuf.executor[0]


def search_network(nnp: Any, name: str) -> Any:
    """Find a network by its name.

    Args:
        nnp: The result of an importer: an object with the message as `protobuf`.
        name: The name.

    Returns:
        The message of the network, or None if it does not exist.
    """
    return next((network for network in nnp.protobuf.network if network.name == name), None)


def calc_shape_size(shape: Any, batch_size: int) -> int:
    """Number of elements of a shape.

    Args:
        shape: A `Shape` message.
        batch_size: Length of the axes saved as -1.
    """
    return prod(batch_size if length < 0 else length for length in shape.dim)

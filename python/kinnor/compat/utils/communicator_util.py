"""The communicator of a program, if it runs as several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...logger import logger

if TYPE_CHECKING:
    from ...distributed import Communicator

__all__ = ["create_communicator", "current_communicator", "single_or_rankzero"]

_current_communicator: Communicator | None = None


def current_communicator() -> Communicator | None:
    """The communicator that `create_communicator` made last, or None in one process.

    Examples:
        >>> current_communicator() is None, single_or_rankzero()
        (True, True)
    """
    return _current_communicator


def create_communicator(
    ignore_error: bool = False, extension_module: str = "cpu", type_config: str = "float"
) -> Communicator | None:
    """Meet the other processes, if MPI started the program as several.

    Args:
        ignore_error: Whether a program that cannot meet them goes on as one process, with a warning.
        extension_module: Name of an extension, for the context; it has no effect.
        type_config: Precision of the context.

    Returns:
        The communicator; None in one process.

    Raises:
        CommunicatorError: If MPI started the program, and `mpi4py` or its library is missing.
    """
    from ...distributed import CommunicatorError, MultiProcessCommunicator
    from ..ext_utils import get_extension_context

    global _current_communicator
    _current_communicator = None
    communicator = MultiProcessCommunicator(get_extension_context("cpu", type_config=type_config))
    try:
        communicator.init()
    except CommunicatorError:
        if not ignore_error:
            raise
        logger.warning("create_communicator: the other processes cannot be met; this one goes on alone")
        return None
    if communicator.size > 1:
        _current_communicator = communicator
    return _current_communicator


def single_or_rankzero() -> bool:
    """Whether this process is the only one, or the first of several: the one that writes and prints."""
    return _current_communicator is None or _current_communicator.rank == 0

"""The communicator of a program that runs as several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...logger import logger

if TYPE_CHECKING:
    from ...distributed import Communicator

__all__ = ["create_communicator", "current_communicator", "single_or_rankzero"]

_current_communicator: Communicator | None = None
"""The communicator that `create_communicator` made, or None."""


def current_communicator() -> Communicator | None:
    """The last communicator that `create_communicator` returned, or None in a single process.

    Examples:
        >>> current_communicator() is None, single_or_rankzero()
        (True, True)
    """
    return _current_communicator


def create_communicator(
    ignore_error: bool = False, extension_module: str = "cpu", type_config: str = "float"
) -> Communicator | None:
    """Connect to the other processes, if MPI started the program as several.

    Args:
        ignore_error: Whether to continue as a single process, with a warning, if the connection fails.
        extension_module: Name of an extension, for the context; it has no effect.
        type_config: Precision of the context.

    Returns:
        The communicator; None in a single process.

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
        logger.warning("create_communicator: cannot connect to the other processes; this process continues alone")
        return None
    if communicator.size > 1:
        _current_communicator = communicator
    return _current_communicator


def single_or_rankzero() -> bool:
    """True if this process is the only one, or has rank 0: the process that writes files and prints."""
    return _current_communicator is None or _current_communicator.rank == 0

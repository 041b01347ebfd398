"""Records which inputs and outputs the engine clears after each function, for tests of memory use."""

from __future__ import annotations

from kinnor import _core

__all__ = [
    "activate_clear_called_flag_recorder",
    "deactivate_clear_called_flag_recorder",
    "get_input_clear_called_flags",
    "get_output_clear_called_flags",
]

Flags = list[list[tuple[bool, bool]]]
"""For each function, (data, grad) of each input, or of each output: whether the array was cleared."""


def activate_clear_called_flag_recorder() -> None:
    """Start a new recording."""
    _core.record_clear_flags(True)


def deactivate_clear_called_flag_recorder() -> None:
    """Stop recording and drop the record."""
    _core.record_clear_flags(False)


def get_input_clear_called_flags() -> Flags:
    """The recorded flags of inputs.

    Returns:
        For each function that ran and each of its inputs, whether data and gradient were cleared.
    """
    return [inputs for inputs, _ in _core.recorded_clear_flags()]


def get_output_clear_called_flags() -> Flags:
    """The recorded flags of outputs.

    Returns:
        For each function that ran and each of its outputs, whether data and gradient were cleared.
    """
    return [outputs for _, outputs in _core.recorded_clear_flags()]

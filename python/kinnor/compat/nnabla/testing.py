"""Comparison of arrays, and the recorder of what a run clears."""

from __future__ import annotations

from kinnor.compat.testing import assert_allclose

from . import clear_called_flag_recorder

__all__ = ["assert_allclose", "clear_called_flag_recorder"]

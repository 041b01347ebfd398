"""Comparison of arrays in tests."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["assert_allclose"]


def assert_allclose(
    actual: Any,
    desired: Any,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    equal_nan: bool = True,
    err_msg: str = "",
    verbose: bool = True,
) -> None:
    """Raise AssertionError unless two arrays agree: `|actual - desired| <= atol + rtol |desired|`.

    This is NumPy's function of the same name with tolerances for float32.

    Args:
        actual: The computed values.
        desired: The expected values.
        rtol: Tolerance relative to `desired`.
        atol: Absolute tolerance.
        equal_nan: Whether two NaN are equal.
        err_msg: Text for the error.
        verbose: Whether the error shows the values.

    Raises:
        AssertionError: If they differ by more.
    """
    np.testing.assert_allclose(actual, desired, rtol, atol, equal_nan, err_msg, verbose)

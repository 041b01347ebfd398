"""Tests that the documented errors of operations match new measurements on a sample."""

import re
from pathlib import Path

import accuracy
import numpy as np
import pytest

PAGE = Path(__file__).parents[2] / "docs/accuracy.md"
"""The page with the tables of errors."""
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines() if line[:1] == "|"
]
"""The cells of each row of each table on the page."""
EACH = {
    (name.strip("`"), args): float(error) for name, args, error, _ in (r for r in ROWS if len(r) == 4) if name[0] == "`"
}
"""The error on the page, by function and arguments."""


def shown(args):
    """Formats the arguments of a function."""
    return ", ".join(f"{key}={value:.6g}" for key, value in args.items())


def test_functions_of_each_element():
    """Samples one in a hundred of the numbers behind the page."""
    measured = set()
    for name, args, reference in accuracy.of_each():
        error, at = accuracy.largest(name, args, reference, 97 * accuracy.STEP)
        assert error <= EACH[name, shown(args)] < np.inf, (name, args, at)
        measured.add((name, shown(args)))
    assert measured == set(EACH)


def test_operations_on_several_elements():
    """The listed errors of operations that are not elementwise hold for the table's rows."""
    listed = {}
    for row in ROWS:
        if len(row) == 2 and row[1].startswith("`"):
            listed |= dict.fromkeys(re.findall(r"`(\w+)`", row[1]), float(row[0]))
    found = accuracy.of_rows()
    assert found.keys() == listed.keys()
    assert {name: error for name, error in found.items() if not error <= listed[name] < np.inf} == {}


@pytest.mark.parametrize("n", [10**4, 10**6])
def test_long_sums(n):
    """The listed errors of sums of `n` numbers hold."""
    errors = next(row[1:] for row in ROWS if row[0] == f"{n:,}")
    for (name, error), listed in zip(accuracy.of_sums(n).items(), errors, strict=True):
        assert error <= float(listed), name


def test_the_page_lists_operations_that_depend_on_instructions():
    """The listed operations are exempt in the test of instruction sets. All others must give the same bits there."""
    text = PAGE.read_text()
    listed = text[text.index("Exceptions are sums of products") :]
    assert set(re.findall(r"`(\w+)`", listed)) == accuracy.SUMS_OF_PRODUCTS


def test_errors_are_in_ulp():
    """Errors are in ulp of the exact value, and infinite if only one of the two is a number."""
    got = np.array([1.0, 1.0 + 2**-22, np.inf, 1.0, np.nan, 3e38], np.float32)
    exact = np.array([1.0, 1.0, 1e39, np.inf, np.nan, 1e39])
    assert accuracy.units(got, exact, exact).tolist() == [0.0, 2.0, 0.0, np.inf, 0.0, np.inf]

"""Lower instruction sets: the same operations work, with the same bits except for sums of products."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from accuracy import SUMS_OF_PRODUCTS

TESTS = Path(__file__).parent
"""The folder of tests of operations."""


def run(arguments: list[str], **variables: str) -> str:
    """Runs Python on one thread with these environment variables. Returns its output."""
    environment = os.environ | {"KINNOR_NUM_THREADS": "1"} | variables
    done = subprocess.run([sys.executable, *arguments], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("isa", ["avx2", "portable"])
def test_operations_are_right_with_lower_instructions(isa):
    """The tests of all operations pass with each lower instruction set."""
    run(["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(TESTS / "test_operations.py")], KINNOR_ISA=isa)


def test_bits_do_not_depend_on_instructions_or_threads():
    """The bits do not depend on earlier memory use or the process either. Only sums of products depend on
    instructions."""
    digests = {isa: json.loads(run([str(TESTS / "digests.py")], KINNOR_ISA=isa)) for isa in ("", "avx2", "portable")}
    assert len({each["without products"] for each in digests.values()}) == 1, digests
    tables = [each["table"] for each in digests.values()]
    differ = {name for name in tables[0] if len({table[name] for table in tables}) > 1}
    assert differ <= SUMS_OF_PRODUCTS, differ - SUMS_OF_PRODUCTS

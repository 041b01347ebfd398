"""A few files of `fuzz_files.py` for each reader."""

import subprocess
import sys
from pathlib import Path

import fuzz_files
import pytest


@pytest.mark.parametrize("reader", fuzz_files.READERS)
def test_broken_files_give_typed_errors_soon_and_change_nothing(tmp_path, reader):
    refused, read = fuzz_files.fuzz(reader, 150, 1, tmp_path)
    assert refused > 75
    assert refused + read == 150


def test_the_program_reads_many_files():
    """The fuzzer of files runs from the command line."""
    program = Path(fuzz_files.__file__)
    done = subprocess.run([sys.executable, program, "--count", "3", "idx.plain"], capture_output=True, text=True)
    assert done.stdout.startswith("idx.plain: "), done.stderr

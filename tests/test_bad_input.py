"""Whatever is thrown at the package, it answers with an exception that a caller expects, and changes nothing."""

import subprocess
import sys
from pathlib import Path

import pytest

THROWING = Path(__file__).with_name("throwing.py")


@pytest.mark.parametrize(("kind", "examples"), [("functions", 1500), ("members", 1000), ("solvers", 300), ("constructors", 300)])
def test_wrong_arguments(kind, examples, tmp_path):
    note = tmp_path / "call"
    command = [sys.executable, str(THROWING), kind, str(examples), "1", str(note)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    last = note.read_bytes().rstrip().decode(errors="replace")
    assert done.returncode == 0, f"ended with {done.returncode} at {last}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"

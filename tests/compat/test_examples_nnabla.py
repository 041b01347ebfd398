"""Runs the programs in `examples/nnabla/` under NNabla's names and natively."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "examples/nnabla"
NUMBER = r"-?\d+\.\d+"


def fell(factor):
    """Returns a check that the numbers of a line such as `loss 2.30 -> 0.10` fell by a factor."""
    return lambda first, last: last * factor < first


def above(bound):
    """Returns a check that the last number of a line is above a bound."""
    return lambda *found: found[-1] > bound


LEARNT = {
    "classification": (150, above(90)),
    "csv_dataset": (200, above(90)),
    "dcgan": (120, fell(1.5)),
    "dqn": (1200, lambda before, after: before < 0.5 and after > 0.8),
    "language_model": (60, fell(1.7)),
    "quantization": (200, above(90)),
    "quantization_scheduler": (200, above(90)),
    "siamese": (150, above(90)),
    "super_resolution": (200, lambda before, after: after > before + 1),
    "transformer": (200, above(85)),
    "vae": (300, fell(1.4)),
}
"""Number of steps for each program, and a check of the numbers that it prints at the end."""


def test_each_program_is_tested():
    """Every program in `examples/nnabla` has an entry in the table of results."""
    assert {path.stem for path in PROGRAMS.glob("*.py")} == set(LEARNT)


@pytest.mark.parametrize("names", ["nnabla", "kinnor"])
@pytest.mark.parametrize("program", LEARNT)
def test_it_learns(program, names, tmp_path):
    """Each NNabla example trains, under the name `nnabla` and with `kinnor` in its place."""
    steps, learnt = LEARNT[program]
    path = PROGRAMS / f"{program}.py"
    runner = ["-m", "kinnor.compat.nnabla"]
    if names == "kinnor":
        source = re.sub(r"\bnnabla\b", "kinnor", path.read_text())
        path, runner = tmp_path / f"{program}.py", []
        path.write_text(source)
    done = subprocess.run(
        [sys.executable, "-W", "error", *runner, path, "--steps", str(steps)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [float(number) for number in re.findall(NUMBER, done.stdout.splitlines()[-1])]
    assert learnt(*found), done.stdout
    if program == "quantization":
        used = re.search(r"different weights in each layer: \[(.*)\]", done.stdout)
        assert all(2 < int(n) <= 16 for n in used[1].split(", "))
    if program == "classification":
        assert (tmp_path / "classification.nnp").stat().st_size > 10_000

"""The bench of growth: all parts at tiny sizes, its figures, and the recorded page."""

import doctest
import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches.growth import __main__ as growth  # noqa: E402
from benches.growth import report  # noqa: E402
from benches.growth.parts import PARTS, THREADS  # noqa: E402
from benches.growth.series import MODELS, SERIES  # noqa: E402
from benches.peers.published import FOLDER  # noqa: E402


def texts(path):
    """Returns the texts in a picture."""
    return {each.text for each in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")}


def test_quick_run(tmp_path):
    """All parts run at tiny sizes. Any number of threads computes the same bits."""
    rows = tmp_path / "growth.json"
    done = subprocess.run(
        [sys.executable, "-m", "benches.growth", "--quick", "--output", rows, "--draw", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    facts = json.loads(rows.read_text())
    assert set(facts["parts"]) == set(PARTS)
    assert done.stdout == report.text(facts)
    for name in SERIES:
        assert all(min(row.values()) > 0 for row in facts["parts"][name].values())
    assert len({row["digest"] for row in facts["parts"]["threads"].values()}) == 1
    for name in MODELS:
        before, *_, after = facts["parts"][f"memory after, {name}"].values()
        assert before[1] == after[1]
    assert all(set(SERIES) <= texts(tmp_path / name) for name in (report.TIME, report.MEMORY))


def test_figures_of_linear_growth_are_one():
    work = SERIES["batch, affine"].work
    rows = {str(n): {"build": work(n), "reused": work(n), "step": work(n), "MiB": n} for n in (1, 4, 16)}
    assert [p[1:] for p in report.points("batch, affine", rows)] == [(1, 1, 1, 1)] * 3
    rows["16"]["step"] *= 2
    assert [p.jump for p in report.points("batch, affine", rows)] == [1, 1, 2]


def test_the_least_of_rounds():
    assert doctest.testmod(growth).attempted == 1 and doctest.testmod(growth).failed == 0
    with pytest.raises(SystemExit, match="the same bits"):
        growth.least({"1": {"digest": "a"}}, {"1": {"digest": "b"}})


def test_a_part_that_does_not_exist_is_refused():
    command = [sys.executable, "-m", "benches.growth", "--only", "height"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "expected the start of one of batch, affine" in done.stderr


def test_the_page_shows_the_figures_of_its_file():
    facts = json.loads(report.ROWS.read_text())
    assert report.RESULTS.read_text() == report.text(facts)
    assert set(facts["parts"]) == set(PARTS)
    assert set(facts["parts"]["threads"]) == {str(n) for n in THREADS}
    for name in (report.TIME, report.MEMORY):
        assert f"]({name})" in (FOLDER / "speed.md").read_text()
        assert set(SERIES) <= texts(FOLDER / name)

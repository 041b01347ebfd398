"""The comparison with other frameworks: all rows of Kinnor at tiny sizes, and the report made from rows."""

import csv
import json
import math
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches.peers import published, report  # noqa: E402
from benches.peers.contenders import Row, installed  # noqa: E402
from benches.peers.workloads import WORKLOADS  # noqa: E402


def row(framework, form, ms, losses=(1.0, 0.5, 0.25)):
    """Returns a row of measurements of one framework."""
    return Row("net", 2, framework, form, list(losses), [ms, 100 * ms, ms], [2 * ms], 10, 15)


ROWS = [
    ("kinnor", "static", 2.0),
    ("kinnor", "static, named", 3.0),
    ("kinnor", "dynamic", 4.0),
    ("torch", "eager", 8.0),
    ("torch", "compile", 5.0),
    ("jax", "jit", 1.0),
]
"""Results of one benchmark: library, mode and time of a step."""


def test_quick_run(tmp_path):
    """The comparison runs at tiny sizes, and all forms of a workload have equal losses."""
    done = subprocess.run(
        [sys.executable, "-m", "benches.peers", "--quick", "--output", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "void" not in done.stdout
    rows = json.loads((tmp_path / "peers.json").read_text())["rows"]
    assert {r["workload"] for r in rows} == set(WORKLOADS)
    for workload in WORKLOADS:
        losses = [r["losses"] for r in rows if r["workload"] == workload]
        assert len(losses) == 4
        # Neither the mode nor a reader of values may change a number.
        assert losses == losses[:1] * 4
    assert (tmp_path / "peers-1.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (tmp_path / "peers-1.svg").read_text() and "<svg" in (tmp_path / "memory-1.svg").read_text()
    with (tmp_path / "peers.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["workload"] for line in lines] == [r["workload"] for r in rows]
    assert all(float(line["ms"]) > 0 and float(line["peak_mib"]) > 0 for line in lines)
    assert (tmp_path / "peers.md").read_text().count("| mlp 64 ") == 6


def test_mixed_precision_runs_with_losses_near_those_of_float32(tmp_path):
    found = {}
    for dtype in ("float32", "bfloat16"):
        command = ["-m", "benches.peers", "--quick", "--dtype", dtype, "--output", tmp_path / dtype]
        only = ["--only", "mlp 64", "lenet", "transformer"]
        done = subprocess.run([sys.executable, *command, *only], cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0 and "void" not in done.stdout, done.stdout + done.stderr
        rows = json.loads((tmp_path / dtype / "peers.json").read_text())["rows"]
        assert {r["dtype"] for r in rows} == {dtype}
        found[dtype] = [r["losses"] for r in rows]
    assert found["float32"] != found["bfloat16"]
    for a, b in zip(*found.values(), strict=True):
        assert report.agree(a, b, "bfloat16")


def test_without_peers_it_says_how_to_get_some(tmp_path):
    """Without other frameworks, the comparison fails and names the command that installs them."""
    assert installed(tmp_path / "python") == []
    command = [sys.executable, "-m", "benches.peers", "--python", tmp_path / "python"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "make peers" in done.stderr


def test_the_fastest_peer_with_equal_losses_counts():
    rows = [row(*r) for r in ROWS]
    static, dynamic = report.compare(rows, is_small_work=False)
    assert static.peer.who == "jax jit" and static.ratio == 2.0 and static.cpu_ratio == 2.0
    assert static.names_cost == 1.5 and static.is_target
    assert dynamic.peer.who == "torch eager" and dynamic.ratio == 0.5
    assert math.isnan(dynamic.names_cost) and not dynamic.is_target

    rows[-1].losses[2] *= 1.002
    assert report.void(rows) == [rows[-1]] and "1.0, 0.5" in rows[-1].failure
    assert report.compare(rows, is_small_work=True)[0].peer.who == "torch compile"


def test_conclusion():
    """The text names the ratio to the fastest peer and the workloads above the limits."""
    rows = [row(*r) for r in ROWS]
    text = report.conclusion(report.compare(rows, is_small_work=True), 2)
    assert "2 threads: geomean of ratio to fastest peer 1.00" in text
    assert "above 1.0: net static 2.00\n" in text
    assert "names cost more than 1.3: net static 1.50" in text


def test_published_results_have_figures_of_time_and_memory(tmp_path):
    page = tmp_path / "speed.md"
    page.write_text(f"before\n\n{published.BEGIN}\nold\n{published.END}\n\nafter\n")
    rows = [row(*r) for r in ROWS]
    published.write(report.compare(rows, is_small_work=True), 2, tmp_path, tmp_path / "peers.json")
    text = page.read_text()
    assert text.startswith("before\n\n<!--") and text.endswith("-->\n\nafter\n") and "old" not in text
    facts = json.loads((tmp_path / "peers.json").read_text())
    assert [(r["workload"], r["time"], r["memory"]) for r in facts["rows"]] == [
        ("net", [2.0], [15, 15]),
        ("net, dynamic", [0.5], [15, 15]),
    ]
    assert re.fullmatch(r"\d+ [A-Z][a-z]+ \d{4}", facts["date"]) and "cores" in facts["machine"]
    assert "| net, dynamic | 0.50 |  15 |         15 |" in text and "Geometric mean: 1.00." in text
    for name in (published.TIME, published.MEMORY):
        assert f"]({name})" in text
        drawn = ElementTree.parse(tmp_path / name)
        assert {"net", "net, dynamic"} <= {each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")}
    facts["rows"][0] |= {"time": [None], "memory": None}
    facts["rows"][1]["memory"] = None
    (tmp_path / "peers.json").write_text(json.dumps(facts))
    published.publish(tmp_path, tmp_path / "peers.json")
    assert not (tmp_path / published.MEMORY).exists() and "memory" not in page.read_text()
    assert "Geometric mean: 0.50." in page.read_text()


def test_the_page_about_speed_shows_the_rows_of_its_file():
    facts = json.loads(published.ROWS.read_text())
    page = (published.FOLDER / "speed.md").read_text()
    figures = [name for name in (published.TIME, published.MEMORY) if (published.FOLDER / name).exists()]
    assert published.text(facts, figures) in page
    drawn = (published.FOLDER / published.TIME).read_text()
    assert all(f">{r['workload']}</text>" in drawn for r in facts["rows"])


def test_publishing_needs_peers():
    """`benches.peers --publish` fails if no peer is installed."""
    command = [sys.executable, "-m", "benches.peers", "--publish", "--quick"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0 and "--publish: expected peers" in done.stderr


@pytest.mark.parametrize("name", WORKLOADS)
def test_channels_last_has_the_same_weights(name):
    """The channels-last form of a workload has the same weights and inputs, transposed."""
    first = WORKLOADS[name](True)
    last = first.channels_last()
    for key, w in first.weights.items():
        assert w.size == last.weights[key].size
        assert float(abs(w).sum()) == pytest.approx(float(abs(last.weights[key]).sum()), rel=1e-5)
    for (x, _), (y, _) in zip(first.batches, last.batches, strict=True):
        assert (x if x.ndim != 4 else x.transpose(0, 2, 3, 1)).tolist() == y.tolist()

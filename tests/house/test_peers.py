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

from benches.peers import on_kinnor, published, report  # noqa: E402
from benches.peers.contenders import PREDICTION, Contender, Row, able, forms, installed  # noqa: E402
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


def test_quick_prediction(tmp_path):
    """All forms of a workload have the same outputs, and no losses."""
    names = ["mlp 64", "lenet", "transformer", "lstm", "separable"]
    command = ["-m", "benches.peers", "--quick", "--predict", "--output", tmp_path, "--only", *names]
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "void" not in done.stdout, done.stdout + done.stderr
    rows = json.loads((tmp_path / "peers.json").read_text())["rows"]
    assert {r["workload"] for r in rows} == set(names) and {r["task"] for r in rows} == {PREDICTION}
    for workload in names:
        outputs = [r["outputs"] for r in rows if r["workload"] == workload]
        assert len(outputs) == 4 and outputs == outputs[:1] * 4
        assert len(set(outputs[0])) > 3 and all(map(math.isfinite, outputs[0]))
    assert not any(r["losses"] for r in rows)
    assert (tmp_path / "peers.md").read_text().startswith("# Predictions in float32 beside peers\n")


def predicted(framework, name, file=None):
    """Returns the row of a framework that predicts the small form of a workload."""
    (form, *_) = forms(framework, WORKLOADS[name](True), with_compile=False)
    contender = Contender(Row(name, 1, framework, form, task=PREDICTION), is_small=True, file=file)
    contender.start()
    contender.measure(0.0)
    contender.finish()
    return contender.row


@pytest.mark.parametrize("name", ["resnet-20", "text"])
def test_onnxruntime_predicts_the_same_from_the_exported_file(name, tmp_path):
    """Its outputs equal Kinnor's. A file with one other weight makes its row void."""
    workload = WORKLOADS[name](True).for_prediction()
    on_kinnor.export(workload, tmp_path / "network.onnx")
    ours, theirs = predicted("kinnor", name), predicted("onnxruntime", name, tmp_path / "network.onnx")
    assert theirs.wall[0] > 0 and not report.void([ours, theirs])
    last = next(key for key in reversed(workload.weights) if key.endswith(".w"))
    workload.weights[last] = workload.weights[last] * 1.01
    on_kinnor.export(workload, tmp_path / "network.onnx")
    theirs = predicted("onnxruntime", name, tmp_path / "network.onnx")
    assert report.void([ours, theirs]) == [theirs] and "outputs" in theirs.failure


def test_outputs_agree_within_a_share_of_the_largest():
    assert report.agree([1e-5, 2.0], [0.0, 2.0], are_outputs=True) and not report.agree([1e-5, 2.0], [0.0, 2.0])
    assert not report.agree([3e-3, 2.0], [0.0, 2.0], are_outputs=True)
    assert not report.agree([math.nan], [1.0], are_outputs=True) and not report.agree([], [1.0], are_outputs=True)


def test_peers_take_part_in_what_they_can_do():
    assert able("onnxruntime", PREDICTION, "float32") and not able("onnxruntime", "training", "float32")
    assert able("jax", "training", "float32") and not able("jax", PREDICTION, "bfloat16")
    assert able("torch", PREDICTION, "bfloat16")


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
    (facts,) = json.loads((tmp_path / "peers.json").read_text())
    assert [(r["workload"], r["time"], r["memory"]) for r in facts["rows"]] == [
        ("net", [2.0], [15, 15]),
        ("net, dynamic", [0.5], [15, 15]),
    ]
    assert re.fullmatch(r"\d+ [A-Z][a-z]+ \d{4}", facts["date"]) and "cores" in facts["machine"]
    assert "| net, dynamic | 0.50 |  15 |         15 |" in text and "Geometric mean: 1.00." in text
    for name in published.names(facts, of_first=True):
        assert f"]({name})" in text
        drawn = ElementTree.parse(tmp_path / name)
        assert {"net", "net, dynamic"} <= {each.text for each in drawn.iter("{http://www.w3.org/2000/svg}text")}
    facts["rows"][0] |= {"time": [None], "memory": None}
    facts["rows"][1]["memory"] = None
    (tmp_path / "peers.json").write_text(json.dumps([facts]))
    published.publish(tmp_path, tmp_path / "peers.json")
    assert not (tmp_path / "speed-memory.svg").exists() and "memory" not in page.read_text()
    assert "Geometric mean: 0.50." in page.read_text()


def test_a_task_a_type_and_a_machine_have_a_section_each(tmp_path):
    """Publishing replaces the section of the same kind, and leaves the others."""
    page, file = tmp_path / "speed.md", tmp_path / "peers.json"
    page.write_text(f"{published.BEGIN}{published.END}")
    for task, dtype, ms in (("training", "float32", 2.0), (PREDICTION, "bfloat16", 3.0), ("training", "float32", 4.0)):
        rows = [row("kinnor", "static", ms), row("torch", "eager", 1.0)]
        for each in rows:
            each.task, each.dtype = task, dtype
        published.write(report.compare(rows, is_small_work=True), 2, tmp_path, file)
    assert [r["rows"][0]["time"] for r in json.loads(file.read_text())] == [[4.0], [3.0]]
    assert published.runs_of(file)[0]["rows"][0]["time"] == [4.0]
    text = page.read_text()
    assert text.index("## Training in float32: ") < text.index("## Prediction in bfloat16: ")
    shown = re.findall(r"\]\((.*)\)", text)
    assert len(shown) == len(set(shown)) == 4 and all((tmp_path / name).exists() for name in shown)


def test_the_page_about_speed_shows_the_rows_of_its_file():
    page = (published.FOLDER / "speed.md").read_text()
    runs = json.loads(published.ROWS.read_text())
    for facts in runs:
        figures = [name for name in published.names(facts, facts is runs[0]) if (published.FOLDER / name).exists()]
        assert published.text(facts, figures) in page
        drawn = (published.FOLDER / figures[0]).read_text()
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

"""The programs in `examples/` and in the README, run as a user runs them, on small settings."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from kinnor.datasets import digits

ROOT = Path(__file__).parents[1]
IDX_HEADERS = {3: b"\0\0\x08\x03", 1: b"\0\0\x08\x01"}


def run(*arguments, cwd):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(name, *arguments, cwd):
    return run(ROOT / "examples" / name, *arguments, cwd=cwd)


def accuracy(output):
    found = re.fullmatch(r"test accuracy (\d+\.\d\d) %", output.splitlines()[-1])
    assert found, output
    return float(found[1])


def test_demo(tmp_path):
    assert accuracy(example("demo.py", "--epochs", 5, "--output", tmp_path / "out", cwd=tmp_path)) > 94
    for picture in ("learning_curve.png", "held_out_digits.png"):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "lenet.safetensors").stat().st_size > 50_000
    assert len((tmp_path / "out" / "held-out-error.series.txt").read_text().splitlines()) == 5


def test_digits_dynamic(tmp_path):
    assert accuracy(example("digits_dynamic.py", "--epochs", 4, cwd=tmp_path)) > 92


def test_lenet_on_idx_files(tmp_path):
    images, labels = digits()
    for part, which in {"train": slice(1500), "t10k": slice(1500, None)}.items():
        for name, array in {"images-idx3": np.rint(images[which, 0] * 255), "labels-idx1": labels[which]}.items():
            content = IDX_HEADERS[array.ndim] + np.array(array.shape, ">u4").tobytes() + array.astype("u1").tobytes()
            (tmp_path / f"{part}-{name}-ubyte").write_bytes(content)
    assert accuracy(example("lenet_idx.py", "--data", tmp_path, "--epochs", 5, cwd=tmp_path)) > 80


def test_unlinked_backward_prints_what_the_original_does(tmp_path):
    lines = example("unlinked_backward.py", cwd=tmp_path).splitlines()
    numbers = [np.array(re.findall(r"[\d.e-]+", line.partition(":")[2]), np.float64) for line in lines]
    once = [0.00539637, 0.00770839, 0.0090611]
    twice = [0.01079273, 0.01541678, 0.0181222]
    ignored = [17.795254, 23.960905, 25.51168]
    for got, expected in zip(numbers, [once, twice, [0, 0, 0], ignored, once], strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5)


def test_edit_graph(tmp_path):
    assert example("edit_graph.py", cwd=tmp_path).splitlines() == [
        "functions, inputs first:",
        "  Convolution [(1, 3, 16, 16), (16, 3, 3, 3)]",
        "  AveragePooling [(1, 16, 16, 16)]",
        "  Affine [(1, 16, 1, 1), (16, 10), (10,)]",
        "has pooling: True",
        "has pooling: False",
        "functions below ya after rewiring:",
        *["  Affine", "  Tanh"] * 3,
        "gradient has reached xb: True",
        "run for both: Affine, ReLU, Affine, Affine",
    ]


def test_truncated_bptt(tmp_path):
    losses = re.findall(r"loss ([\d.]+)", example("truncated_bptt.py", "--pieces", 200, cwd=tmp_path))
    assert float(losses[-1]) < 0.002 < float(losses[0])


def test_frozen_network(tmp_path):
    output = example("frozen_network.py", "--steps", 50, cwd=tmp_path)
    assert accuracy(output) > 70
    states = dict(re.findall(r"^(\w+)/.*: (\w+)$", output, re.MULTILINE))
    assert states == {"frozen": "unchanged", "trained": "trained"}


def test_readme(tmp_path):
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert programs
    for program in programs:
        loss = re.search(r"loss (\S+)", run("-c", program, cwd=tmp_path))
        assert float(loss[1]) < 0.5

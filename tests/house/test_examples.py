"""Runs the programs in `examples/` and in the README as a user would, with small settings."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff
from kinnor.datasets import digits

ROOT = Path(__file__).parents[2]
IDX_HEADERS = {3: b"\0\0\x08\x03", 1: b"\0\0\x08\x01"}
"""The first bytes of IDX files of 8-bit images and labels, by the number of axes."""


def run(*arguments, cwd):
    """Runs a Python program in a folder. Returns its output."""
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
    """Runs an example."""
    return run(ROOT / "examples" / name, *arguments, cwd=cwd)


def accuracy(output):
    """Returns the accuracy that a program prints last."""
    found = re.fullmatch(r"test accuracy (\d+\.\d\d) %", output.splitlines()[-1])
    assert found, output
    return float(found[1])


def test_demo(tmp_path):
    """The demo reaches its accuracy, and writes its images, parameters and series."""
    assert accuracy(example("demo.py", "--epochs", 5, "--output", tmp_path / "out", cwd=tmp_path)) > 94
    for picture in ("learning_curve.png", "held_out_digits.png"):
        assert (tmp_path / "out" / picture).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "out" / "lenet.safetensors").stat().st_size > 50_000
    assert len((tmp_path / "out" / "held-out-error.series.txt").read_text().splitlines()) == 5


def test_digits_dynamic(tmp_path):
    """The eager example learns the digits."""
    assert accuracy(example("digits_dynamic.py", "--epochs", 4, cwd=tmp_path)) > 92


def test_lenet_on_idx_files(tmp_path):
    """The example of LeNet on IDX files learns the digits."""
    images, labels = digits()
    for part, which in {"train": slice(1500), "t10k": slice(1500, None)}.items():
        for name, array in {"images-idx3": np.rint(images[which, 0] * 255), "labels-idx1": labels[which]}.items():
            content = IDX_HEADERS[array.ndim] + np.array(array.shape, ">u4").tobytes() + array.astype("u1").tobytes()
            (tmp_path / f"{part}-{name}-ubyte").write_bytes(content)
    assert accuracy(example("lenet_idx.py", "--data", tmp_path, "--epochs", 5, cwd=tmp_path)) > 80


def test_unlinked_backward_prints_the_same_as_the_original(tmp_path):
    lines = example("unlinked_backward.py", cwd=tmp_path).splitlines()
    numbers = [np.array(re.findall(r"[\d.e-]+", line.partition(":")[2]), np.float64) for line in lines]
    once = [0.00539637, 0.00770839, 0.0090611]
    twice = [0.01079273, 0.01541678, 0.0181222]
    ignored = [17.795254, 23.960905, 25.51168]
    for got, expected in zip(numbers, [once, twice, [0, 0, 0], ignored, once], strict=True):
        np.testing.assert_allclose(got, expected, rtol=2e-5)


def test_edit_graph(tmp_path):
    """The example that edits a graph prints the expected functions."""
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
    """The example of truncated backpropagation learns."""
    losses = re.findall(r"loss ([\d.]+)", example("truncated_bptt.py", "--pieces", 200, cwd=tmp_path))
    assert float(losses[-1]) < 0.002 < float(losses[0])


def test_frozen_network(tmp_path):
    """The example of a frozen network trains only the other layers."""
    output = example("frozen_network.py", "--steps", 50, cwd=tmp_path)
    assert accuracy(output) > 70
    states = dict(re.findall(r"^(\w+)/.*: (\w+)$", output, re.MULTILINE))
    assert states == {"frozen": "unchanged", "trained": "trained"}


def test_readme(tmp_path):
    """Each program of the README has at most ten lines that are not empty, and its loss falls."""
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert programs
    for program in programs:
        assert len([line for line in program.splitlines() if line]) <= 10
        losses = [float(loss) for loss in re.findall(r"(?<!_)loss ([\d.]+)", run("-c", program, cwd=tmp_path))]
        assert losses[-1] < 0.5 < losses[0]


def loaded(name):
    """Imports an example as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gradient_penalty(tmp_path):
    """The example of a gradient penalty learns the distance of two distributions."""
    found = re.fullmatch(r"distance (\S+), penalty (\S+)\n", example("gradient_penalty.py", cwd=tmp_path))
    assert 1.7 < float(found[1]) < 2.3 and float(found[2]) < 0.1


def test_the_penalty_of_a_linear_critic():
    """The gradient of `x @ w` by `x` is `w`. So the penalty is (|w| - 1)², with gradient 2 (|w| - 1) w / |w|."""
    w = nn.Variable.from_numpy_array(np.array([[3.0], [4.0]], np.float32), need_grad=True)
    points = np.random.RandomState(0).normal(size=(3, 5, 2)).astype(np.float32)
    with nn.auto_forward():
        penalty = loaded("gradient_penalty").gradient_penalty(lambda x: F.affine(x, w), *points[:2], points[2, :, :1])
        autodiff.backward(penalty)
    assert penalty.item() == pytest.approx(16, rel=1e-5)
    np.testing.assert_allclose(w.g, [[8 * 3 / 5], [8 * 4 / 5]], rtol=1e-5)


def test_hessian_vector_product(tmp_path):
    """The example with Hessian-vector products finds the minimum."""
    output = example("hessian_vector_product.py", cwd=tmp_path)
    assert output.splitlines()[-1] == "minimum: [1. 1. 1. 1.]"


def test_products_with_the_hessian_of_a_quadratic_form():
    """The example of products with a Hessian gives gradient and products of a quadratic form exactly."""
    module, rng = loaded("hessian_vector_product"), np.random.RandomState(0)
    root, b, v = rng.normal(size=(5, 5)), rng.normal(size=5), rng.normal(size=5)
    a = root @ root.T + np.eye(5)

    def f(x):
        """A quadratic form whose Hessian is `a`."""
        row = F.reshape(x, (1, 5))
        ax = F.affine(row, nn.Variable.from_numpy_array(a))
        return 0.5 * F.sum(row * ax) - F.sum(x * nn.Variable.from_numpy_array(b))

    g, times_hessian = module.differentiated(f, np.ones(5))
    np.testing.assert_allclose(g, a @ np.ones(5) - b, rtol=1e-12)
    np.testing.assert_allclose(times_hessian(v), a @ v, rtol=1e-12)
    np.testing.assert_allclose(module.minimize(f, np.ones(5)), np.linalg.solve(a, b), rtol=1e-8)


def test_maml(tmp_path):
    """Meta-learning lowers the loss after one inner step."""
    first, last = example("maml.py", cwd=tmp_path).splitlines()
    before, after = re.fullmatch(r"loss after one inner step: (\S+) at first, (\S+) in the end", first).groups()
    assert float(after) < 0.2 * float(before)
    np.testing.assert_allclose([float(n) for n in re.findall(r"-?\d+\.?\d*", last)], [3, -1], atol=0.5)


def test_the_meta_gradient_of_a_line():
    """θ' = θ - α g(θ). The gradient through it is (I - α H) g'(θ'), with H = xᵀx / n."""
    module, rate = loaded("maml"), 0.3
    (x, y), (x_test, y_test) = task = module.line(np.random.RandomState(3))
    values = np.array([[0.5], [2.0]])
    with nn.auto_forward(), nn.context_scope(nn.Context(["cpu:double"])):
        value, g = module.meta_gradient(nn.Variable.from_numpy_array(values, need_grad=True), task, rate)
    n, n_test = len(x), len(x_test)
    after = values - rate * x.T @ (x @ values - y) / n
    error = x_test @ after - y_test
    assert value == pytest.approx(0.5 * np.mean(error**2), rel=1e-12)
    expected = (np.eye(2) - rate * x.T @ x / n) @ (x_test.T @ error / n_test)
    np.testing.assert_allclose(g, expected, rtol=1e-10)

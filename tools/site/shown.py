"""Pages that the library draws of one network: its graph, the memory of a step, and a profile.

The site shows them inside its own pages.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.solvers as S


class Block(nn.Module):
    """Two layers beside a connection that skips them."""

    def __init__(self, width: int) -> None:
        self.norm, self.up, self.down = L.LayerNorm(width), L.Linear(width, 4 * width), L.Linear(4 * width, width)

    def call(self, x: nn.Variable) -> nn.Variable:
        """Computes the block."""
        return x + self.down(F.relu(self.up(self.norm(x))))


def all_shown() -> dict[str, str]:
    """Returns the pages by name, as HTML."""
    nn.seed(0)
    network = L.Sequential(
        ("conv", L.Conv2d(1, 16, 3, padding=1)),
        ("norm", L.BatchNorm2d(16)),
        ("relu", L.ReLU()),
        ("pool", L.MaxPool2d(2)),
        ("flat", L.Flatten()),
        ("block", Block(256)),
        ("head", L.Linear(256, 10)),
    )
    rng = np.random.default_rng(0)
    x = nn.Variable.from_numpy_array(rng.normal(size=(64, 1, 8, 8)).astype(np.float32))
    t = nn.Variable.from_numpy_array(rng.integers(10, size=(64, 1)))
    loss = F.mean(F.softmax_cross_entropy(network(x), t))
    solver = S.Adam()
    solver.set_parameters(network)

    def step() -> None:
        """Runs a training step."""
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()

    step()  # the first one plans the graph and allocates memory
    with nn.profile() as profile:
        for _ in range(5):
            step()
    drawn = {
        "graph": nn.show(loss, parameters=network.get_parameters(), title="A network"),
        "plan": nn.plan_report(loss),
        "profile": profile,
    }
    pages = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, picture in drawn.items():
            path = Path(folder) / f"{name}.html"
            picture.save(path)
            pages[name] = path.read_text().replace(str(Path(__file__)), "train.py")
    return pages

"""A training program with annotations, which type checkers accept in their strict modes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor import autodiff
from kinnor.datasets import digits
from kinnor.learning_rate_scheduler import CosineScheduler
from kinnor.utils.data_iterator import data_iterator_simple

if TYPE_CHECKING:
    import numpy.typing as npt


class Net(nn.Module):
    """Two layers."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.n = n

    def call(self, x: nn.Variable) -> nn.Variable:
        """Returns scores."""
        h = F.relu(PF.affine(x, self.n, name="a"))
        return PF.affine(h, 10, name="b")


class Reader(nn.Module):
    """A recurrent network whose call has the types of its `call`."""

    def __init__(self) -> None:
        self.embed, self.lstm, self.out = L.Embedding(10, 4), L.LSTM(4, 8, batch_first=True), L.Linear(8, 2)

    def call(self, tokens: nn.Variable, last: bool = False) -> tuple[nn.Variable, int]:
        """Returns scores of all steps or of the last, and the number of steps."""
        h, (state, _) = self.lstm(self.embed(tokens))
        return self.out(state if last else h), tokens.shape[1]


def read() -> tuple[tuple[int, ...], int]:
    """Returns the shape of the scores, and the number of steps."""
    scores, steps = Reader()(nn.Variable((3, 5)), last=True)
    return scores.shape, steps


def small(x: nn.Variable) -> nn.Variable:
    """Returns scores of a convolutional network, with numbers in place of tuples."""
    h = F.max_pooling(F.relu(PF.convolution(x, 4, 3, pad=1, stride=1)), 2)
    h = PF.batch_normalization(h, batch_stat=True)
    return PF.affine(F.dropout(h, 0.5), 10)


def train(images: npt.NDArray[np.float32], labels: npt.NDArray[np.int32], folder: Path) -> float:
    """Trains for a few steps with a schedule, and saves a checkpoint. Returns the loss."""
    net = Net(32)
    x, t = nn.Variable((64, 64)), nn.Variable((64, 1))
    loss = F.mean(F.softmax_cross_entropy(net(x), t))
    solver = S.Adam(alpha=1e-3)
    solver.set_parameters(net.get_parameters())
    schedule = CosineScheduler(1e-3, 100)
    with data_iterator_simple(lambda i: (images[i], labels[i : i + 1]), len(images), 64, shuffle=True) as batches:
        for step in range(20):
            x.d, t.d = batches.next()
            solver.set_learning_rate(schedule.get_learning_rate(step))
            loss.forward(clear_no_need_grad=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            solver.weight_decay(1e-4)
            solver.update()
    nn.save_checkpoint(folder / "step", parameters=net.get_parameters(), solvers={"adam": solver})
    return loss.item()


def fit(images: npt.NDArray[np.float32], labels: npt.NDArray[np.int32]) -> float:
    """Trains layers with metrics and a callback. Returns the last loss."""
    network = L.Sequential(L.Linear(64, 16), L.ReLU(), L.Dropout(0.1), L.Linear(16, 10))

    def note(run: nn.training.Run) -> None:
        """Ends the training after the second epoch."""
        if run.epoch == 2:
            run.stop()

    history = nn.fit(
        network, (images, labels), "cross_entropy", solver=S.Adam(), epochs=3, validation=(images, labels),
        metrics={"right": "accuracy"}, callbacks=[note, nn.training.EarlyStopping(patience=2)], verbose=False,
    )  # fmt: skip
    values: list[float] = history.series("val_loss")
    return values[-1]


def gradients() -> tuple[float, npt.NDArray[np.float32]]:
    """Returns a value and its gradient, of functions that run as they are built."""
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
    with nn.auto_forward():
        y = (x * 2.0 + np.ones(2, np.float32))[0] ** 2 + F.sum(x).reshape(1)
        (g,) = autodiff.grad(F.sum(y), [x])
        with nn.no_grad():
            mean: float = (x.mean() + x.T.sum()).item()
    values: npt.NDArray[np.float32] = g.d
    return mean, values


def models(folder: Path) -> tuple[int, ...]:
    """Returns the shape of what a saved model gives."""
    x = nn.Variable((1, 1, 8, 8))
    y = small(x)
    nn.save(folder / "net.nnp", {"y": y}, inputs={"x": x})
    nn.onnx.save({"y": y}, folder / "net.onnx", inputs={"x": x})
    model = nn.load(folder / "net.nnp")
    shape: tuple[int, ...] = model(np.zeros((3, 1, 8, 8), np.float32)).shape
    found = nn.load_parameters(folder / "net.nnp")
    names: list[str] = found.matched
    print(names, nn.plan_report(F.mean(y)))
    return shape


def main(folder: Path) -> None:
    """Runs everything."""
    images, labels = digits()
    images = images.reshape(len(images), -1)
    with nn.profile() as profile:
        loss = train(images, labels, folder)
    print(profile, loss, fit(images, labels), gradients(), read(), models(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

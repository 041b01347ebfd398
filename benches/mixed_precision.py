"""Accuracy and memory of training in float32, bfloat16 and half, from the same seeds.

    python benches/mixed_precision.py                       # all tasks, which takes some minutes
    python benches/mixed_precision.py digits lstm --seeds 1
    python benches/mixed_precision.py --write               # also writes benches/results/mixed_precision.md

Graphs are built under `nn.autocast`, and losses in float32. Gradients of half have a dynamic scale. Accuracy is
measured on data that the network has not seen, in the type of the training. Memory is the peak of a step beyond the
parameters, gradients, states and inputs.

All data is part of the package or of Python: handwritten digits, and the language reference in `pydoc_data`.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cache
from pathlib import Path
from pydoc_data import topics
from statistics import fmean
from typing import TYPE_CHECKING

import numpy as np
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches.peers.published import machine
from benches.peers.report import table

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.solvers as S
from kinnor.datasets import digits
from kinnor.experimental.mixed_precision_training import DynamicLossScalingUpdater

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

DTYPES = ("float32", "bfloat16", "half")
FIRST_SCALE = 2.0**16
"""The scale of the gradients in the first step in half."""

RESULTS = Path(__file__).parent / "results/mixed_precision.md"


@dataclass
class Task:
    """A network and its data.

    Attributes:
        network: The module. Its output has the classes on the last axis.
        train: Inputs and labels. Labels have a last axis of size 1.
        test: The same, not seen in training.
        solver: The solver, without parameters. Its learning rate falls linearly to zero.
        batch: Samples in a step.
        steps: Number of steps.
        augment: Function of random generator and inputs that varies the inputs of a step.
    """

    network: nn.Module
    train: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    solver: S.Solver
    batch: int
    steps: int
    augment: Callable[[np.random.Generator, np.ndarray], np.ndarray] = field(default=lambda _, x: x)


@dataclass(frozen=True)
class Result:
    """Accuracy in percent, MiB of a step, last scale of gradients, and seconds of one run."""

    accuracy: float
    memory: float
    scale: float
    seconds: float


def scope(dtype: str) -> AbstractContextManager[object]:
    """Returns the context in which networks of a type are built."""
    return nullcontext() if dtype == "float32" else nn.autocast(dtype)


def run(task: Task, dtype: str, seed: int) -> Result:
    """Trains a task and returns its result."""
    begun = time.perf_counter()
    rng = np.random.default_rng(seed)
    inputs, labels = task.train
    x, t = (nn.Variable((task.batch, *array.shape[1:])) for array in task.train)
    task.network.train()
    with scope(dtype):
        y = task.network(x)
    loss = F.mean(F.softmax_cross_entropy(y, t, axis=y.ndim - 1))
    task.solver.set_parameters(task.network)
    rate = task.solver.learning_rate()

    def feed() -> None:
        """Draws the inputs of a step."""
        chosen = rng.integers(len(inputs), size=task.batch)
        x.d, t.d = task.augment(rng, inputs[chosen]), labels[chosen]

    updater = DynamicLossScalingUpdater(task.solver, loss, feed, FIRST_SCALE if dtype == "half" else 1.0)
    memory = 0
    for step in range(task.steps):
        task.solver.set_learning_rate(rate * (1 - step / task.steps))
        before = nn.memory_stats()["live"]
        nn.reset_peak_memory()
        updater.update()
        if step:  # The first one creates gradients and states.
            memory = max(memory, nn.memory_stats()["peak"] - before)
    accuracy = accuracy_of(task, dtype)
    return Result(accuracy, memory / 2**20, updater.scale, time.perf_counter() - begun)


def accuracy_of(task: Task, dtype: str) -> float:
    """Returns the share of correct labels of the test data, in percent."""
    task.network.eval()
    inputs, labels = task.test
    x = nn.Variable(inputs.shape)
    x.d = inputs
    with scope(dtype), nn.no_grad():
        y = task.network(x)
    y.forward(clear_buffer=True)
    return 100 * float(np.mean(np.asarray(y.d).argmax(-1) == labels[..., 0]))


def parted(inputs: np.ndarray, labels: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Returns training data and test data, which is every fifth sample."""
    is_test = np.arange(len(inputs)) % 5 == 4
    return (inputs[~is_test], labels[~is_test, ..., None]), (inputs[is_test], labels[is_test, ..., None])


def of_digits() -> Task:
    """LeNet on handwritten digits of 8 x 8 pixels."""
    network = L.Sequential(
        L.Conv2d(1, 32, 3, padding=1),
        L.ReLU(),
        L.MaxPool2d(2),
        L.Conv2d(32, 64, 3, padding=1),
        L.ReLU(),
        L.MaxPool2d(2),
        L.Flatten(),
        L.Linear(256, 128),
        L.ReLU(),
        L.Linear(128, 10),
    )
    return Task(network, *parted(*digits()), S.Adam(2e-3), batch=64, steps=600)


class Residual(nn.Module):
    """Two normalized convolutions and a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        self.a, self.norm_a = L.Conv2d(inputs, outputs, 3, stride, 1, bias=False), L.BatchNorm2d(outputs)
        self.b, self.norm_b = L.Conv2d(outputs, outputs, 3, 1, 1, bias=False), L.BatchNorm2d(outputs)
        self.skip = L.Sequential(L.Conv2d(inputs, outputs, 1, stride, bias=False), L.BatchNorm2d(outputs))
        self.has_skip = stride > 1

    def call(self, x: nn.Variable) -> nn.Variable:
        """Adds the convolutions to the skip connection."""
        h = self.norm_b(self.b(F.relu(self.norm_a(self.a(x)))))
        return F.relu(h + (self.skip(x) if self.has_skip else x))


def resnet_20() -> Task:
    """ResNet-20 on the digits, enlarged to 16 x 16 pixels and shifted by up to two of them."""
    images, labels = digits()

    def shifted(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
        """Shifts all images of a batch."""
        return np.roll(x, rng.integers(-2, 3, size=2), axis=(2, 3))

    blocks = [
        Residual(16 << max(stage - (block == 0), 0), 16 << stage, 2 if stage and not block else 1)
        for stage in range(3)
        for block in range(3)
    ]
    network = L.Sequential(
        L.Conv2d(1, 16, 3, padding=1, bias=False),
        L.BatchNorm2d(16),
        L.ReLU(),
        *blocks,
        L.GlobalAvgPool(),
        L.Flatten(),
        L.Linear(64, 10),
    )
    large = images.repeat(2, axis=2).repeat(2, axis=3)
    return Task(network, *parted(large, labels), S.Momentum(0.05), batch=64, steps=200, augment=shifted)


class Block(nn.Module):
    """A transformer block with normalization first."""

    def __init__(self, width: int, heads: int, is_causal: bool) -> None:
        self.heads, self.is_causal = heads, is_causal
        self.norm1, self.norm2 = L.LayerNorm(width), L.LayerNorm(width)
        self.query, self.key, self.value = (L.Linear(width, width) for _ in range(3))
        self.projection = L.Linear(width, width)
        self.up, self.down = L.Linear(width, 4 * width), L.Linear(4 * width, width)

    def split(self, x: nn.Variable) -> nn.Variable:
        """Divides the last axis among the heads."""
        batch, length, width = x.shape
        return F.transpose(F.reshape(x, (batch, length, self.heads, width // self.heads)), (0, 2, 1, 3))

    def call(self, x: nn.Variable) -> nn.Variable:
        """Adds attention and a perceptron, each to its input."""
        h = self.norm1(x)
        q, k, v = (self.split(layer(h)) for layer in (self.query, self.key, self.value))
        h = F.scaled_dot_product_attention(q, k, v, causal=self.is_causal)
        x = x + self.projection(F.reshape(F.transpose(h, (0, 2, 1, 3)), x.shape))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):
    """Embeddings and blocks, and a linear layer with `outputs` numbers for each token.

    Attributes:
        classifier: A layer that replaces the linear one, and reads the mean of all tokens.
    """

    def __init__(self, vocabulary: int, length: int, outputs: int, is_causal: bool) -> None:
        width, heads = 64, 4
        self.tokens, self.positions = L.Embedding(vocabulary, width), L.Embedding(length, width)
        self.blocks = L.Sequential(*(Block(width, heads, is_causal) for _ in range(2)))
        self.norm, self.head = L.LayerNorm(width), L.Linear(width, outputs)
        self.classifier: nn.Module | None = None

    def call(self, tokens: nn.Variable) -> nn.Variable:
        """Returns numbers of each token, or of a passage if there is a classifier."""
        h = self.tokens(tokens) + self.positions(F.arange(0, tokens.shape[1]))
        h = self.norm(self.blocks(h))
        return self.head(h) if self.classifier is None else self.classifier(F.mean(h, axis=1))


def windows(numbers: np.ndarray, length: int) -> np.ndarray:
    """Returns the parts of a sequence, one after the other."""
    return numbers[: len(numbers) // length * length].reshape(-1, length)


def language_model() -> Task:
    """GPT with two blocks that predicts the next character of a text."""
    text = "".join(topics.topics[name] for name in sorted(topics.topics))
    characters = sorted(set(text))
    place = {character: i for i, character in enumerate(characters)}
    pieces = windows(np.array([place[character] for character in text], np.int32), 65)
    train, test = parted(pieces[:, :-1], pieces[:, 1:])
    network = Transformer(len(characters), 64, len(characters), is_causal=True)
    solver = S.Adam(3e-3)
    return Task(network, train, tuple(array[:200] for array in test), solver, batch=16, steps=1000)


N_WORDS, WINDOW, MASK = 2000, 32, 1


@cache
def words() -> tuple[np.ndarray, np.ndarray]:
    """Returns windows of words of the eight longest topics, as numbers, and the topic of each window."""
    longest = sorted(topics.topics, key=lambda name: (-len(topics.topics[name]), name))[:8]
    texts = [re.findall(r"\w+|[^\w\s]", topics.topics[name]) for name in longest]
    found, counts = np.unique([word for text in texts for word in text], return_counts=True)
    frequent = found[np.argsort(-counts, kind="stable")][: N_WORDS - 2]
    number = {word: i for i, word in enumerate(frequent, start=2)}  # 0: other words, 1: the mask
    parts = [windows(np.array([number.get(word, 0) for word in text], np.int32), WINDOW) for text in texts]
    labels = np.concatenate([np.full(len(part), topic, np.int32) for topic, part in enumerate(parts)])
    return np.concatenate(parts), labels


@cache
def pretrained(seed: int) -> dict[str, np.ndarray]:
    """Returns parameters that were trained in float32 to predict masked words."""
    nn.seed(seed)
    pieces, _ = words()

    def masked(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
        """Masks a seventh of the words."""
        return np.where(rng.random(x.shape) < 1 / 7, MASK, x)

    network = Transformer(N_WORDS, WINDOW, N_WORDS, is_causal=False)
    data = (pieces, pieces[..., None])
    run(Task(network, data, (data[0][:8], data[1][:8]), S.Adam(2e-3), 32, 400, masked), "float32", seed)
    return {name: parameter.d.copy() for name, parameter in network.named_parameters()}


def bert(seed: int) -> Task:
    """BERT with two blocks, trained to predict masked words, and then to classify passages by topic."""
    values = pretrained(seed)
    nn.seed(seed)
    network = Transformer(N_WORDS, WINDOW, N_WORDS, is_causal=False)
    for name, parameter in network.named_parameters():
        parameter.d = values[name]
    network.classifier = L.Linear(64, 8)
    return Task(network, *parted(*words()), S.AdamW(2e-3, wd=2e-5), batch=32, steps=400)


class Lstm(nn.Module):
    """An LSTM and a classifier of its last output."""

    def __init__(self) -> None:
        self.cell, self.affine = L.LSTM(8, 64, batch_first=True), L.Linear(64, 10)

    def call(self, x: nn.Variable) -> nn.Variable:
        """Returns a number for each class."""
        y, _ = self.cell(x)
        return self.affine(y[:, -1])


def lstm() -> Task:
    """LSTM that reads digits row by row."""
    images, labels = digits()
    return Task(Lstm(), *parted(images[:, 0], labels), S.Adam(5e-3), batch=64, steps=600)


TASKS: dict[str, tuple[str, Callable[[int], Task]]] = {
    "digits": ("LeNet on digits", lambda _: of_digits()),
    "resnet": ("ResNet-20 on digits", lambda _: resnet_20()),
    "characters": ("GPT, next character", lambda _: language_model()),
    "bert": ("BERT, fine-tuned to name topics", bert),
    "lstm": ("LSTM on rows of digits", lambda _: lstm()),
}
"""Titles, and functions of a seed."""


def spread(numbers: list[float]) -> str:
    """Returns the mean, the smallest and the largest of some numbers."""
    return f"{fmean(numbers):.1f} ({min(numbers):.1f} to {max(numbers):.1f})"


def report(found: dict[tuple[str, str], list[Result]]) -> str:
    """Returns the table of all results. Rows are tasks."""
    head = ["Task", *(f"Accuracy in {dtype}" for dtype in DTYPES), *(f"MiB in {dtype}" for dtype in DTYPES)]
    lines = []
    for task in dict.fromkeys(task for task, _ in found):
        runs = [found[task, dtype] for dtype in DTYPES]
        accuracies = [spread([result.accuracy for result in each]) for each in runs]
        lines.append([TASKS[task][0], *accuracies, *(f"{each[0].memory:.1f}" for each in runs)])
    return table(head, lines)


def main() -> None:
    """Trains and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="tasks; all by default")
    parser.add_argument("--seeds", type=int, default=3, help="number of runs of each task and type")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    options = parser.parse_args()
    if set(options.tasks) - set(TASKS):
        parser.error(f"expected tasks of {', '.join(TASKS)}, got {' '.join(options.tasks)}")
    nn.set_num_threads(options.threads)
    found: dict[tuple[str, str], list[Result]] = {}
    for task in tqdm(options.tasks, disable=None):
        for seed in range(options.seeds):
            for dtype in DTYPES:
                nn.seed(seed)
                result = run(TASKS[task][1](seed), dtype, seed)
                found.setdefault((task, dtype), []).append(result)
                print(f"{task} {dtype}, seed {seed}: {result}", flush=True)
    print(report(found))
    if options.write:
        now = datetime.now(timezone.utc)
        RESULTS.write_text(
            "# Training in mixed precision\n\n"
            f"Made by `python benches/mixed_precision.py --write` on {machine()}, {now.day} {now:%B %Y}, Python "
            f"{sys.version_info.major}.{sys.version_info.minor}.\n"
            f"Accuracies in percent on data that was not trained on: mean, smallest and largest of {options.seeds} "
            "seeds.\nMiB are the peak of a step beyond parameters, gradients, states and inputs.\n\n"
            f"{report(found)}\n"
        )


if __name__ == "__main__":
    main()

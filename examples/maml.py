"""Learning to learn: parameters from which one step of gradient descent gets furthest (MAML).

Each task is a line through a few points. The inner step fits the line, starting from common parameters. The outer
step improves these parameters by the gradient through the inner step, which is a derivative of a gradient.

Source:
    Finn et al., "Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks", 2017.
"""

from __future__ import annotations

import argparse

import numpy as np

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff


def loss(theta, x, y):
    """Returns half the mean squared error of the line `x @ theta`."""
    x, y = nn.Variable.from_numpy_array(x), nn.Variable.from_numpy_array(y)
    return 0.5 * F.mean((F.affine(x, theta) - y) ** 2)


def adapt(theta, x, y, rate, create_graph=True):
    """Returns the parameters after one inner step, with the graph that leads back to `theta`."""
    (g,) = autodiff.grad(loss(theta, x, y), theta, create_graph=create_graph)
    return theta - rate * g


def meta_gradient(theta, task, rate):
    """Returns the loss after the inner step, and its gradient by the parameters before it."""
    (x, y), (x_test, y_test) = task
    after = loss(adapt(theta, x, y, rate), x_test, y_test)
    (g,) = autodiff.grad(after, theta)
    return after.item(), g.d


def line(rng, n=10):
    """Returns a task: points of a random line, some to adapt to and some to test on."""
    slope, offset = rng.normal(3, 0.5), rng.normal(-1, 0.5)
    halves = []
    for _ in range(2):
        x = rng.uniform(-1, 1, (n, 1))
        halves.append((np.hstack([x, np.ones((n, 1))]), slope * x + offset))
    return halves


def train(steps, rate=0.5, outer_rate=0.2, tasks=8):
    """Trains the common parameters. Returns the mean loss after one inner step, for each outer step."""
    rng = np.random.RandomState(0)
    theta = nn.Variable.from_numpy_array(np.zeros((2, 1)), need_grad=True)
    history = []
    with nn.auto_forward():
        for _ in range(steps):
            found = [meta_gradient(theta, line(rng), rate) for _ in range(tasks)]
            theta.d -= outer_rate * np.mean([g for _, g in found], axis=0)
            history.append(np.mean([value for value, _ in found]))
    return history, theta.d


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60)
    history, theta = train(parser.parse_args().steps)
    print(f"loss after one inner step: {history[0]:.3f} at first, {np.mean(history[-10:]):.3f} in the end")
    print("parameters to start from:", np.round(theta.ravel(), 1))

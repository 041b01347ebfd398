"""Trains the digits for an epoch from fixed weights, and prints a digest of the weights: the same on every machine."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import numpy as np
from lenet import lenet, split_digits

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S

BATCH = 32
"""Examples in a batch."""


def main() -> None:
    """Trains, and prints the error on held-out digits with the digest."""
    rng = np.random.RandomState(1)
    (images, labels), (held_out, expected) = split_digits()
    x, t = nn.Variable((BATCH, 1, 8, 8)), nn.Variable((BATCH, 1))
    loss = F.mean(F.softmax_cross_entropy(lenet(x), t))
    parameters = nn.get_parameters()
    for _, parameter in sorted(parameters.items()):
        shape = parameter.shape
        fan_in = np.prod(shape[1:] if len(shape) > 2 else shape[:1])
        scale = 0.0 if len(shape) == 1 else (2.0 / fan_in) ** 0.5
        parameter.d = (rng.standard_normal(shape) * scale).astype(np.float32)
    solver = S.Adam(3e-3)
    solver.set_parameters(parameters)
    order = rng.permutation(len(images))
    for start in range(0, len(order) - BATCH + 1, BATCH):
        batch = order[start : start + BATCH]
        x.d, t.d = images[batch], labels[batch]
        loss.forward()
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
    weights = hashlib.sha256()
    for _, parameter in sorted(parameters.items()):
        weights.update(np.ascontiguousarray(parameter.d, np.float32).tobytes())
    scores = lenet(nn.Variable.from_numpy_array(held_out))
    scores.forward()
    error = float((scores.d.argmax(1) != expected[:, 0]).mean())
    assert error < 0.2, error
    print(f"error {error:.4f}, weights {weights.hexdigest()[:16]}")


if __name__ == "__main__":
    main()

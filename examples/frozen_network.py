"""Training of a network on top of a frozen one.

Built under `no_grad`, the first network needs no gradients. `forward(clear_no_need_grad=True)` frees its values
early, and its parameters do not change.
"""

from __future__ import annotations

import argparse

import numpy as np
from lenet import split_digits

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S


def random_features(x):
    """The first network, here with its initial weights."""
    with nn.parameter_scope("frozen"):
        h = F.relu(PF.convolution(x, 32, (3, 3), pad=(1, 1), name="conv1"))
        h = F.relu(PF.convolution(F.max_pooling(h, (2, 2)), 64, (3, 3), pad=(1, 1), name="conv2"))
        return F.max_pooling(h, (2, 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    (images, labels), (test_images, test_labels) = split_digits()

    x, t = nn.Variable((256, 1, 8, 8)), nn.Variable((256, 1))
    with nn.no_grad():
        features = random_features(x)
    with nn.parameter_scope("trained"):
        loss = F.mean(F.softmax_cross_entropy(PF.affine(features, 10), t))
    with nn.parameter_scope("trained"):
        trained = nn.get_parameters()
    before = {name: v.d.copy() for name, v in nn.get_parameters(grad_only=False).items()}

    solver = S.Adam(alpha=1e-2)
    solver.set_parameters(trained)
    for step in range(arguments.steps):
        batch = np.arange(step * 256, (step + 1) * 256) % len(images)
        x.d, t.d = images[batch], labels[batch]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
    for name, v in nn.get_parameters(grad_only=False).items():
        print(f"{name}: {'unchanged' if (v.d == before[name]).all() else 'trained'}")

    with nn.no_grad(), nn.auto_forward():
        h = random_features(nn.Variable.from_numpy_array(test_images))
        with nn.parameter_scope("trained"):
            error = F.mean(F.top_n_error(PF.affine(h, 10), nn.Variable.from_numpy_array(test_labels)))
    print(f"test accuracy {100 * (1 - float(error.d)):.2f} %")


if __name__ == "__main__":
    main()

"""The LeNet of the demo in dynamic mode: each function runs when it is called, and each step builds a new graph."""

from __future__ import annotations

import argparse

from lenet import lenet, split_digits

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor.utils.data_iterator import data_iterator_simple


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    arguments = parser.parse_args()
    (images, labels), (test_images, test_labels) = split_digits()

    solver = S.Adam(alpha=2e-3)
    with (
        nn.auto_forward(),
        data_iterator_simple(lambda i: (images[i], labels[i]), len(images), 64, shuffle=True) as batches,
    ):
        while batches.epoch < arguments.epochs:
            x, t = (nn.Variable.from_numpy_array(array) for array in batches.next())
            loss = F.mean(F.softmax_cross_entropy(lenet(x), t))
            # The first step creates the parameters. Later steps must keep the state of the solver.
            solver.set_parameters(nn.get_parameters(), reset=False, retain_state=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            solver.update()
        with nn.no_grad():
            y = lenet(nn.Variable.from_numpy_array(test_images))
            error = F.mean(F.top_n_error(y, nn.Variable.from_numpy_array(test_labels)))
    print(f"test accuracy {100 * (1 - float(error.d)):.2f} %")


if __name__ == "__main__":
    main()

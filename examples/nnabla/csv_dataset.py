"""A data set in a CSV file: writes digits as rows of numbers, and trains a network from the file."""

import argparse
import csv
from pathlib import Path

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np
from nnabla.utils.data_iterator import data_iterator_csv_dataset

from kinnor.datasets import digits


def write(path, images, labels):
    """Writes one row for each image: 64 numbers and a label."""
    with Path(path).open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow([*(f"x__{i}" for i in range(64)), "y:digit"])
        rows.writerows([*image.ravel(), label] for image, label in zip(images, labels, strict=True))


def network(x):
    """A perceptron with one hidden layer."""
    return PF.affine(F.relu(PF.affine(x, 64, name="hidden")), 10, name="classes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--output", default=".")
    args = parser.parse_args()

    nn.seed(10)
    images, labels = digits()
    held_out = np.arange(len(images)) % 5 == 0
    files = [f"{args.output}/{name}.csv" for name in ("train", "test")]
    for path, which in zip(files, (~held_out, held_out), strict=True):
        write(path, images[which], labels[which])

    x, t = nn.Variable((40, 64)), nn.Variable((40, 1))
    y = network(x)
    loss = F.mean(F.softmax_cross_entropy(y, t))
    solver = S.Adam(3e-3)
    solver.set_parameters(nn.get_parameters())
    with data_iterator_csv_dataset(files[0], 40, shuffle=True, rng=np.random.RandomState(0)) as train:
        assert sorted(train.variables) == ["x", "y"]
        for _ in range(args.steps):
            x.d, t.d = train.next()
            loss.forward(clear_no_need_grad=True)
            solver.zero_grad()
            loss.backward(clear_buffer=True)
            solver.update()

    with data_iterator_csv_dataset(files[1], 40, shuffle=False) as test:
        right = 0
        for _ in range(test.size // 40):
            x.d, labels = test.next()
            y.forward()
            right += np.sum(np.argmax(y.d, axis=1) == labels[:, 0])
    print(f"test accuracy {100 * right / (test.size // 40 * 40):.2f} %")


if __name__ == "__main__":
    main()

"""A transformer encoder that reads digits row by row."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

from kinnor.datasets import digits

WIDTH = 32


def network(x, train):
    """Classifies images of shape (batch, 8, 8), each a sequence of eight rows."""
    y = PF.affine(F.transpose(x, (1, 0, 2)), WIDTH, base_axis=2, name="rows")
    place = nn.parameter.get_parameter_or_create("place", (8, 1, WIDTH), nn.initializer.NormalInitializer(0.1))
    y = y + F.broadcast(place, y.shape)
    for i in range(2):
        dropout = 0.1 if train else 0.0
        y = PF.transformer_encode(y, WIDTH, 4, dim_feedforward=64, dropout=dropout, name=f"layer{i}")
    return PF.affine(F.mean(y, axis=0), 10, name="classes")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    args = parser.parse_args()

    nn.seed(4)
    rng = np.random.RandomState(0)
    images, labels = digits()
    images = images[:, 0]
    held_out = np.arange(len(images)) % 5 == 0
    train = np.flatnonzero(~held_out)

    x, t = nn.Variable((64, 8, 8)), nn.Variable((64, 1))
    loss = F.mean(F.softmax_cross_entropy(network(x, train=True), t))
    xt = nn.Variable(images[held_out].shape)
    y = network(xt, train=False)
    solver = S.Adam(2e-3)
    solver.set_parameters(nn.get_parameters())
    for _ in range(args.steps):
        chosen = rng.choice(train, 64, replace=False)
        x.d, t.d = images[chosen], labels[chosen, None]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
    xt.d = images[held_out]
    y.forward(clear_buffer=True)
    print(f"test accuracy {100 * np.mean(np.argmax(y.d, axis=1) == labels[held_out]):.2f} %")


if __name__ == "__main__":
    main()

"""Super-resolution of digits: `interpolate` to twice the size, and a network for the residual."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

from kinnor.datasets import digits


def network(small):
    """Returns the interpolated and the improved image."""
    large = F.interpolate(small, scale=(2, 2), mode="linear", align_corners=False, half_pixel=True)
    h = large
    for i, maps in enumerate((16, 16)):
        h = F.relu(PF.convolution(h, maps, (3, 3), pad=(1, 1), name=f"conv{i}"))
    h = PF.convolution(h, 1, (3, 3), pad=(1, 1), name="last")
    return large, large + h


def ratio(x, y):
    """Returns the peak signal-to-noise ratio in decibels, for images from 0 to 1."""
    return -10 * np.log10(np.mean((x - y) ** 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()

    nn.seed(6)
    rng = np.random.RandomState(0)
    images = digits()[0]
    small = images.reshape(-1, 1, 4, 2, 4, 2).mean(axis=(3, 5))
    held_out = np.arange(len(images)) % 5 == 0
    train = np.flatnonzero(~held_out)

    x, t = nn.Variable((32, 1, 4, 4)), nn.Variable((32, 1, 8, 8))
    loss = F.mean(F.squared_error(network(x)[1], t))
    solver = S.Adam(2e-3)
    solver.set_parameters(nn.get_parameters())
    for _ in range(args.steps):
        chosen = rng.choice(train, 32, replace=False)
        x.d, t.d = small[chosen], images[chosen]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
    xt = nn.Variable.from_numpy_array(small[held_out])
    large, y = network(xt)
    nn.forward_all([large, y])
    before, after = ratio(large.d, images[held_out]), ratio(y.d, images[held_out])
    print(f"signal to noise in dB {before:.2f} -> {after:.2f}")


if __name__ == "__main__":
    main()

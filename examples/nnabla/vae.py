"""A variational autoencoder of digits."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

from kinnor.datasets import digits

LATENT = 8


def bound(x):
    """The negative evidence lower bound: reconstruction error plus divergence of the code from a normal one."""
    h = F.relu(PF.affine(x, 128, name="encoder"))
    mean, log_var = PF.affine(h, LATENT, name="mean"), PF.affine(h, LATENT, name="log_var")
    z = mean + F.exp(0.5 * log_var) * F.randn(shape=mean.shape)
    h = F.relu(PF.affine(z, 128, name="decoder"))
    y = PF.affine(h, x.shape[1:], name="image")
    error = F.mean(F.sum(F.sigmoid_cross_entropy(y, x), axis=(1, 2, 3)))
    divergence = 0.5 * F.mean(F.sum(F.exp(log_var) + mean**2 - 1 - log_var, axis=1))
    return error + divergence


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    args = parser.parse_args()

    nn.seed(8)
    rng = np.random.RandomState(0)
    images = (digits()[0] > 0.5).astype(np.float32)
    held_out = np.arange(len(images)) % 5 == 0
    train = np.flatnonzero(~held_out)

    x = nn.Variable((64, 1, 8, 8))
    loss = bound(x)
    xt = nn.Variable.from_numpy_array(images[held_out])
    test = bound(xt)
    test.forward()
    first = float(test.d)
    solver = S.Adam(2e-3)
    solver.set_parameters(nn.get_parameters())
    for _ in range(args.steps):
        x.d = images[rng.choice(train, 64, replace=False)]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
    test.forward(clear_buffer=True)
    print(f"negative bound {first:.2f} -> {float(test.d):.2f}")


if __name__ == "__main__":
    main()

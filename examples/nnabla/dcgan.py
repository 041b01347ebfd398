"""A DCGAN of digits, with spectrally normalized weights in the discriminator."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

from kinnor.datasets import digits

BATCH, LATENT = 64, 16


def generator(z):
    """Generates images from noise."""
    with nn.parameter_scope("gen"):
        h = F.reshape(PF.affine(z, (32, 2, 2), name="first"), (z.shape[0], 32, 2, 2))
        h = F.relu(PF.batch_normalization(h, name="bn1"))
        h = PF.deconvolution(h, 16, (4, 4), pad=(1, 1), stride=(2, 2), with_bias=False, name="deconv1")
        h = F.relu(PF.batch_normalization(h, name="bn2"))
        return F.tanh(PF.deconvolution(h, 1, (4, 4), pad=(1, 1), stride=(2, 2), name="deconv2"))


def normalized(dim):
    """Returns a function that normalizes a weight by its spectral norm."""
    return lambda w: PF.spectral_norm(w, dim=dim)


def discriminator(x):
    """Scores images as real or fake."""
    with nn.parameter_scope("dis"):
        h = x
        for i, maps in enumerate((16, 32)):
            h = PF.convolution(h, maps, (4, 4), pad=(1, 1), stride=(2, 2), apply_w=normalized(0), name=f"conv{i}")
            h = F.leaky_relu(h, 0.2)
        return PF.affine(h, 1, apply_w=normalized(1), name="last")


def solver_of(scope):
    """Returns a solver for the parameters of a scope."""
    solver = S.Adam(2e-3, beta1=0.5)
    with nn.parameter_scope(scope):
        solver.set_parameters(nn.get_parameters())
    return solver


def distance(fake, real):
    """Returns the mean squared distance of each image to the nearest real one."""
    fake, real = fake.reshape(len(fake), -1), real.reshape(len(real), -1)
    return np.mean([np.min(np.sum((real - image) ** 2, axis=1)) for image in fake])


def step(loss, solver):
    """Runs backward and an update."""
    solver.zero_grad()
    loss.backward(clear_buffer=True)
    solver.update()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()

    nn.seed(2)
    rng = np.random.RandomState(0)
    images = 2 * digits()[0] - 1
    z, x = nn.Variable((BATCH, LATENT)), nn.Variable((BATCH, 1, 8, 8))
    fake = generator(z)
    fake.persistent = True
    cut = fake.get_unlinked_variable(need_grad=False)
    ones, zeros = F.constant(1, (BATCH, 1)), F.constant(0, (BATCH, 1))
    loss_gen = F.mean(F.sigmoid_cross_entropy(discriminator(fake), ones))
    loss_dis = F.mean(F.sigmoid_cross_entropy(discriminator(cut), zeros))
    loss_dis += F.mean(F.sigmoid_cross_entropy(discriminator(x), ones))
    solver_gen, solver_dis = solver_of("gen"), solver_of("dis")

    first = None
    for _ in range(args.steps):
        z.d = rng.randn(*z.shape)
        x.d = images[rng.choice(len(images), BATCH, replace=False)]
        loss_gen.forward(clear_no_need_grad=True)
        first = distance(fake.d, images) if first is None else first
        step(loss_gen, solver_gen)
        loss_dis.forward(clear_no_need_grad=True)
        step(loss_dis, solver_dis)
    fake.forward()
    print(f"distance to the nearest digit {first:.2f} -> {distance(fake.d, images):.2f}")


if __name__ == "__main__":
    main()

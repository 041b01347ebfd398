"""A critic with slopes close to one: the gradient penalty of WGAN-GP, which differentiates a gradient.

The critic learns to distinguish two clouds of points. Its gain estimates the Wasserstein distance between them,
as long as its slope is close to one everywhere.

Source:
    Gulrajani et al., "Improved Training of Wasserstein GANs", 2017.
"""

from __future__ import annotations

import argparse

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor import autodiff


def gradient_penalty(critic, real, fake, mix):
    """Returns the mean of (slope - 1)² of the critic between real and fake points.

    `mix` is the fraction of the way from fake to real.
    """
    between = nn.Variable.from_numpy_array(mix * real + (1 - mix) * fake, need_grad=True)
    score = critic(between)
    (g,) = autodiff.grad(F.sum(score), between, create_graph=True)
    slope = F.pow_scalar(F.sum(g * g, axis=1) + 1e-12, 0.5)
    return F.mean((slope - 1) ** 2)


def critic(x):
    """A network with two hidden layers."""
    for n, width in enumerate((32, 32)):
        x = F.tanh(PF.affine(x, width, name=f"hidden{n}"))
    return PF.affine(x, 1, name="score")


def train(steps, weight=10.0, distance=2.0, batch=64):
    """Trains the critic. Returns its estimate of the distance and the penalty, averaged over the last steps."""
    rng = np.random.RandomState(0)
    solver = S.Adam(alpha=2e-3)
    critic(nn.Variable((1, 2)))
    solver.set_parameters(nn.get_parameters())
    history = []
    for _ in range(steps):
        fake = rng.normal(size=(batch, 2)).astype(np.float32)
        real = rng.normal(size=(batch, 2)).astype(np.float32) + np.float32([distance, 0])
        with nn.auto_forward():
            gain = F.mean(critic(nn.Variable.from_numpy_array(real))) - F.mean(
                critic(nn.Variable.from_numpy_array(fake))
            )
            penalty = gradient_penalty(critic, real, fake, rng.uniform(size=(batch, 1)).astype(np.float32))
            solver.zero_grad()
            autodiff.backward(weight * penalty - gain)
        solver.update()
        history.append((gain.item(), penalty.item()))
    return np.mean(history[-100:], axis=0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    found, penalty = train(parser.parse_args().steps)
    print(f"distance {found:.2f}, penalty {penalty:.3f}")

"""Quantization-aware training with weights and activations of four bits."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np
from nnabla.initializer import ConstantInitializer

from kinnor.datasets import digits

LEVELS = 2**4 - 1


def activation(h, name):
    """ReLU, quantized with a learned range."""
    least, greatest = ConstantInitializer(0), ConstantInitializer(4)
    return PF.min_max_quantize(F.relu(h), 0, LEVELS, qr_min_init=least, qr_max_init=greatest, name=name)


def network(x):
    """A convolution and two affine layers with quantized weights."""
    low, high = ConstantInitializer(-0.5), ConstantInitializer(0.5)
    args = {"ql_max_w": LEVELS, "qr_min_w_init": low, "qr_max_w_init": high, "quantize_b": False}
    h = PF.min_max_quantized_convolution(x, 16, (3, 3), stride=(2, 2), pad=(1, 1), name="conv", **args)
    h = activation(h, "act1")
    h = PF.min_max_quantized_affine(h, 48, name="affine1", **args)
    h = activation(h, "act2")
    return PF.min_max_quantized_affine(h, 10, name="affine2", **args)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=800)
    args = parser.parse_args()

    nn.seed(5)
    rng = np.random.RandomState(0)
    images, labels = digits()
    held_out = np.arange(len(images)) % 5 == 0
    train = np.flatnonzero(~held_out)

    x, t = nn.Variable((64, 1, 8, 8)), nn.Variable((64, 1))
    loss = F.mean(F.softmax_cross_entropy(network(x), t))
    solver = S.Adam(2e-3)
    solver.set_parameters(nn.get_parameters())
    for _ in range(args.steps):
        chosen = rng.choice(train, 64, replace=False)
        x.d, t.d = images[chosen], labels[chosen, None]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()

    xt = nn.Variable(images[held_out].shape)
    y = network(xt)
    xt.d = images[held_out]
    used = []

    def count(f):
        """Counts the distinct weights of a layer."""
        if f.name.startswith(("Affine", "Convolution")):
            used.append(len(np.unique(f.inputs[1].d)))

    y.forward(function_pre_hook=count)
    print(f"different weights in each layer: {used}")
    print(f"test accuracy {100 * np.mean(np.argmax(y.d, axis=1) == labels[held_out]):.2f} %")


if __name__ == "__main__":
    main()

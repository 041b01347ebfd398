"""Quantization-aware training by a scheduler: training, recording of ranges, and training in eight bits."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np
from nnabla.utils.qnn import QATConfig, QATScheduler

from kinnor.datasets import digits


def network(x, training):
    """A convolution with batch normalization, and two affine layers."""
    h = PF.convolution(x, 16, (3, 3), stride=(2, 2), pad=(1, 1), name="conv")
    h = F.relu(PF.batch_normalization(h, batch_stat=training, name="bn"))
    h = F.relu(PF.affine(h, 48, name="affine1"))
    return PF.affine(h, 10, name="affine2")


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
    xt = nn.Variable(images[held_out].shape)
    y, yt = network(x, True), network(xt, False)
    loss = F.mean(F.softmax_cross_entropy(y, t))
    solver = S.Adam(2e-3)
    solver.set_parameters(nn.get_parameters())

    config = QATConfig()
    config.ext_name = "cpu"
    config.bn_folding = True
    config.skip_inputs_layers = config.skip_outputs_layers = []
    config.niter_to_recording = args.steps // 2
    config.niter_to_training = args.steps // 2 + 20
    scheduler = QATScheduler(config, solver)
    scheduler(y)
    scheduler(yt, training=False)

    for _ in range(args.steps):
        scheduler.step()
        chosen = rng.choice(train, 64, replace=False)
        x.d, t.d = images[chosen], labels[chosen, None]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()

    xt.d = images[held_out]
    yt.forward()
    scales = [name for name in nn.get_parameters(grad_only=False) if "/scale-" in name]
    print(f"{len(scales)} scales")
    print(f"test accuracy {100 * np.mean(np.argmax(yt.d, axis=1) == labels[held_out]):.2f} %")


if __name__ == "__main__":
    main()

"""Classifies digits with augmented images. The trained network is saved to a .nnp file and loaded from it."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np
from nnabla.utils.data_iterator import data_iterator_simple
from nnabla.utils.nnp_graph import NnpLoader
from nnabla.utils.save import save

from kinnor.datasets import digits


def augmented(x):
    """Random crops, scales, rotations and noise, without gradient."""
    x = F.image_augmentation(x, shape=(1, 8, 8), pad=(1, 1), min_scale=0.9, max_scale=1.1, angle=0.15, noise=0.02)
    x.need_grad = False
    return x


def network(x, test):
    """Two convolutions with pooling, and an affine layer."""
    with nn.parameter_scope("classifier"):
        h = F.relu(PF.batch_normalization(PF.convolution(x, 16, (3, 3), pad=(1, 1), name="conv1"), batch_stat=not test))
        h = F.max_pooling(h, (2, 2))
        h = F.relu(PF.convolution(h, 32, (3, 3), pad=(1, 1), name="conv2"))
        h = F.max_pooling(h, (2, 2))
        return PF.affine(h, 10)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--output", default="classification.nnp")
    args = parser.parse_args()

    nn.seed(1)
    images, labels = digits()
    held_out = np.arange(len(images)) % 5 == 0
    train_images, train_labels = images[~held_out], labels[~held_out]

    def load(i):
        """Returns an image and its label."""
        return train_images[i], train_labels[i : i + 1]

    data = data_iterator_simple(load, len(train_images), 64, shuffle=True, rng=np.random.RandomState(0))
    x, t = nn.Variable((64, 1, 8, 8)), nn.Variable((64, 1))
    loss = F.mean(F.softmax_cross_entropy(network(augmented(x), test=False), t))
    solver = S.Momentum(0.05, 0.9)
    solver.set_parameters(nn.get_parameters())
    for _ in range(args.steps):
        x.d, t.d = data.next()
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.weight_decay(1e-4)
        solver.update()

    xt = nn.Variable((1, 1, 8, 8))
    y = network(xt, test=True)
    contents = {
        "networks": [{"name": "digits", "batch_size": 1, "outputs": {"y": y}, "names": {"x": xt}}],
        "executors": [{"name": "runtime", "network": "digits", "data": ["x"], "output": ["y"]}],
    }
    save(args.output, contents)

    nn.clear_parameters()
    loaded = NnpLoader(args.output).get_network("digits", batch_size=int(held_out.sum()))
    (xt,), (y,) = loaded.inputs.values(), loaded.outputs.values()
    xt.d = images[held_out]
    y.forward()
    right = np.mean(np.argmax(y.d, axis=1) == labels[held_out])
    print(f"test accuracy {100 * right:.2f} %")


if __name__ == "__main__":
    main()

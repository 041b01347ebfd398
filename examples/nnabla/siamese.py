"""A siamese network: embeddings of equal digits move together, others move apart."""

import argparse

import nnabla as nn
import nnabla.functions as F
import nnabla.parametric_functions as PF
import nnabla.solvers as S
import numpy as np

from kinnor.datasets import digits

MARGIN = 2.0


def embedded(x):
    """Returns the embedding of images."""
    with nn.parameter_scope("siamese"):
        h = F.max_pooling(F.relu(PF.convolution(x, 16, (3, 3), pad=(1, 1))), (2, 2))
        return PF.affine(F.relu(PF.affine(h, 64, name="hidden")), 8, name="place")


def contrastive(a, b, same):
    """The contrastive loss: squared distance for equal digits, a margin for others."""
    squared = F.sum((a - b) ** 2, axis=1, keepdims=True)
    apart = F.maximum_scalar(MARGIN - (squared + 1e-6) ** 0.5, 0) ** 2
    return F.mean(same * squared + (1 - same) * apart)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    args = parser.parse_args()

    nn.seed(9)
    rng = np.random.RandomState(0)
    images, labels = digits()
    held_out = np.arange(len(images)) % 5 == 0
    train_images, train_labels = images[~held_out], labels[~held_out]
    kinds = [np.flatnonzero(train_labels == kind) for kind in range(10)]

    a, b, same = nn.Variable((64, 1, 8, 8)), nn.Variable((64, 1, 8, 8)), nn.Variable((64, 1))
    loss = contrastive(embedded(a), embedded(b), same)
    solver = S.Adam(2e-3)
    solver.set_parameters(nn.get_parameters())
    for _ in range(args.steps):
        one = rng.randint(0, len(train_images), 64)
        other = np.array([rng.choice(kinds[label]) for label in train_labels[one]])
        other[32:] = rng.randint(0, len(train_images), 32)
        a.d, b.d = train_images[one], train_images[other]
        same.d = (train_labels[one] == train_labels[other])[:, None]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()

    x = nn.Variable.from_numpy_array(images)
    place = embedded(x)
    place.forward(clear_buffer=True)
    known, asked = place.d[~held_out], place.d[held_out]
    centres = np.stack([known[kind].mean(axis=0) for kind in kinds])
    nearest = np.argmin(((asked[:, None] - centres) ** 2).sum(axis=2), axis=1)
    print(f"test accuracy {100 * np.mean(nearest == labels[held_out]):.2f} %")


if __name__ == "__main__":
    main()

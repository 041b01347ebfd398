"""The network of the digit examples, and their common split of the digits."""

from __future__ import annotations

import numpy as np

import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor.datasets import digits


def lenet(x, n_classes=10):
    """Two convolutions, each followed by pooling, and two affine layers. Returns scores for each class."""
    h = F.relu(PF.convolution(x, 32, (3, 3), pad=(1, 1), name="conv1"))
    h = F.max_pooling(h, (2, 2))
    h = F.relu(PF.convolution(h, 64, (3, 3), pad=(1, 1), name="conv2"))
    h = F.max_pooling(h, (2, 2))
    h = F.relu(PF.affine(h, 128, name="affine1"))
    return PF.affine(h, n_classes, name="affine2")


def split_digits():
    """Returns the digits with labels as columns: four fifths for training, and every fifth image held out."""
    images, labels = digits()
    labels = labels[:, np.newaxis]
    is_held_out = np.arange(len(images)) % 5 == 4
    return (images[~is_held_out], labels[~is_held_out]), (images[is_held_out], labels[is_held_out])

"""Accumulation of gradients, and backward across a variable that was unlinked from its graph."""

from __future__ import annotations

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.initializer as I
import kinnor.parametric_functions as PF

# `np.random` draws the input. The weights come from the library's own generator, with the same seed in each program.
np.random.seed(217)
initializer = I.UniformInitializer((-0.1, 0.1))
x = nn.Variable.from_numpy_array(np.random.random((8, 3, 32, 32)))


def features(x):
    """The lower part of the network."""
    h = PF.convolution(x, 64, (3, 3), (1, 1), (2, 2), w_init=initializer, name="conv1", with_bias=False)
    h = PF.convolution(F.relu(h), 128, (3, 3), (1, 1), (2, 2), w_init=initializer, name="conv2", with_bias=False)
    return F.relu(h)


def head(h):
    """The upper part, up to the loss."""
    h = F.average_pooling(h, h.shape[2:])
    return F.mean(F.abs(PF.affine(h, 1, w_init=initializer) - 1.0))


def show(what):
    """Prints a few gradients of the first weight."""
    print(f"{what:32}", nn.get_parameters()["conv1/conv/W"].g[0, 0, 0])


def zero_grads(*variables):
    """Zeroes the gradients of all parameters and of these variables."""
    for variable in [*nn.get_parameters().values(), *variables]:
        variable.grad.zero()


# One graph: a second backward run adds to the gradients of the first.
loss = head(features(x))
loss.forward()
loss.backward()
show("backward:")
loss.backward()
show("backward again:")

# The same network in two graphs. Backward of the upper graph ends at the unlinked variable.
zero_grads()
lower = features(x)
cut = lower.get_unlinked_variable(need_grad=True)
loss = head(cut)
lower.forward()
loss.forward()
loss.backward()
show("upper graph only:")

# The pitfall: `backward()` starts from ones and ignores the gradient of `cut`.
lower.backward()
show("lower graph from ones, wrong:")

# The solution: `grad=None` starts from the existing gradient.
zero_grads(cut)
loss.backward()
lower.backward(grad=None)
show("lower graph from `cut`, right:")

"""Inspection and editing of a graph: `visit`, `visit_check`, `rewire_on`, `forward_all`."""

from __future__ import annotations

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF


def network(x, is_pooled=True):
    """A convolution, pooling or ReLU, and an affine layer."""
    h = PF.convolution(x, 16, (3, 3), pad=(1, 1), name="first-conv", with_bias=False)
    h = F.average_pooling(h, h.shape[2:]) if is_pooled else F.relu(h)
    return PF.affine(h, 10, name="pred")


def has_pooling(y):
    """True if the graph of `y` contains average pooling."""
    return y.visit_check(lambda function: function.info.type_name == "AveragePooling")


x = nn.Variable((1, 3, 16, 16))
y = network(x)
print("functions, inputs first:")
y.visit(lambda function: print(f"  {function.info.type_name} {[v.shape for v in function.inputs]}"))
print("has pooling:", has_pooling(y))
nn.clear_parameters()
print("has pooling:", has_pooling(network(x, is_pooled=False)))

# Two graphs, `xa -> A -> ya` and `xb -> B -> yb`. Put A on top of B: `xb -> B -> xa -> A -> ya`.
xa = nn.Variable((2, 8), need_grad=True)
ya = F.tanh(PF.affine(xa, 10, name="a"))
xb = nn.Variable((2, 16), need_grad=True)
yb = F.tanh(PF.affine(F.tanh(PF.affine(xb, 8, name="b1")), 8, name="b2"))
xa.rewire_on(yb)
xb.d = 1
ya.forward()
ya.backward()
print("functions below ya after rewiring:")
ya.visit(lambda function: print(f"  {function.info.type_name}"))
print("gradient has reached xb:", bool((xb.g != 0).any()))

# Two results with a common trunk: `forward_all` computes the trunk once.
trunk = F.relu(PF.affine(xb, 4, name="trunk"))
left, right = PF.affine(trunk, 2, name="left"), PF.affine(trunk, 3, name="right")
run = []
nn.forward_all([left, right], function_pre_hook=lambda function: run.append(function.info.type_name))
print("run for both:", ", ".join(run))

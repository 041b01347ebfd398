"""Second derivatives without a matrix: products of the Hessian with vectors, and Newton's method.

A gradient costs about as much as the function. So does the derivative of that gradient along one direction.
Conjugate gradients need only such derivatives.
"""

from __future__ import annotations

import numpy as np

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

DOUBLE = nn.Context(["cpu:double"])


def differentiated(f, x):
    """Returns the gradient of `f` at `x` as an array, and a function that multiplies vectors by the Hessian there."""
    x = nn.Variable.from_numpy_array(np.asarray(x, np.float64), need_grad=True)
    with nn.auto_forward(), nn.context_scope(DOUBLE):
        (g,) = autodiff.grad(f(x), x, create_graph=True)

    def times_hessian(v):
        (product,) = autodiff.grad(g, x, v, retain_graph=True, materialize_grads=True)
        return product.d

    return g.d, times_hessian


def solve(times_matrix, b, steps):
    """Solves `A x = b` by conjugate gradients, for a symmetric matrix that is given as a product with vectors."""
    x, r = np.zeros_like(b), b.copy()
    p = r.copy()
    for _ in range(steps):
        ap = times_matrix(p)
        curvature = p @ ap
        if curvature <= 1e-14 or r @ r < 1e-24:
            break
        step = (r @ r) / curvature
        x += step * p
        last, r = r, r - step * ap
        p = r + (r @ r) / (last @ last) * p
    return x if x.any() else b


def minimize(f, x, steps=20):
    """Returns a minimum of `f` by Newton's method from `x`. Prints the norm of the gradient at each step."""
    for n in range(steps):
        g, times_hessian = differentiated(f, x)
        print(f"step {n}: |gradient| = {np.linalg.norm(g):.3e}")
        if np.linalg.norm(g) < 1e-10:
            break
        x = x - solve(times_hessian, g, len(x))
    return x


def rosenbrock(x):
    """A curved valley with its minimum at all ones."""
    head, tail = x[:-1], x[1:]
    return F.sum(100 * (tail - head * head) ** 2 + (1 - head) ** 2)


if __name__ == "__main__":
    print("minimum:", np.round(minimize(rosenbrock, np.array([1.2, 1.3, 1.6, 2.4])), 6))

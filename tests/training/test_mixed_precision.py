"""Loss scaling: steps do not depend on the scale, and the scale follows the gradients."""

import numpy as np

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor.experimental.mixed_precision_training import DynamicLossScalingUpdater


def problem():
    """Returns a weight, an input, a solver and a loss."""
    w = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
    x = nn.Variable((2,))
    solver = S.Sgd(0.25)
    solver.set_parameters({"w": w})
    return w, x, solver, F.sum(w * w * x)


def test_a_step_does_not_depend_on_the_scale():
    for scale in (1.0, 8.0, 1024.0):
        w, x, solver, loss = problem()
        updater = DynamicLossScalingUpdater(solver, loss, lambda x=x: x.data.fill(1.0), scale, accum_grad=2)
        updater.update()
        np.testing.assert_allclose(w.d, [0.0, 0.0], atol=1e-6)
        assert updater.scale == scale


def test_gradients_that_overflow_lower_the_scale():
    """A step with infinite or NaN gradients is repeated with a lower scale."""
    w, x, solver, loss = problem()
    values = iter([np.inf, np.nan, 1.0])
    updater = DynamicLossScalingUpdater(solver, loss, lambda: x.data.fill(next(values)), 8.0, weight_decay=0.1)
    updater.update()
    assert updater.scale == 2.0
    np.testing.assert_allclose(w.d, np.array([1.0, 2.0]) * (1 - 0.25 * 2.1), rtol=1e-6)


def test_the_scale_rises_after_many_steps():
    """After `N` steps without overflow, the loss scale doubles."""
    _, x, solver, loss = problem()
    updater = DynamicLossScalingUpdater(solver, loss, lambda: x.data.fill(0.0), 8.0, N=2)
    for _ in range(4):
        updater.update()
    assert updater.scale == 16.0


def test_parameters_stay_if_no_scale_helps():
    """If every scale gives NaN, no parameter changes."""
    w, x, solver, loss = problem()
    DynamicLossScalingUpdater(solver, loss, lambda: x.data.fill(np.nan)).update()
    assert w.d.tolist() == [1.0, 2.0]


def test_a_communicator_sums_gradients_up():
    """The updater sums gradients over processes by the given communicator."""
    w, x, solver, loss = problem()
    seen = []

    class Twice:
        """A communicator that doubles gradients, as with two equal processes."""

        def all_reduce(self, grads, division, inplace):
            """Doubles the gradients and records the arguments."""
            seen.append((division, inplace))
            for g in grads:
                g.data[...] *= 2

    DynamicLossScalingUpdater(solver, loss, lambda: x.data.fill(1.0), comm=Twice(), grads=[w.grad]).update()
    assert seen == [(False, False)]
    np.testing.assert_allclose(w.d, [0.0, 0.0], atol=1e-6)

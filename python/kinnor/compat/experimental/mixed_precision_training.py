"""Mixed-precision training: losses are scaled so that small gradients do not underflow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..._core import NdArray, Variable
    from ...solvers import Solver

__all__ = ["DynamicLossScalingUpdater"]


class DynamicLossScalingUpdater:
    """Takes training steps with a dynamic loss scale.

    If a gradient is infinite or NaN, the scale is reduced and the step is retried on the next data. After `N` steps
    without such a gradient the scale is increased.

    Args:
        solver: The solver, which has the parameters.
        loss: The loss.
        data_feeder: Called before each forward run, to fill the inputs.
        scale: The initial scale.
        scaling_factor: Factor by which the scale is increased or reduced.
        N: Number of steps after which the scale is increased.
        clear_buffer: Whether runs free intermediate values.
        accum_grad: Number of forward and backward runs in a step; their gradients are summed.
        weight_decay: Decay rate of the parameters; None for none.
        comm: Communicator that sums gradients over processes.
        grads: The gradients to sum over processes.

    Attributes:
        scale: The scale of the next step.

        >>> import numpy as np, kinnor as nn, kinnor.functions as F, kinnor.solvers as S
        >>> from kinnor.experimental.mixed_precision_training import DynamicLossScalingUpdater
        >>> w = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
        >>> solver = S.Sgd(0.5)
        >>> solver.set_parameters({"w": w})
        >>> updater = DynamicLossScalingUpdater(solver, F.sum(w * w), lambda: None)
        >>> updater.update()
        >>> w.d.tolist()
        [0.0, 0.0]
    """

    TRIES = 100
    """Maximum number of tries of a step."""

    def __init__(
        self,
        solver: Solver,
        loss: Variable,
        data_feeder: Callable[..., Any] = lambda *_: None,
        scale: float = 8.0,
        scaling_factor: float = 2.0,
        N: int = 2000,
        clear_buffer: bool = True,
        accum_grad: int = 1,
        weight_decay: float | None = None,
        comm: Any = None,
        grads: Sequence[NdArray] = (),
    ) -> None:
        self.solver, self.loss, self.data_feeder = solver, loss, data_feeder
        self.scale, self.scaling_factor, self.N = scale, scaling_factor, N
        self.clear_buffer, self.accum_grad, self.weight_decay = clear_buffer, accum_grad, weight_decay
        self.comm, self.grads = comm, list(grads)
        self._counter = 0

    def update(self) -> None:
        """Take a step. If no scale makes the gradients finite, the parameters stay as they are."""
        for _ in range(self.TRIES + 1):
            self._differentiate()
            if not self.solver.check_inf_or_nan_grad():
                break
            self.scale /= self.scaling_factor
            self._counter = 0
        else:
            return
        self.solver.scale_grad(1.0 / self.scale)
        if self.weight_decay is not None:
            self.solver.weight_decay(self.weight_decay)
        self.solver.update()
        if self._counter > self.N:
            self.scale *= self.scaling_factor
            self._counter = 0
        self._counter += 1

    def _differentiate(self) -> None:
        """Compute the gradients of the scaled loss."""
        self.solver.zero_grad()
        for _ in range(self.accum_grad):
            self.data_feeder()
            self.loss.forward(clear_no_need_grad=self.clear_buffer)
            self.loss.backward(self.scale, clear_buffer=self.clear_buffer)
        if self.comm is not None and self.grads:
            self.comm.all_reduce(self.grads, division=False, inplace=False)

"""Solvers: rules by which parameters move along their gradients."""

# Written by `make stubs` from solvers.py and src/solvers; do not edit.

import os
from collections.abc import Iterable, Mapping
from typing import Any

from . import _core
from ._core import NdArray as NdArray
from ._core import Variable
from .core import Module
from .files.solver_file import State

__all__ = [
    "Solver",
    "SolverState",
    "Sgd",
    "SgdW",
    "Momentum",
    "Lars",
    "Nesterov",
    "Adadelta",
    "Adagrad",
    "AdaBelief",
    "RMSprop",
    "RMSpropGraves",
    "Adam",
    "AdamW",
    "AdaBound",
    "Adamax",
    "AMSGRAD",
    "AMSBound",
    "Lamb",
    "Lion",
]

class SolverState:
    """The state of a solver for one parameter.

    Args:
        pstate: Variables by name.
        t: Number of updates so far.

    Raises:
        TypeError: If `pstate` is no dict.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> solver = S.Momentum(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> w.g = [0.5, -1.0]
        >>> solver.update()
        >>> solver.get_states()["w"]
        SolverState(t=1, pstate=['m'])
    """
    pstate: dict[str, Variable]
    t: int
    def __init__(self, pstate: dict[str, Variable] | None=None, t: int=0) -> None: ...
    def __repr__(self) -> str: ...

class Solver(_core.Solver):
    """A solver: its rule, and the parameters that follow it with their states.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> solver = S.Sgd(lr=0.5)
        >>> isinstance(solver, S.Solver)
        True
        >>> solver.set_parameters({"w": w})
        >>> loss = F.sum(w * w)
        >>> loss.forward()
        >>> solver.zero_grad()
        >>> loss.backward()
        >>> solver.update()
        >>> w.d
        array([0., 0.])
    """
    def set_parameters(self, param_dict: Mapping[str, Variable] | Module | Iterable[Variable] | Iterable[tuple[str, Variable]], reset: bool=True, retain_state: bool=False) -> None:
        """Take parameters to update.

        Args:
            param_dict: Variables by name, a module, variables, or pairs of a name and a variable. Of a module those
                parameters are taken that need a gradient.
            reset: True to forget all parameters and states of before.
            retain_state: True to let a parameter whose name was there take over its states, without `reset`.

        Raises:
            CallError: If `param_dict` is something else.
            ParameterError: If a module has no parameters, as before the first call of one without layers.
            ShapeError: If states to take over have another shape. Nothing is changed then.

        Examples:
            >>> import kinnor.layers as L, kinnor.solvers as S
            >>> solver = S.Adam()
            >>> solver.set_parameters(L.Linear(3, 2))
            >>> list(solver.get_parameters())
            ['W', 'b']
        """
    def add_group(self, params: Mapping[str, Variable] | Module | Iterable[Variable] | Iterable[tuple[str, Variable]], *, weight_decay: float | None=None, **arguments: Any) -> Solver:
        """Give parameters a learning rate, a weight decay or other arguments of their own.

        Parameters that the solver has move to the group with their states; others are added. All methods of the solver
        cover its groups. `set_learning_rate` keeps the ratio of rates, so that schedules hold for all groups.
        `set_parameters` removes the groups, unless it is called with `reset=False`.

        Args:
            params: Parameters, as `set_parameters` takes them.
            weight_decay: Rate that each update of the group applies in the way of the method `weight_decay`; 0 for no
                decay. By default the group follows calls of that method.
            **arguments: Arguments of the class, such as the learning rate, in place of the solver's.

        Returns:
            The group, a solver of the same rule: to set its rate alone, for example.

        Raises:
            CallError: If the class has no such argument.
            ParameterError: If there are no parameters, or if a new one has the name of another one.

        Examples:
            >>> import kinnor.layers as L, kinnor.solvers as S
            >>> network = L.Sequential(("body", L.Linear(3, 4)), ("head", L.Linear(4, 2)))
            >>> solver = S.Adam(alpha=1e-4)
            >>> solver.set_parameters(network)
            >>> head = solver.add_group(network[1], alpha=1e-3, weight_decay=0.01)
            >>> list(head.get_parameters())
            ['@head/W', '@head/b']
            >>> solver.set_learning_rate(5e-5)
            >>> round(head.learning_rate(), 6)
            0.0005
        """
    @property
    def groups(self) -> list[Solver]:
        """The groups that were added, in order."""
    def setup(self, params: Any) -> None:
        """Refuse: `set_parameters` took its place.

        Args:
            params: Not looked at.

        Raises:
            RuntimeError: Always.
        """
    def get_states(self) -> dict[str, SolverState]:
        """Show what the solver remembers.

        Returns:
            States by the names of parameters; their arrays go on changing with updates.
        """
    def set_states(self, states: Mapping[str, SolverState]) -> None:
        """Take copies of states for the parameters of these names; others keep theirs.

        Args:
            states: States by the names of parameters.

        Raises:
            GraphError: If a parameter was not set.
            ParameterError: If this solver has other arrays.
            ShapeError: If one does not have the shape of its parameter. Nothing is changed then.
        """
    def save_states(self, path: str | os.PathLike[str]) -> None:
        """Write the states to a file, whole or not at all.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`; the last two are in NNabla's layout.

        Raises:
            ParameterError: If the format is unknown or cannot hold the states.
            OSError: If the file cannot be written.
        """
    def load_states(self, path: str | os.PathLike[str]) -> None:
        """Read states from a file for parameters that were set before.

        Args:
            path: Path that ends in `.safetensors`, `.h5` or `.protobuf`.

        Raises:
            ParameterError: If the file is malformed or has states of another solver.
            GraphError: If the file has a parameter that was not set.
            OSError: If the file cannot be read.
        """
    def set_states_to_protobuf(self, optimizer: Any) -> None:
        """Put the states into a protobuf message.

        Args:
            optimizer: NNabla's message `Optimizer`, or any of its layout; single precision is all that it holds.
        """
    def set_states_from_protobuf(self, optimizer_proto: Any) -> None:
        """Take the states of a protobuf message for parameters that were set before.

        Args:
            optimizer_proto: NNabla's message `Optimizer`, or any of its layout.

        Raises:
            ParameterError: If its states are of another solver.
            GraphError: If it has a parameter that was not set.
        """
    def _arrays(self) -> dict[str, State]:
        """The states as NumPy arrays, in what precision they are."""
    def _set_arrays(self, states: Mapping[str, State]) -> None:
        """Sets states that were read from a file, with NumPy arrays."""

class Sgd(Solver):
    """Stochastic gradient descent: `w <- w - lr g`.

    Args:
        lr: Learning rate.
    Returns:
        The solver.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Sgd(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.95, 2.1 ])
    """
    def __init__(self, lr: float = 0.001) -> None: ...

class SgdW(Solver):
    """Momentum with decoupled weight decay: `m <- momentum m + lr g; w <- w - m - (lr / lr_0) wd w`.

    `lr_0` is the learning rate that the solver was made with, so that decay follows its schedule. A rate given to
    `weight_decay` replaces `wd` in the next update.

    Args:
        lr: Learning rate.
        momentum: Weight of the last step.
        wd: Rate of weight decay.
    Returns:
        The solver.
    Source:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.SgdW(lr=0.1, wd=0.01)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.94, 2.08])
    """
    def __init__(self, lr: float = 0.001, momentum: float = 0.9, wd: float = 0.0001) -> None: ...

class Momentum(Solver):
    """Momentum: `m <- momentum m + lr g; w <- w - m`.

    Args:
        lr: Learning rate.
        momentum: Weight of the last step.
    Returns:
        The solver.
    Source:
        Qian, On the momentum term in gradient descent learning algorithms, 1999.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Momentum(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.95, 2.1 ])
    """
    def __init__(self, lr: float = 0.001, momentum: float = 0.9) -> None: ...

class Lars(Solver):
    """LARS, momentum with a learning rate for each parameter, in proportion to the norm of its values over the norm of
    its gradient: `v <- momentum v + r (g + wd w); w <- w - v` with `r = lr coefficient |w| / (|g| + wd |w|)`.

    For large batches. `wd` is the rate last given to `weight_decay`, 0 otherwise. A parameter has `r = lr` if its
    norm is below `eps`, or if its gradient and decay are both zero.

    Args:
        lr: Learning rate.
        momentum: Weight of the last step.
        coefficient: Trust in the learning rate of a parameter.
        eps: Norm of the values below which `r = lr`.
    Returns:
        The solver.
    Source:
        You et al., Large batch training of convolutional networks, 2017.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Lars(lr=0.1, coefficient=0.5)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.95, 2.1 ])
    """
    def __init__(
        self,
        lr: float = 0.001,
        momentum: float = 0.9,
        coefficient: float = 0.001,
        eps: float = 1e-06,
    ) -> None: ...

class Nesterov(Solver):
    """Nesterov's accelerated gradient: `m' <- momentum m - lr g; w <- w - momentum m + (1 + momentum) m'`.

    Args:
        lr: Learning rate.
        momentum: Weight of the last step.
    Returns:
        The solver.
    Source:
        Nesterov, A method for solving the convex programming problem with convergence rate O(1/k^2), 1983.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Nesterov(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.905, 2.19 ])
    """
    def __init__(self, lr: float = 0.001, momentum: float = 0.9) -> None: ...

class Adadelta(Solver):
    """Adadelta, steps in units of the values themselves: `e <- decay e + (1 - decay) g^2; d = g sqrt((f + eps) / (e +
    eps)); f <- decay f + (1 - decay) d^2; w <- w - lr d`.

    Args:
        lr: Learning rate.
        decay: Decay of the means of squares.
        eps: Keeps the quotient finite and the first steps from being zero.
    Returns:
        The solver.
    Source:
        Zeiler, ADADELTA: an adaptive learning rate method, 2012.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Adadelta(eps=0.01)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.667, 2.408])
    """
    def __init__(self, lr: float = 1.0, decay: float = 0.95, eps: float = 1e-06) -> None: ...

class Adagrad(Solver):
    """Adagrad, steps that shrink with all gradients so far: `v <- v + g^2; w <- w - lr g / (sqrt(v) + eps)`.

    Args:
        lr: Learning rate.
        eps: Keeps the quotient finite.
    Returns:
        The solver.
    Source:
        Duchi, Hazan and Singer, Adaptive subgradient methods for online learning and stochastic optimization, 2011.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Adagrad(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.9, 2.1])
    """
    def __init__(self, lr: float = 0.01, eps: float = 1e-08) -> None: ...

class AdaBelief(Solver):
    """AdaBelief, Adam scaled by the deviation of gradients from their mean: `m <- beta1 m + (1 - beta1) g; s <- beta2
    s + (1 - beta2) (g - m)^2 + eps; w <- w - alpha / (1 - beta1^t) m / (sqrt(s / (1 - beta2^t)) + eps)`.

    Args:
        alpha: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of squared differences.
        eps: Keeps the quotient finite.
        wd: Rate of weight decay; only read with `weight_decouple`.
        amsgrad: Divide by `s_max <- max(s_max, s) + eps` instead; then `eps` is not added to `s`.
        weight_decouple: Decay weights separately from the gradient, by `alpha wd w` in each update.
        fixed_decay: With `weight_decouple`, decay by `wd w` instead, independent of the learning rate.
        rectify: Scale early steps by the variance of `s` (rectified Adam), and ignore `s` while it is too inexact.
    Returns:
        The solver.
    Source:
        Zhuang et al., AdaBelief optimizer: adapting stepsizes by the belief in observed gradients, 2020.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.AdaBelief(alpha=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.889, 2.111])
    """
    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        wd: float = 0.0,
        amsgrad: bool = False,
        weight_decouple: bool = False,
        fixed_decay: bool = False,
        rectify: bool = False,
    ) -> None: ...

class RMSprop(Solver):
    """RMSprop, steps scaled by the size of recent gradients:
    `v <- decay v + (1 - decay) g^2; w <- w - lr g / (sqrt(v) + eps)`.

    Args:
        lr: Learning rate.
        decay: Decay of the mean of squares.
        eps: Keeps the quotient finite.
    Returns:
        The solver.
    Source:
        Hinton, Neural networks for machine learning, lecture 6a, 2012.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.RMSprop(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.684, 2.316])
    """
    def __init__(self, lr: float = 0.001, decay: float = 0.9, eps: float = 1e-08) -> None: ...

class RMSpropGraves(Solver):
    """RMSprop by the variance of the gradients, with momentum: `n <- decay n + (1 - decay) g^2; a <- decay a + (1 -
    decay) g; d <- momentum d - lr g / sqrt(n - a^2 + eps); w <- w + d`.

    Args:
        lr: Learning rate.
        decay: Decay of the means.
        momentum: Weight of the last step.
        eps: Keeps the quotient finite.
    Returns:
        The solver.
    Source:
        Graves, Generating sequences with recurrent neural networks, 2013.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.RMSpropGraves(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.543, 2.458])
    """
    def __init__(self, lr: float = 0.0001, decay: float = 0.95, momentum: float = 0.9, eps: float = 0.0001) -> None: ...

class Adam(Solver):
    """Adam: `m <- beta1 m + (1 - beta1) g; v <- beta2 v + (1 - beta2) g^2; w <- w - alpha_t m / (sqrt(v) + eps)` with
    `alpha_t = alpha sqrt(1 - beta2^t) / (1 - beta1^t)`.

    Args:
        alpha: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of their squares.
        eps: Keeps the quotient finite.
    Returns:
        The solver.
    Source:
        Kingma and Ba, Adam: a method for stochastic optimization, 2015.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Adam(alpha=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.9, 2.1])
    """
    def __init__(self, alpha: float = 0.001, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-08) -> None: ...

class AdamW(Solver):
    """Adam with decoupled weight decay: Adam's step, minus `(alpha / alpha_0) wd w`.

    `alpha_0` is the initial learning rate, so decay follows the schedule. A rate given to `weight_decay` replaces
    `wd` in the next update.

    Args:
        alpha: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of their squares.
        eps: Keeps the quotient finite.
        wd: Rate of weight decay.
    Returns:
        The solver.
    Source:
        Loshchilov and Hutter, Decoupled weight decay regularization, 2019.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.AdamW(alpha=0.1, wd=0.01)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.89, 2.08])
    """
    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        wd: float = 0.0001,
    ) -> None: ...

class AdaBound(Solver):
    """AdaBound, Adam with the learning rate of each element clipped to bounds that approach plain gradient descent:
    `w <- w - clip(alpha_t / (sqrt(v) + eps), lower_t, upper_t) m`.

    With `f = final_lr alpha / alpha_0`, `alpha_0` being the learning rate that the solver was made with,
    `lower_t = f (1 - 1 / (gamma t + 1))` and `upper_t = f (1 + 1 / (gamma t))`; `m`, `v` and `alpha_t` as in Adam.

    Args:
        alpha: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of their squares.
        eps: Keeps the quotient finite.
        final_lr: Final learning rate.
        gamma: Rate at which the bounds approach each other.
    Returns:
        The solver.
    Source:
        Luo et al., Adaptive gradient methods with dynamic bound of learning rate, 2019.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.AdaBound(alpha=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.9, 2.1])
    """
    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        final_lr: float = 0.1,
        gamma: float = 0.001,
    ) -> None: ...

class Adamax(Solver):
    """Adamax, Adam scaled by the largest recent gradient:
    `m <- beta1 m + (1 - beta1) g; u <- max(beta2 u, |g|); w <- w - alpha / (1 - beta1^t) m / (u + eps)`.

    Args:
        alpha: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the largest gradient.
        eps: Keeps the quotient finite.
    Returns:
        The solver.
    Source:
        Kingma and Ba, Adam: a method for stochastic optimization, 2015.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Adamax(alpha=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.9, 2.1])
    """
    def __init__(self, alpha: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-08) -> None: ...

class AMSGRAD(Solver):
    """AMSGRAD, Adam scaled by the largest mean of squares so far: `w <- w - alpha m / (sqrt(v_hat) + eps)` with
    `v_hat <- max(v_hat, v)`, `m` and `v` as in Adam.

    Args:
        alpha: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of their squares.
        eps: Keeps the quotient finite.
        bias_correction: Use Adam's `alpha_t` instead of `alpha`.
    Returns:
        The solver.
    Source:
        Reddi, Kale and Kumar, On the convergence of Adam and beyond, 2018.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.AMSGRAD(alpha=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.684, 2.316])
    """
    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        bias_correction: bool = False,
    ) -> None: ...

class AMSBound(Solver):
    """AMSBound, AMSGRAD with the bounds of AdaBound: `w <- w - clip(alpha / (sqrt(v_hat) + eps), lower_t, upper_t) m`.

    Args:
        alpha: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of their squares.
        eps: Keeps the quotient finite.
        final_lr: Final learning rate.
        gamma: Rate at which the bounds approach each other.
        bias_correction: Use Adam's `alpha_t` instead of `alpha`.
    Returns:
        The solver.
    Source:
        Luo et al., Adaptive gradient methods with dynamic bound of learning rate, 2019.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.AMSBound(alpha=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.684, 2.316])
    """
    def __init__(
        self,
        alpha: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-08,
        final_lr: float = 0.1,
        gamma: float = 0.001,
        bias_correction: bool = False,
    ) -> None: ...

class Lamb(Solver):
    """LAMB, Adam's direction with a step length in proportion to the norm of each parameter:
    `w <- w - eta clip(|w|, gamma_l, gamma_u) / |r| r` with `r = m / (sqrt(v) + eps) + wd w`.

    For large batches. `wd` is the rate last given to `weight_decay`, 0 otherwise. Where `|r|` is at most `eps`, the
    step is `eta r`.

    Args:
        eta: Learning rate.
        beta1: Decay of the mean of gradients.
        beta2: Decay of the mean of their squares.
        gamma_l: Lower bound of the norm of values.
        gamma_u: Upper bound of the norm of values.
        eps: Keeps the quotient finite.
        bias_correction: Divide the means by `1 - beta^t`, because they start at zero.
    Returns:
        The solver.
    Source:
        You et al., Large batch optimization for deep learning: training BERT in 76 minutes, 2020.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Lamb(eta=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.842, 2.158])
    """
    def __init__(
        self,
        eta: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        gamma_l: float = 0.0,
        gamma_u: float = 10.0,
        eps: float = 1e-06,
        bias_correction: bool = False,
    ) -> None: ...

class Lion(Solver):
    """Lion, steps along the sign of a mean of the gradients: `w <- w - lr (sign(beta1 m + (1 - beta1) g) + wd w)`,
    `m <- beta2 m + (1 - beta2) g`.

    `wd` is the rate last given to `weight_decay`, 0 otherwise.

    Args:
        lr: Learning rate, usually 3 to 10 times smaller than for Adam.
        beta1: Weight of the mean against the gradient in a step.
        beta2: Decay of the mean.
    Returns:
        The solver.
    Source:
        Chen et al., Symbolic discovery of optimization algorithms, 2023.

    Examples:
        >>> import kinnor as nn, kinnor.solvers as S
        >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
        >>> w.g = [0.5, -1.0]
        >>> solver = S.Lion(lr=0.1)
        >>> solver.set_parameters({"w": w})
        >>> solver.update()
        >>> w.d.round(3)
        array([0.9, 2.1])
    """
    def __init__(self, lr: float = 0.0001, beta1: float = 0.9, beta2: float = 0.99) -> None: ...

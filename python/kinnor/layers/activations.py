"""Activations as layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .. import _check
from .. import functions as F
from ..core import Module
from ..initializer import ConstantInitializer
from ..parameter import get_parameter_or_create
from .arguments import check_axis, registered, whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._core import Variable
    from ..initializer import Initializer

__all__ = ["ELU", "Activation", "FunctionLayer", "LeakyReLU", "LogSoftmax", "PReLU", "Softmax", "Softplus"]


class Activation(Module):
    """Any function of one variable as a layer, for use in `Sequential`.

    Args:
        function: The function, such as one of `kinnor.functions`.

    Examples:
        >>> import kinnor as nn, kinnor.functions as F, kinnor.layers as L
        >>> L.Sequential(L.Linear(3, 2), L.Activation(F.softsign))(nn.Variable((5, 3))).shape
        (5, 2)
    """

    def __init__(self, function: Callable[[Variable], Variable]) -> None:
        self.function: Callable[[Variable], Variable] = _check.callee("Activation", "function", function)

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return getattr(self.function, "__name__", repr(self.function))

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input.

        Returns:
            The result of the function.
        """
        return self.function(x)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class FunctionLayer(Module):
    """A layer that applies one function to its input."""

    FUNCTION: ClassVar[Callable[..., Any]]
    """The function of the layer."""
    ARGUMENT: ClassVar[str | None] = None
    """The attribute that is the second argument of the function, if it has one."""

    def __init__(self) -> None:
        """Takes no arguments; errors about arguments of other libraries need the method."""

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return "" if self.ARGUMENT is None else f"{getattr(self, self.ARGUMENT)}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, any shape; a softmax needs at least one axis.

        Returns:
            Array of the shape of the input.
        """
        y: Variable = self.FUNCTION(x) if self.ARGUMENT is None else self.FUNCTION(x, getattr(self, self.ARGUMENT))
        return y

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call


class ELU(FunctionLayer):
    """Exponential linear unit: `x` if `x > 0`, else `alpha (exp(x) - 1)`.

    Args:
        alpha: The value that is approached far to the left, negated.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.ELU()(nn.Variable((2, 3))).shape
        (2, 3)
    """

    FUNCTION = staticmethod(F.elu)
    ARGUMENT = "alpha"

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = _check.number("ELU", "alpha", alpha)


class LeakyReLU(FunctionLayer):
    """Leaky rectified linear unit: `x` if `x > 0`, else `alpha x`.

    Args:
        alpha: Slope of the negative side; PyTorch's default is 0.01.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.LeakyReLU()(nn.Variable((2, 3))).shape
        (2, 3)
    """

    FUNCTION = staticmethod(F.leaky_relu)
    ARGUMENT = "alpha"

    def __init__(self, alpha: float = 0.1) -> None:
        self.alpha = _check.number("LeakyReLU", "alpha", alpha)


class LogSoftmax(FunctionLayer):
    """Logarithm of the softmax along an axis.

    Args:
        axis: The axis.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.LogSoftmax()(nn.Variable((2, 3))).shape
        (2, 3)
    """

    FUNCTION = staticmethod(F.log_softmax)
    ARGUMENT = "axis"

    def __init__(self, axis: int = -1) -> None:
        self.axis = _check.whole("LogSoftmax", "axis", axis)


class Softmax(FunctionLayer):
    """Softmax along an axis: `exp(x) / sum(exp(x))`.

    Args:
        axis: The axis.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.Softmax()(nn.Variable((2, 3))).shape
        (2, 3)
    """

    FUNCTION = staticmethod(F.softmax)
    ARGUMENT = "axis"

    def __init__(self, axis: int = -1) -> None:
        self.axis = _check.whole("Softmax", "axis", axis)


class Softplus(FunctionLayer):
    """Softplus: `log(1 + exp(beta x)) / beta`.

    Args:
        beta: Sharpness: the larger, the closer to `ReLU`.

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.Softplus()(nn.Variable((2, 3))).shape
        (2, 3)
    """

    FUNCTION = staticmethod(F.softplus)
    ARGUMENT = "beta"

    def __init__(self, beta: float = 1.0) -> None:
        self.beta = _check.number("Softplus", "beta", beta)


class PReLU(Module):
    """Rectified linear unit with a learned slope: `max(x, 0) + slope min(x, 0)`. The parametric function is `prelu`.

    Args:
        num_parameters: 1 for a slope that all channels share, or the number of channels.
        slope_init: Initial slope; by default 0.25.

    Attributes:
        slope: The slope, shape () or (num_parameters,).

    Examples:
        >>> import kinnor as nn, kinnor.layers as L
        >>> L.PReLU(3)(nn.Variable((2, 3, 4))).shape
        (2, 3, 4)

    Source:
        He, Zhang, Ren, Sun: Delving deep into rectifiers, 2015.
    """

    slope: Variable

    def __init__(self, num_parameters: int = 1, *, slope_init: Initializer | None = None) -> None:
        self.num_parameters = whole("PReLU", "num_parameters", num_parameters)
        init = ConstantInitializer(0.25) if slope_init is None else slope_init
        get_parameter_or_create("slope", () if self.num_parameters == 1 else (self.num_parameters,), init)
        self.slope = registered(self, "slope")

    def extra_repr(self) -> str:
        """The arguments that `repr` shows."""
        return f"{self.num_parameters}"

    def call(self, x: Variable) -> Variable:
        """The output.

        Args:
            x: Input, shape (n, channels, ...).

        Returns:
            Array of the shape of the input.

        Raises:
            ShapeError: If the input has another number of channels.
        """
        if self.num_parameters > 1:
            check_axis("PReLU", x, 1, self.num_parameters)
        return F.prelu(x, self.slope, 1)

    if TYPE_CHECKING:  # Editors show the arguments.
        __call__ = call

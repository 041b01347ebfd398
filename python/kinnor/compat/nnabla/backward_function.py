"""Gradients of linear functions as classes, which NNabla's programs construct by name.

A call builds the gradient as a graph, which can be differentiated again.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING, Any

from kinnor import Variable, _core
from kinnor import functions as F

from ._composite import Composite

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["modules"]


class LinearGrad:
    """The base class of the gradients. It stores the arguments of the function; the context has no effect."""

    function: Callable[..., Variable]
    names: Sequence[str]

    def __init__(self, ctx: Any, *args: Any, **kwargs: Any) -> None:
        self.ctx, self.args = ctx, {**dict(zip(self.names, args, strict=False)), **kwargs}

    def gradients(self, inputs: Sequence[Variable], wanted: Sequence[Variable], gy: Variable) -> Any:
        """The gradients of the function with respect to the inputs in `wanted`."""
        y = type(self).function(*inputs, **self.args)
        found = _core.grad_graph([y], list(wanted), [gy])
        return found[0] if len(found) == 1 else tuple(found)


class DataGrad(LinearGrad):
    """The gradient of the first input: `gx = f(gy[, w])`. Set its shape `xshape` before the call."""

    xshape: tuple[int, ...]

    def __call__(self, gy: Variable, *weights: Variable) -> Any:
        x = Variable(self.xshape, need_grad=True)
        return self.gradients([x, *weights], [x], gy)


class FilterGrad(LinearGrad):
    """The gradient of the weights: `gw = f(gy, x)`. Set their shape `wshape` before the call."""

    wshape: tuple[int, ...]

    def __call__(self, gy: Variable, x: Variable) -> Any:
        w = Variable(self.wshape, need_grad=True)
        return self.gradients([x, w], [w], gy)


class ListGrad(LinearGrad):
    """The gradients of all inputs: `(gx0, gx1, ...) = f(gy)`. Set their shapes `xshapes` before the call."""

    xshapes: Sequence[tuple[int, ...]]

    def __call__(self, gy: Variable) -> Any:
        x = [Variable(shape, need_grad=True) for shape in self.xshapes]
        return self.gradients(x, x, gy)


class ResizeGrad(DataGrad):
    """The gradient of a resize to given lengths. It aligns corners by default, as NNabla's does."""

    def __init__(self, ctx: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(ctx, None, *args, **kwargs)
        self.args.setdefault("align_corners", True)


class PoolingGrad(LinearGrad):
    """The second gradient of a pooling: `ggy = f(ggx, x)`. Set the output's shape `yshape` before the call."""

    yshape: tuple[int, ...]

    def __call__(self, ggx: Variable, x: Variable) -> Any:
        gy = Variable(self.yshape, need_grad=True)
        return self.gradients([gy, x], [gy], ggx)


class BatchNormalizationBackward:
    """Gradients of a batch normalization: `(gx[, gbeta][, ggamma]) = f(gy, x[, beta][, gamma], mean, variance)`."""

    def __init__(
        self,
        ctx: Any,
        axes: Sequence[int] = (1,),
        decay_rate: float = 0.9,
        eps: float = 1e-5,
        batch_stat: bool = True,
        no_scale: bool = False,
        no_bias: bool = False,
    ) -> None:
        self.ctx, self.args = ctx, (list(axes), decay_rate, eps, batch_stat)
        self.has_gamma, self.has_beta = not no_scale, not no_bias

    def __call__(self, gy: Variable, x: Variable, *others: Variable) -> Any:
        # NNabla returns the gradients of all inputs, also of inputs that need none.
        rest = list(others)
        x, *params = (F.identity(v).apply(need_grad=True) for v in (x, *rest[: self.has_beta + self.has_gamma]))
        del rest[: len(params)]
        beta = params.pop(0) if self.has_beta else None
        gamma = params.pop(0) if self.has_gamma else None
        wanted = [v for v in (x, beta, gamma) if v is not None]
        y = _core.functions.batch_normalization(x, beta, gamma, *rest, *self.args)
        found = _core.grad_graph([y], wanted, [gy])
        return found[0] if len(found) == 1 else tuple(found)


class FusedBatchNormalizationBackward(Composite):
    """The gradients of a fused batch normalization.

    `(gx, gbeta, ggamma[, gz]) = f(gy, x, beta, gamma, mean, variance, y[, z])`. Set `is_add` before the call if there
    is a `z`. No gradients flow to `y` and `z`.
    """

    def __init__(
        self,
        ctx: Any,
        axes: Sequence[int] = (1,),
        decay_rate: float = 0.9,
        eps: float = 1e-5,
        batch_stat: bool = True,
        nonlinearity: str = "relu",
    ) -> None:
        super().__init__(ctx)
        self.args: dict[str, Any] = {
            "axes": list(axes),
            "decay_rate": decay_rate,
            "eps": eps,
            "batch_stat": batch_stat,
        }
        self.nonlinearity, self.is_add = nonlinearity, False

    def min_outputs(self) -> int:
        """The number of outputs: one for each input of the normalization that has a gradient."""
        return 4 if self.is_add else 3

    def compose(self, *inputs: Variable) -> list[Variable]:
        """Build the graph of the gradients."""
        gy, x, beta, gamma, mean, variance, y, *_ = inputs
        if self.nonlinearity == "relu":
            gy = gy * F.greater_scalar(y, 0)
        found = list(BatchNormalizationBackward(self.ctx, **self.args)(gy, x, beta, gamma, mean, variance))
        return [*found, F.identity(gy)] if self.is_add else found


LINEAR: dict[str, dict[str, type[LinearGrad]]] = {
    "affine": {"AffineDataGrad": DataGrad, "AffineFilterGrad": FilterGrad},
    "average_pooling": {"AveragePoolingDataGrad": DataGrad},
    "concatenate": {"ConcatenateDataGrad": ListGrad},
    "convolution": {"ConvolutionDataGrad": DataGrad, "ConvolutionFilterGrad": FilterGrad},
    "deconvolution": {"DeconvolutionDataGrad": DataGrad, "DeconvolutionFilterGrad": FilterGrad},
    "embed": {"EmbedFilterGrad": FilterGrad},
    "global_average_pooling": {"GlobalAveragePoolingDataGrad": DataGrad},
    "interpolate": {"InterpolateDataGrad": ResizeGrad},
    "max_pooling_backward": {"MaxPoolingBackwardDataGrad": PoolingGrad},
    "pad": {"PadDataGrad": DataGrad},
    "slice": {"SliceDataGrad": DataGrad},
    "sum_pooling": {"SumPoolingDataGrad": DataGrad},
    "transpose": {"TransposeDataGrad": DataGrad},
    "unpooling": {"UnpoolingDataGrad": DataGrad},
}
"""Classes of gradients by NNabla's module `NAME` and class name, for functions whose gradient is linear."""


def modules() -> dict[str, ModuleType]:
    """The modules of `nnabla.backward_function`, one for each function.

    Returns:
        The modules by name.
    """
    arguments = {name: [a[0] for a in args] for name, _, _, args, _ in _core.declarations()}
    made = {}
    for name, classes in LINEAR.items():
        made[name] = ModuleType(f"{__name__}.{name}", f"Gradients of `{name}`.")
        for title, base in classes.items():
            members = {"function": staticmethod(getattr(F, name)), "names": arguments[name]}
            setattr(made[name], title, type(title, (base,), {**members, "__doc__": base.__doc__}))
    normalization = ModuleType(f"{__name__}.batch_normalization", "Gradients of `batch_normalization`.")
    vars(normalization)["BatchNormalizationBackward"] = BatchNormalizationBackward
    fused = ModuleType(f"{__name__}.fused_batch_normalization", "Gradients of `fused_batch_normalization`.")
    vars(fused)["FusedBatchNormalizationBackward"] = FusedBatchNormalizationBackward
    return {**made, "batch_normalization": normalization, "fused_batch_normalization": fused}

"""Base classes of networks: inputs, stages, and the locations of weight files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..._core import RangeError, ShapeError, UnsupportedError, Variable
from ...parameter import ParameterError, get_parameters, parameter_scope, set_parameter
from .utils import get_model_home, get_model_url_base

if TYPE_CHECKING:
    from ...parameter.tree import Scope

__all__ = ["BuiltModel", "Model", "Stages"]


class Stages:
    """The outputs of named stages of a network under construction, at which a user can stop."""

    def __init__(self) -> None:
        self.values: dict[str, Variable] = {}

    def note(self, name: str, value: Variable) -> Variable:
        """Record the output of a stage, and return it."""
        self.values[name] = value
        return value


class Model:
    """A network on images, with weights from a file or random weights."""

    FOLDER: ClassVar[str] = ""
    """Folder of its files below `kinnor.models.utils.get_model_home()`, and in NNabla's download address."""
    SHAPE: ClassVar[tuple[int, int, int]] = (3, 224, 224)
    """Shape of an image."""

    def __init__(self) -> None:
        self.nnp: Any = None
        self._scope: Scope = {}

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Shape of an image: channels, height, width."""
        return self.SHAPE

    def get_input_var(self, input_var: Variable | None) -> Variable:
        """The input variable of the network.

        Args:
            input_var: Images, shape (n, 3, height, width); None creates one of the network's default shape.

        Returns:
            The variable.

        Raises:
            ShapeError: If `input_var` has another shape.
        """
        if input_var is None:
            return Variable((1, *self.input_shape))
        if input_var.ndim != 4 or input_var.shape[1] != 3:
            raise ShapeError(
                f"{type(self).__name__}: expected images of shape (n, 3, height, width), got shape {input_var.shape}"
            )
        return input_var

    def get_parameters(self) -> Any:
        """The parameters of the last network built by this object.

        Returns:
            Variables by path.
        """
        return get_parameters(self._scope, grad_only=False)

    def _expected(self, name: str | Path) -> Path:
        """The path of a file. Raises FileNotFoundError if it does not exist."""
        given = Path(name)
        path = given if given.is_absolute() or given.exists() else Path(get_model_home(), self.FOLDER, given)
        if not path.is_file():
            kind = type(self).__name__
            raise FileNotFoundError(
                f"{kind}: expected a file {path}, which is not there, and nothing is downloaded; NNabla's are at "
                f"{get_model_url_base()}{self.FOLDER}/, and {kind}(weights=None) has random weights"
            )
        return path


class BuiltModel(Model):
    """A network built in Python, for images of any size, with random weights or parameters from a file.

    Args:
        file: NNabla's file of the network.
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        FileNotFoundError: If the file does not exist. The message contains the expected path.
    """

    STAGES: ClassVar[tuple[str, ...]] = ("output",)
    """The stages that a user can stop at, the last one first."""
    UNUSED: ClassVar[tuple[str, ...]] = ()
    """Names of parameters in NNabla's file that this class computes itself."""

    def __init__(self, file: str, weights: str | Path | None) -> None:
        super().__init__()
        self._whole: Scope = {}
        self._path = None if weights is None else self._expected(file if weights == "file" else weights)
        if self._path is not None:
            from ..utils.nnp_graph import NnpLoader

            self.nnp = NnpLoader(str(self._path), self._whole)
            self._scope = {name: held for name, held in self._whole.items() if name not in self.UNUSED}

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network. Subclasses define it.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.

        Raises:
            UnsupportedError: If the subclass does not define it.
        """
        raise UnsupportedError(f"{type(self).__name__}: expected a subclass that defines `build`, got the base class")

    def __call__(
        self,
        input_var: Variable | None = None,
        use_from: str | None = None,
        use_up_to: str | None = None,
        training: bool = False,
        returns_net: bool = False,
        verbose: int = 0,
    ) -> Any:
        """Build the network.

        Args:
            input_var: Images, shape (n, 3, height, width); by default a new variable of the network's default shape.
            use_from: Without effect.
            use_up_to: The stage to stop at, one of `STAGES`; by default the first of them, the end of the network.
            training: Whether batch normalizations use batch statistics and parameters need gradients.
            returns_net: Whether to return an `NnpNetwork` with input `x` and output `y` instead of the output.
            verbose: Without effect.

        Returns:
            The output of the stage. Parameters from a file are also registered in the current scope.

        Raises:
            RangeError: If the stage does not exist.
            ParameterError: If the parameters of the file do not match the network.
        """
        kind, stage = type(self).__name__, use_up_to or self.STAGES[0]
        x = self.get_input_var(input_var)
        if stage not in self.STAGES:
            raise RangeError(f"{kind}: expected `use_up_to` to be one of {', '.join(self.STAGES)}, got {stage!r}")
        given, stages = set(self.get_parameters()), Stages()
        with parameter_scope("", self._scope):
            self.build(x, training, stages)
        made = [name for name in self.get_parameters() if name not in given]
        if self._path is not None and made:
            raise ParameterError(f"{kind}: expected a parameter {made[0]!r} in {self._path}, got none")
        y = stages.values[stage]
        if self._path is not None:
            self._register(y)
        return self._network(x, y, training) if returns_net else y

    def _register(self, y: Variable) -> None:
        """Register the parameters of a graph in the current scope, as loading an NNP file does."""
        used: dict[Any, Variable] = {}
        y.visit(lambda f: used.update((v.data, v) for v in f.inputs))
        for name, parameter in self.get_parameters().items():
            if parameter.data in used:
                set_parameter(name, used[parameter.data])

    def _network(self, x: Variable, y: Variable, training: bool) -> Any:
        """The graph as an `NnpNetwork`: its variables by name."""
        from ...nnp import create_graph_from_variable
        from ..utils.nnp_graph import NnpNetwork, NnpNetworkPass

        described = create_graph_from_variable("runtime", y, {"x": x, "y": y}, self._scope).default_graph()
        change = NnpNetworkPass()
        change.set_variable("x", x)
        if not training:
            change.fix_parameters()
        with parameter_scope("", {}):
            return NnpNetwork(described, x.shape[0], change)

"""The base class of networks for ImageNet: inputs, stages, and weights from files or random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .... import functions as F
from ...._core import RangeError, UnsupportedError
from ....parameter import parameter_scope
from ..base import Model, Stages

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ...._core import Variable

__all__ = ["ImageNetBase", "OneVersion", "Stages"]


class ImageNetBase(Model):
    """A network that classifies images into 1,000 classes.

    NNabla's file with the weights is expected in the folder `imagenet` of `kinnor.models.utils.get_model_home()`.
    Weights can also come from another file, or be random.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        FileNotFoundError: If the file does not exist. The message contains the expected path.
    """

    FILE: ClassVar[str] = ""
    """Name of NNabla's file."""
    NETWORK: ClassVar[str] = "Training"
    """Name of the network in the file."""
    INPUT: ClassVar[str] = "InputX"
    """Name of the input in the file."""
    KEYS: ClassVar[Mapping[str, str]] = {}
    """Names in the file of the stages that a user can stop at."""
    AUGMENTATION: ClassVar[str] = "ImageAugmentationX"
    """Name in the file of a function that is always removed."""
    DROPOUTS: ClassVar[tuple[str, ...]] = ()
    """Names in the file of functions that are removed except in training."""
    TOWERS: ClassVar[tuple[str, ...]] = ()
    """Names in the file of auxiliary classifiers, which are removed."""
    POOLING: ClassVar[str | None] = None
    """Name in the file of the global pooling."""
    POOLS_EVERYWHERE: ClassVar[bool] = False
    """Whether every average pooling in the file is global, not only `POOLING`."""
    FOLDER = "imagenet"
    """The folder of NNabla's files, in `get_model_home()`."""

    def __init__(self, weights: str | Path | None = "file") -> None:
        super().__init__()
        if weights is not None:
            self._load_nnp(self.FILE if weights == "file" else weights)

    @property
    def category_names(self) -> list[str]:
        """The names of the classes: the lines of `category_names.txt` in the folder of the files.

        Raises:
            FileNotFoundError: If the file does not exist.
        """
        return self._expected("category_names.txt").read_text().splitlines()

    def __call__(
        self,
        input_var: Variable | None = None,
        use_from: str | None = None,
        use_up_to: str = "classifier",
        training: bool = False,
        force_global_pooling: bool = False,
        check_global_pooling: bool = True,
        returns_net: bool = False,
        verbose: int = 0,
    ) -> Any:
        """Build the network.

        Args:
            input_var: Images, shape (n, 3, height, width); by default a new variable of the network's default shape.
            use_from: Without effect.
            use_up_to: The stage to stop at, one of `KEYS`.
            training: Whether batch normalizations use batch statistics, dropout is active and parameters need
                gradients.
            force_global_pooling: Whether the last pooling covers the whole image, for any size.
            check_global_pooling: Whether to reject images that the last pooling does not cover.
            returns_net: Whether to return the network of the file instead of its output.
            verbose: Amount of messages while the file is read.

        Returns:
            The output of the stage.

        Raises:
            RangeError: If the stage does not exist.
            NetworkError: If the last pooling of a file does not cover the images. It is also a `ValueError`.
        """
        x = self.get_input_var(input_var)
        if use_up_to not in self.KEYS:
            raise RangeError(
                f"{type(self).__name__}: expected `use_up_to` to be one of {', '.join(self.KEYS)}, got {use_up_to!r}"
            )
        if self.nnp is not None:
            global_pooling = (force_global_pooling, check_global_pooling)
            net = self._from_file(x, use_up_to, training, global_pooling, verbose)
            return net if returns_net else next(iter(net.outputs.values()))
        stages = Stages()
        with parameter_scope("", self._scope):
            self.build(F.identity(x), training, stages)
        return stages.values[use_up_to]

    def build(self, x: Variable, training: bool, stages: Stages) -> None:
        """Build the network with its own weights. Subclasses define it.

        Args:
            x: Images.
            training: Argument of the call.
            stages: Records the outputs of stages.

        Raises:
            UnsupportedError: If the subclass does not define it.
        """
        raise UnsupportedError(f"{type(self).__name__}: expected weights from a file, because it has no builder")

    def _from_file(
        self, x: Variable, use_up_to: str, training: bool, global_pooling: tuple[bool, bool], verbose: int
    ) -> Any:
        """Build the network of the file."""
        from ...utils.nnp_graph import NnpNetworkPass

        change = NnpNetworkPass(verbose)
        if self.INPUT == self.AUGMENTATION:
            change.drop_function(self.AUGMENTATION)
        else:
            change.remove_and_rewire(self.AUGMENTATION)
        change.set_variable(self.INPUT, x)
        if self.POOLING is not None:
            force, check = global_pooling
            which = ("AveragePooling", True) if self.POOLS_EVERYWHERE else (self.POOLING, False)
            if force:
                change.force_average_pooling_global(*which)
            elif check:
                change.check_average_pooling_global(*which)
        change.set_batch_normalization_batch_stat_all(training)
        change.drop_function(*self.TOWERS)
        change.use_up_to(self.KEYS[use_up_to])
        if not training:
            for name in self.DROPOUTS:
                change.remove_and_rewire(name)
            change.fix_parameters()
        return self.nnp.get_network(self.NETWORK, batch_size=x.shape[0], callback=change)

    def _load_nnp(self, rel_name: str | Path, rel_url: str | None = None) -> None:
        """Read one of NNabla's files by its name, or any file by its path."""
        from ...utils.nnp_graph import NnpLoader

        self.nnp = NnpLoader(str(self._expected(rel_name)))


class OneVersion(ImageNetBase):
    """The first base of a network in one version, as ResNet18. The second base takes the version as an argument.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.
    """

    VERSION: ClassVar[Any]
    """The version: a depth, a width or a name."""

    def __init__(self, weights: str | Path | None = "file") -> None:
        super().__init__(self.VERSION, weights)  # type: ignore[call-arg]

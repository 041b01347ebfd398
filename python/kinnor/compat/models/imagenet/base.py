"""What networks for ImageNet have in common: inputs, weights from files or at random, and how far they go."""

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

__all__ = ["ImageNetBase", "Stages"]


class ImageNetBase(Model):
    """A network that tells 1,000 classes of images apart.

    Its weights are those of NNabla's file of the network, which is looked for in the folder `imagenet` of
    `kinnor.models.utils.get_model_home()`; or those of another file; or random ones.

    Args:
        weights: `"file"` for NNabla's file, the path of another NNP file, or None for random weights.

    Raises:
        FileNotFoundError: If there is no such file. The message says where it was expected.
    """

    FILE: ClassVar[str] = ""
    """Name of NNabla's file."""
    NETWORK: ClassVar[str] = "Training"
    """Name in it of the network."""
    INPUT: ClassVar[str] = "InputX"
    """Name of the input in it."""
    KEYS: ClassVar[Mapping[str, str]] = {}
    """Names in it of the stages that one may stop at."""
    AUGMENTATION: ClassVar[str] = "ImageAugmentationX"
    """Name in it of the function that is taken out."""
    DROPOUTS: ClassVar[tuple[str, ...]] = ()
    """Names in it of functions that are taken out but for training."""
    TOWERS: ClassVar[tuple[str, ...]] = ()
    """Names in it of functions that classify halfway and are left out."""
    POOLING: ClassVar[str | None] = None
    """Name in it of the pooling that is global."""
    POOLS_EVERYWHERE: ClassVar[bool] = False
    """Whether each average pooling in it is global, that of `POOLING` being one of many."""
    FOLDER = "imagenet"

    def __init__(self, weights: str | Path | None = "file") -> None:
        super().__init__()
        if weights is not None:
            self._load_nnp(self.FILE if weights == "file" else weights)

    @property
    def category_names(self) -> list[str]:
        """The names of the classes, a line each of `category_names.txt` beside the files of the networks.

        Raises:
            FileNotFoundError: If there is no such file.
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
            input_var: Images, shape (n, 3, height, width); by default one of the shape that the network is made for.
            use_from: Not used.
            use_up_to: The stage to stop at; `KEYS` names them.
            training: Whether batch normalizations use the batch, dropouts drop and parameters need gradients.
            force_global_pooling: Whether the last pooling takes the whole image, however large it is.
            check_global_pooling: Whether to refuse images that the last pooling does not take whole.
            returns_net: Whether to return the network of the file instead of its output.
            verbose: How much to tell of the reading of the file.

        Returns:
            The output of the stage.

        Raises:
            RangeError: If there is no such stage.
            NetworkError: If the last pooling of a file does not take the images whole, which is a `ValueError`.
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
        """Build the network with weights of its own; subclasses define it.

        Args:
            x: Images.
            training: As of the call.
            stages: Where the values of stages are noted.

        Raises:
            UnsupportedError: If there is no builder.
        """
        raise UnsupportedError(f"{type(self).__name__}: expected weights from a file, there is no builder without")

    def _from_file(
        self, x: Variable, use_up_to: str, training: bool, global_pooling: tuple[bool, bool], verbose: int
    ) -> Any:
        """The network of the file."""
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
        """Read a file: one of NNabla's by its name, or any by its path."""
        from ...utils.nnp_graph import NnpLoader

        self.nnp = NnpLoader(str(self._expected(rel_name)))

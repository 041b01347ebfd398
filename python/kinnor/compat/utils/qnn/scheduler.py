"""The schedule of quantization-aware training: first recording, then training with quantized values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import functions as F
from ...._core import ArgumentError, CallError, UnsupportedError, Variable
from ....logger import logger
from ....parameter import get_parameters
from ...experimental import graph_converters as GC
from .configuration import QATConfig, QNNState, qat_default_config

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...._core import Function
    from ....solvers import Solver

__all__ = [
    "FunctionsRankRecorder",
    "QATScheduler",
]


class FunctionsRankRecorder:
    """Numbers the functions of a graph in the order of visits.

    Args:
        functions_only_for_training: Types without a number, so that training and evaluation graphs have equal numbers.

    Attributes:
        functions_ranks: The number of each function.

        >>> import kinnor as nn, kinnor.functions as F
        >>> from kinnor.utils.qnn import FunctionsRankRecorder
        >>> ranks = FunctionsRankRecorder()
        >>> F.relu(F.dropout(F.tanh(nn.Variable((2,))))).visit(ranks)
        >>> list(ranks.functions_ranks.values())
        [0, 1]
    """

    def __init__(self, functions_only_for_training: Sequence[str] = ("ImageAugmentation", "Dropout")) -> None:
        self.functions_only_for_training = functions_only_for_training
        self.rank = 0
        self.functions_ranks: dict[Function, int] = {}

    def __call__(self, f: Function) -> None:
        """Number a function.

        Args:
            f: The function.
        """
        if f.info.type_name not in self.functions_only_for_training:
            self.functions_ranks[f] = self.rank
            self.rank += 1


class QATScheduler:
    """Converts a network for quantization-aware training: inserts recorders first, then quantization.

    While ranges are recorded, the network has no gradients.

    Args:
        config: The configuration.
        solver: Solver that gets the new parameters of folding and a smaller learning rate; None for none.

    Raises:
        ArgumentError: If training would not start after recording.

    Source:
        Jacob et al., Quantization and training of neural networks for efficient integer-arithmetic-only inference,
        2018.

        >>> import kinnor as nn, kinnor.parametric_functions as PF
        >>> from kinnor.utils.qnn import QATConfig, QATScheduler
        >>> config = QATConfig()
        >>> config.niter_to_recording, config.niter_to_training = 1, 3
        >>> config.skip_inputs_layers = config.skip_outputs_layers = []
        >>> x = nn.Variable((4, 2))
        >>> y = PF.affine(x, 3, name="scheduled")
        >>> scheduler = QATScheduler(config)
        >>> scheduler(y)
        >>> for _ in range(4):
        ...     scheduler.step()
        ...     x.d = 1
        ...     y.forward()
        >>> scheduler.state.name, y.parent.inputs[0].parent.info.type_name
        ('TRAINING', 'DequantizeLinear')
    """

    def __init__(self, config: QATConfig = qat_default_config, solver: Solver | None = None) -> None:
        start, end = config.niter_to_recording, config.niter_to_training
        if not 0 <= start < end:
            raise ArgumentError(
                "QATScheduler: expected 0 <= niter_to_recording < niter_to_training, "
                f"got niter_to_recording {start} and niter_to_training {end}"
            )
        self.config, self.solver = config, solver
        self.counter = 0
        self.state = QNNState.NON_QNN
        self.registry: list[tuple[Any, bool]] = []

    def __call__(self, pred: Variable | Sequence[Variable], training: bool = True) -> None:
        """Register a network for conversion.

        Args:
            pred: Its output, or a list of outputs.
            training: Whether the network records ranges. Other networks use the recorded ranges.

        Raises:
            CallError: If `pred` is not a variable or a list of variables.
        """
        for y in _listed(pred):
            if not isinstance(y, Variable):
                raise CallError(f"QATScheduler: expected `pred` to be a Variable or a list of them, got {y!r}")
        self.registry.append((pred, training))

    def step(self) -> None:
        """Count a training step, and convert the networks when a phase begins."""
        if self.counter == self.config.niter_to_recording:
            for pred, training in self.registry:
                self._record(_listed(pred), training)
            self._change(QNNState.RECORDING)
        elif self.counter == self.config.niter_to_training:
            for pred, _ in self.registry:
                self._round(_listed(pred))
            self._change(QNNState.TRAINING)
            if self.solver is not None:
                self.solver.set_learning_rate(self.solver.learning_rate() * self.config.learning_rate_scale)
        self.counter += 1

    def save(
        self,
        fname: str,
        inputs: Variable | Sequence[Variable],
        batch_size: int = 1,
        net_name: str = "net",
        deploy: bool = False,
    ) -> None:
        """Write the last network that was registered with `training=False`.

        Args:
            fname: Path of an NNP file.
            inputs: The inputs. They are named `x0`, `x1` and so on, outputs `y0`, `y1` and so on.
            batch_size: The batch size of the file.
            net_name: Name of the network in the file.
            deploy: Not implemented: must be False.

        Raises:
            UnsupportedError: If `deploy` is true.
            ArgumentError: If no network was registered with `training=False`.
        """
        from ..save import save

        if deploy:
            raise UnsupportedError("QATScheduler.save: expected `deploy` False, got True, which is not implemented")
        found = [pred for pred, training in self.registry if not training]
        if not found:
            raise ArgumentError("QATScheduler.save: expected a network taken in with `training=False`, got none")
        names = {f"x{place}": x for place, x in enumerate(_listed(inputs))}
        outputs = {f"y{place}": y for place, y in enumerate(_listed(found[-1]))}
        network = {"name": net_name, "batch_size": batch_size, "outputs": outputs, "names": names}
        executor = {"name": "runtime", "network": net_name, "data": list(names), "output": list(outputs)}
        save(fname, {"networks": [network], "executors": [executor]})

    def _change(self, state: QNNState) -> None:
        """Begin a phase: convert the networks and scale the learning rate."""
        logger.info(f"QATScheduler: {self.state.name} -> {state.name} at step {self.counter}")
        self.state = state
        config = self.config
        if self.solver is not None and (config.bn_folding or config.bn_self_folding):
            self.solver.set_parameters(get_parameters(grad_only=True))

    def _record(self, outputs: list[Variable], training: bool) -> None:
        """Insert recorders into a network."""
        config, last = self.config, self.config.channel_last
        folding: list[Any] = []
        if config.bn_folding:
            folding += [GC.BatchNormalizationFoldingModifier(opposite, last) for opposite in (False, True)]
        if config.bn_self_folding:
            folding.append(GC.BatchNormalizationSelfFoldingModifier())
        if folding:
            _convert(outputs, GC.UnfusedBatchNormalizationModifier(), *folding)
        _convert(outputs, GC.QuantizeNonQNNToRecordingModifier(_ranks(outputs), config, training))
        for y in outputs:
            y.need_grad = False

    def _round(self, outputs: list[Variable]) -> None:
        """Replace the recorders of a network by quantization."""
        config = self.config
        recorders = [config.recorder_activation().name(), config.recorder_weight().name()]
        _convert(outputs, GC.RemoveFunctionModifier(recorders))
        _convert(outputs, GC.QuantizeRecordingToTrainingModifier(_ranks(outputs), config))


def _listed(given: Any) -> list[Any]:
    """A list of one or several elements."""
    return list(given) if isinstance(given, (list, tuple)) else [given]


def _convert(outputs: list[Variable], *modifiers: Any) -> None:
    """Rewrite a network. Its output variables stay and get new parents."""
    for y, made in zip(outputs, GC.GraphConverter(modifiers).convert(outputs), strict=True):
        y.rewire_on(made)


def _ranks(outputs: list[Variable]) -> dict[Function, int]:
    """The numbers of the functions of a network."""
    ranks = FunctionsRankRecorder()
    F.sink(*outputs).visit(ranks)
    return ranks.functions_ranks

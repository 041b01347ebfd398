"""Graphs, parameters and profiles for TensorBoard, by the package tensorboardX: the extra `tensorboard`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from . import _check
from ._core import CallError, Variable
from .files.packages import needed
from .parameter import get_parameters
from .profiling import Profile

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from ._core import Function, NdArray

__all__ = ["TBGraphWriter"]


class _Patient:
    """Writes records in tensorboardX's thread, which would end at the first error: its queue would fill, and block.

    Args:
        writer: Writes them.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._error: Exception | None = None
        self.is_told = False

    def _try(self, what: Callable[..., object], *args: Any) -> None:
        try:
            what(*args)
        except Exception as error:
            self._error = self._error or error

    def write_event(self, event: Any) -> None:
        if self._error is None:
            self._try(self._writer.write_event, event)

    def flush(self) -> None:
        if self._error is None:
            self._try(self._writer.flush)

    def close(self) -> None:
        self._try(self._writer.close)

    def check(self) -> None:
        """Raise the first error, if there was one."""
        if self._error is not None:
            self.is_told = True
            raise self._error


class _Checked:
    """Adds an event, unless an earlier one was not written."""

    def __init__(self, add: Callable[[Any], object], writer: _Patient) -> None:
        self._add, self._writer = add, writer

    def __call__(self, event: Any) -> None:
        self._writer.check()
        self._add(event)


class TBGraphWriter:
    """Writes for TensorBoard: graphs, parameters, profiles; all else (`add_scalar`, ...) is tensorboardX's.

    `tensorboard --logdir log_out` shows what is in a folder.

    Args:
        log_dir: Path of the folder; one with the time and the host in its name, in `runs`, by default.
        comment: What the name of that folder ends with.
        **kwargs: Further arguments of `tensorboardX.SummaryWriter`.

    Raises:
        ImportError: If tensorboardX is not installed.

    Examples:
        >>> import tempfile, kinnor as nn
        >>> y = nn.functions.relu(nn.Variable((2, 3)))
        >>> with tempfile.TemporaryDirectory() as folder, TBGraphWriter(log_dir=folder) as writer:
        ...     writer.from_variable(y, output_name="y")
        ...     writer.add_scalar("loss", 0.5, 0)
        ...     [(node.name, node.op) for node in writer.graph_def(y, "y").node]
        [('x', 'Variable'), ('ReLU', 'ReLU'), ('y', 'Variable')]
    """

    def __init__(self, log_dir: str | os.PathLike[str] = "", comment: str = "", **kwargs: Any) -> None:
        package = needed("TBGraphWriter", "tensorboardX", "TensorBoard", "tensorboard")
        self._writer = package.SummaryWriter(str(log_dir) or None, comment, **kwargs)
        self._new_file_writer = self._writer._get_file_writer
        self._writer._get_file_writer = self._file_writer
        self._file_writer()

    def _file_writer(self) -> Any:
        """TensorboardX's writer of events, made anew where it was closed."""
        found = self._new_file_writer()
        events = getattr(found, "event_writer", None)
        if events is not None and not isinstance(events._ev_writer, _Patient):
            events._ev_writer = events._worker._record_writer = _Patient(events._ev_writer)
            events.add_event = _Checked(events.add_event, events._ev_writer)
        return found

    def flush(self) -> None:
        """Write what is left to be written.

        Raises:
            OSError: If it cannot be written, for example because the disk is full.
        """
        self._finish(self._writer.flush)

    def close(self) -> None:
        """Write what is left to be written, and close the file.

        Raises:
            OSError: If it cannot be written, for example because the disk is full.
        """
        self._finish(self._writer.close)

    def _finish(self, what: Callable[[], object]) -> None:
        writers = list((self._writer.all_writers or {}).values())
        what()
        for held in writers:
            events = getattr(held, "event_writer", None)
            writer = getattr(events, "_ev_writer", None)
            if isinstance(writer, _Patient) and not writer.is_told:
                writer.check()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._writer, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def from_variable(self, leaf: Variable, output_name: str = "output") -> None:
        """Write the graph that computes a variable.

        Args:
            leaf: The variable.
            output_name: What it is called.

        Raises:
            CallError: If it is no variable.
        """
        self.from_graph_def(self.graph_def(leaf, output_name))

    def from_graph_def(self, graph_def: Any) -> None:
        """Write a graph as TensorFlow describes it.

        Args:
            graph_def: A `tensorboardX.proto.graph_pb2.GraphDef`.
        """
        event = needed("TBGraphWriter", "tensorboardX.proto.event_pb2", "TensorBoard", "tensorboard")
        self._writer.file_writer.add_event(event.Event(graph_def=graph_def.SerializeToString()))

    def add_parameters(self, index: int, parameters: Mapping[str, Variable] | None = None, grad: bool = True) -> None:
        """Write histograms of parameters, and of their gradients.

        TensorBoard groups them by the outermost scope. A gradient that nothing was ever written to is left out. NaN and
        infinities have no place in a histogram: they are left out, and counted in the curve `<name>.not_finite`.

        Args:
            index: The iteration.
            parameters: Parameters by path; by default those of the current scope, as `nn.get_parameters()`.
            grad: Whether to write `<name>.grad` beside `<name>`.

        Raises:
            CallError: If `parameters` is no dict of variables.
        """
        op = "TBGraphWriter.add_parameters"
        index = _check.whole(op, "index", index)
        with_gradients = _check.flag(op, "grad", grad)
        found = get_parameters() if parameters is None else parameters
        if not isinstance(found, dict) or not all(isinstance(v, Variable) for v in found.values()):
            raise CallError(f"{op}: expected `parameters` to be a dict of variables, got {parameters!r}")
        for name, variable in found.items():
            self._histogram(str(name), variable.data, index)
            if with_gradients and variable.need_grad and variable.grad.modification_count:
                self._histogram(f"{name}.grad", variable.grad, index)

    def _histogram(self, name: str, array: NdArray, index: int) -> None:
        values = array.get_data("r").astype(np.float64, copy=False).ravel()
        finite = np.isfinite(values)
        if not finite.all():
            self._writer.add_scalar(f"{name}.not_finite", values.size - np.count_nonzero(finite), index)
            values = values[finite]
        if values.size:
            self._writer.add_histogram(name, values, index)

    def add_profile(self, profile: Profile, index: int = 0) -> None:
        """Write what `nn.profile` found: its table as the text `profile`, and curves of milliseconds.

        There is a curve `profile/<phase>/<name>` for each type of function and phase, such as
        `profile/forward/Convolution`; profiles of several iterations make them curves.

        Args:
            profile: The profile.
            index: The iteration.

        Raises:
            CallError: If it is no profile.
        """
        op = "TBGraphWriter.add_profile"
        if not isinstance(profile, Profile):
            raise CallError(f"{op}: expected a Profile, got {type(profile).__name__}")
        index = _check.whole(op, "index", index)
        code = "\n".join("    " + line for line in profile.table().splitlines())
        self._writer.add_text("profile", code, index)
        for row in profile.rows("name"):
            self._writer.add_scalar(f"profile/{row.phase}/{row.name}", row.seconds * 1e3, index)

    def graph_def(self, leaf: Variable, output_name: str = "output") -> Any:
        """The graph that computes a variable, as TensorFlow describes it: a node for each function and each variable
        that is a parameter, an input or the output.

        Args:
            leaf: The variable.
            output_name: What it is called.

        Raises:
            CallError: If it is no variable.
        """  # noqa: D205
        if not isinstance(leaf, Variable):
            raise CallError(f"TBGraphWriter.from_variable: expected a Variable, got {type(leaf).__name__}")
        proto = needed("TBGraphWriter", "tensorboardX.proto.graph_pb2", "TensorBoard", "tensorboard")
        graph = proto.GraphDef()
        parameters = {variable: name for name, variable in get_parameters(grad_only=False).items()}
        names: dict[Variable, str] = {}
        used: set[str] = set()

        def unique(name: str) -> str:
            found, number = name, 0
            while found in used:
                number += 1
                found = f"{name}_{number}"
            used.add(found)
            return found

        def leaf_node(variable: Variable) -> str:
            if variable not in names:
                names[variable] = unique(parameters.get(variable) or variable.name or "x")
                node = graph.node.add(name=names[variable], op="Parameter" if variable in parameters else "Variable")
                _shape(node, variable)
            return names[variable]

        def visited(function: Function) -> None:
            inputs = [leaf_node(x) for x in function.inputs]
            scope = next((parameters[x].rpartition("/")[0] for x in function.inputs if x in parameters), "")
            kind = str(function.info.type_name)
            name = unique(f"{scope}/{kind}" if scope else kind)
            node = graph.node.add(name=name, op=kind, input=inputs)
            for key, value in function.info.args.items():
                node.attr[key].s = str(value).encode()
            for i, output in enumerate(function.outputs):
                names[output] = f"{name}:{i}" if i else name
            _shape(node, function.outputs[0])

        used.add(output_name)
        leaf.visit(visited)
        node = graph.node.add(name=output_name, op="Variable", input=[names[leaf]] if leaf in names else [])
        _shape(node, leaf)
        return graph


def _shape(node: Any, variable: Variable) -> None:
    shape = node.attr["_output_shapes"].list.shape.add()
    for length in variable.shape:
        shape.dim.add(size=length)

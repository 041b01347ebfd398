"""Writes graphs, parameters and profiles for TensorBoard with tensorboardX: the extra `tensorboard`."""

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


class _GuardedWriter:
    """Wraps tensorboardX's writer so that an error does not end its thread: the queue would fill up and block.

    Args:
        writer: The writer of tensorboardX.
    """

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self._error: Exception | None = None
        self.is_raised = False

    def _guarded(self, what: Callable[..., object], *args: Any) -> None:
        """Call a function and store its error, if it is the first one."""
        try:
            what(*args)
        except Exception as error:
            self._error = self._error or error

    def write_event(self, event: Any) -> None:
        """Write an event, unless an error occurred before."""
        if self._error is None:
            self._guarded(self._writer.write_event, event)

    def flush(self) -> None:
        """Flush the file, unless an error occurred before."""
        if self._error is None:
            self._guarded(self._writer.flush)

    def close(self) -> None:
        """Close the file."""
        self._guarded(self._writer.close)

    def check(self) -> None:
        """Raise the first error of the writer, if there was one."""
        if self._error is not None:
            self.is_raised = True
            raise self._error


class _Checked:
    """Wraps a function that adds an event: raises the first error of the writer before it adds."""

    def __init__(self, add: Callable[[Any], object], writer: _GuardedWriter) -> None:
        self._add, self._writer = add, writer

    def __call__(self, event: Any) -> None:
        self._writer.check()
        self._add(event)


class TBGraphWriter:
    """Writes graphs, parameters and profiles for TensorBoard. Other methods, such as `add_scalar`, are tensorboardX's.

    `tensorboard --logdir log_out` shows the contents of a folder.

    Args:
        log_dir: Path of the folder; by default a folder in `runs`, named by the time and the host.
        comment: End of the name of the default folder.
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
        """The event writer of tensorboardX; a new one if it was closed."""
        found = self._new_file_writer()
        events = getattr(found, "event_writer", None)
        if events is not None and not isinstance(events._ev_writer, _GuardedWriter):
            events._ev_writer = events._worker._record_writer = _GuardedWriter(events._ev_writer)
            events.add_event = _Checked(events.add_event, events._ev_writer)
        return found

    def flush(self) -> None:
        """Write pending events to the file.

        Raises:
            OSError: If the file cannot be written, for example because the disk is full.
        """
        self._finish(self._writer.flush)

    def close(self) -> None:
        """Write pending events, and close the file.

        Raises:
            OSError: If the file cannot be written, for example because the disk is full.
        """
        self._finish(self._writer.close)

    def _finish(self, what: Callable[[], object]) -> None:
        """Call a method of all writers, then raise their first error."""
        writers = list((self._writer.all_writers or {}).values())
        what()
        for held in writers:
            events = getattr(held, "event_writer", None)
            writer = getattr(events, "_ev_writer", None)
            if isinstance(writer, _GuardedWriter) and not writer.is_raised:
                writer.check()

    def __getattr__(self, name: str) -> Any:
        """Returns a public attribute of the writer."""
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
            output_name: Name of the variable.

        Raises:
            CallError: If `leaf` is not a variable.
        """
        self.from_graph_def(self.graph_def(leaf, output_name))

    def from_graph_def(self, graph_def: Any) -> None:
        """Write a graph given as TensorFlow's message.

        Args:
            graph_def: A `tensorboardX.proto.graph_pb2.GraphDef`.
        """
        event = needed("TBGraphWriter", "tensorboardX.proto.event_pb2", "TensorBoard", "tensorboard")
        self._writer.file_writer.add_event(event.Event(graph_def=graph_def.SerializeToString()))

    def add_parameters(self, index: int, parameters: Mapping[str, Variable] | None = None, grad: bool = True) -> None:
        """Write histograms of parameters and of their gradients.

        TensorBoard groups them by the outermost scope. A gradient that was never written is left out. Histograms do not
        include NaN and infinities: the curve `<name>.not_finite` has their number.

        Args:
            index: The iteration.
            parameters: Parameters by path; by default `nn.get_parameters()`.
            grad: Whether to write `<name>.grad`, too.

        Raises:
            CallError: If `parameters` is not a dict of variables.
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
        """Write a histogram of the finite elements, and the number of the others."""
        values = array.get_data("r").astype(np.float64, copy=False).ravel()
        finite = np.isfinite(values)
        if not finite.all():
            self._writer.add_scalar(f"{name}.not_finite", values.size - np.count_nonzero(finite), index)
            values = values[finite]
        if values.size:
            self._writer.add_histogram(name, values, index)

    def add_profile(self, profile: Profile, index: int = 0) -> None:
        """Write a profile of `nn.profile`: its table as the text `profile`, and curves of milliseconds.

        Each function type and phase has a curve `profile/<phase>/<name>`, such as `profile/forward/Convolution`. Each
        call adds a point at `index`.

        Args:
            profile: The profile.
            index: The iteration.

        Raises:
            CallError: If `profile` is not a profile.
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
        """The graph that computes a variable, as TensorFlow's message.

        Its nodes are the functions, parameters, inputs and the output.

        Args:
            leaf: The variable.
            output_name: Name of the variable.

        Raises:
            CallError: If `leaf` is not a variable.
        """
        if not isinstance(leaf, Variable):
            raise CallError(f"TBGraphWriter.from_variable: expected a Variable, got {type(leaf).__name__}")
        proto = needed("TBGraphWriter", "tensorboardX.proto.graph_pb2", "TensorBoard", "tensorboard")
        graph = proto.GraphDef()
        parameters = {variable: name for name, variable in get_parameters(grad_only=False).items()}
        names: dict[Variable, str] = {}
        used: set[str] = set()

        def unique(name: str) -> str:
            """A name that no node has yet."""
            found, number = name, 0
            while found in used:
                number += 1
                found = f"{name}_{number}"
            used.add(found)
            return found

        def leaf_node(variable: Variable) -> str:
            """The name of the node of a variable without parent; added on first use."""
            if variable not in names:
                names[variable] = unique(parameters.get(variable) or variable.name or "x")
                node = graph.node.add(name=names[variable], op="Parameter" if variable in parameters else "Variable")
                _shape(node, variable)
            return names[variable]

        def visited(function: Function) -> None:
            """Add the node of a function."""
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
    """Add the shape of a variable to a node."""
    shape = node.attr["_output_shapes"].list.shape.add()
    for length in variable.shape:
        shape.dim.add(size=length)

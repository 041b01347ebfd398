"""Models: networks with their parameters, stored in one file and called with arrays.

nn.save("net.nnp", {"y": y}, inputs={"x": x})
model = nn.load("net.nnp")
y = model(images)
"""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from . import nnp
from . import parameter as parameters
from ._core import CallError, Error, ShapeError, Variable, forward_all
from ._graph_pool import GraphCache
from .core.loaded import LoadedNetwork
from .files import network_file
from .modes import auto_forward
from .nnp import NetworkError, ProtoExecutor, ProtoGraph, ProtoNetwork

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ._graph_pool import GraphPool
    from .core import Module
    from .files.parameter_file import PathOrFile
    from .rewrite.folding import Folding

    _Graph = tuple[list[Variable], list[Variable]]

__all__ = ["Model", "from_graph", "load", "save"]


class Model(LoadedNetwork["_Graph"]):
    """A network with its parameters, called like a function.

    Called with arrays it returns arrays. It builds a static graph for each new input shape and caches it, so a call
    costs as much as `forward()` of a static graph. Called with variables it returns variables of a new graph, which
    can be trained or extended. Both use the model's own parameters.

    The graphs of a model from `load` are folded: constants are computed once, and batch normalizations are merged into
    weights. Folding ends with the first access to the parameters or the network, or call with variables.

    Several threads may call one model. Calls with arrays run in parallel, each on its own graph with shared parameters.
    Graphs are built one at a time. A pickled model has its parameters with it and builds graphs anew.

    Args:
        network: The network; its owner has the parameters.
        inputs: The names of its inputs, in the order of a call; by default all inputs of the network.
        outputs: The names of its outputs, in order; by default all outputs of the network.

    Raises:
        NetworkError: If the network lacks one of the inputs or outputs.
    """

    def __init__(
        self, network: ProtoNetwork, inputs: Sequence[str] | None = None, outputs: Sequence[str] | None = None
    ) -> None:
        super().__init__(
            network.name,
            network.inputs if inputs is None else inputs,
            network.outputs if outputs is None else outputs,
            GraphCache(),
        )
        self._network = network
        self._folding: Folding | None = None
        if sorted(self.inputs) != sorted(network.inputs):
            raise NetworkError(f"Model: expected the inputs {network.inputs}, got {self.inputs}")
        for name in self.outputs:
            network.variable(name)

    @property
    def network(self) -> ProtoNetwork:
        """The network of the model; its owner has the parameters. Access ends folding."""
        with self._lock.held():
            self._unfold()
        return self._network

    def _unfold(self) -> None:
        """Ends folding and drops the folded graphs, because parameters may change from now on."""
        if self._folding is not None:
            self._folding = None
            self._cache.forget()

    def _fold(self) -> None:
        """Begins to fold the graphs that are built from now on."""
        from .rewrite.folding import Folding

        self._folding = Folding(self._network.owner.get_parameters(grad_only=False).values())

    def __getstate__(self) -> dict[str, Any]:
        """Returns the state to copy or pickle. A copy folds its own graphs."""
        return {**self.__dict__, "_folding": self._folding is not None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        is_folded = state.pop("_folding")
        self.__dict__.update(state, _folding=None)
        # Models that share parameters do not share what is derived from them, nor a lock.
        self._lock, self._cache = copy.copy(self._lock), GraphCache()
        if is_folded:
            self._fold()

    def __repr__(self) -> str:
        return f"<Model {self._network.name!r} {self.inputs} -> {self.outputs}>"

    def _all_parameters(self) -> dict[str, Variable]:
        """All parameters by path. Initializers create parameters that the file lacks."""
        with parameters.parameter_scope("", self._network.owner.parameter_scope):
            for name, node in self._network.parameters.items():
                if parameters.get_parameter(name) is None:
                    parameters.get_parameter_or_create(name, node.shape, node.initializer, node.need_grad)
        found = self._network.owner.get_parameters(grad_only=False)
        return {name: x for name, x in found.items() if name in self._network.parameters}

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Compute the outputs.

        Args:
            args: The inputs, in the order of `inputs`: arrays or variables.
            named: Further inputs by name.

        Returns:
            The output, or a tuple of outputs in the order of `outputs`. They are variables if an input is a variable,
            else arrays.

        Raises:
            CallError: If an input is missing.
            NetworkError: If the network cannot be built.
            ShapeError: If it cannot be built because an input has another shape than in the file.
        """
        given = list(self._given(args, named).values())
        if any(isinstance(x, Variable) for x in given):
            with self._lock.held():
                self._unfold()
                made = self._build([x if isinstance(x, Variable) else Variable.from_numpy_array(x) for x in given])
            return made[0] if len(made) == 1 else tuple(made)
        arrays = [np.asarray(x) for x in given]
        pool, graph = self._taken(tuple((x.shape, x.dtype) for x in arrays), lambda: self._graph(arrays))
        try:
            inputs, outputs = graph
            for variable, values in zip(inputs, arrays, strict=True):
                variable.d = values
            forward_all(outputs, clear_buffer=True)
            found = [output.d.copy() for output in outputs]
        finally:
            pool.give(graph)
        return found[0] if len(found) == 1 else tuple(found)

    def _graph(self, arrays: Sequence[NDArray[Any]]) -> tuple[GraphPool[_Graph], _Graph]:
        """Builds a graph for inputs. Returns it and the pool to return it to."""
        inputs = [Variable.from_numpy_array(x) for x in arrays]
        graph = inputs, self._build(inputs)
        if self._folding is not None:
            self._folding.fold(graph[1], inputs)
        return self._cache.add(tuple((x.shape, x.dtype) for x in arrays), graph), graph

    def _build(self, inputs: Sequence[Variable]) -> list[Variable]:
        """Builds a static graph. Returns its outputs, in the order of `outputs`."""
        order = [inputs[self.inputs.index(name)] for name in self._network.inputs]
        try:
            with auto_forward(False):
                made = self._network._built(order)
        except Error as error:
            self._blame_input(inputs, error)
            raise
        found = []
        for name in self.outputs:
            if name not in made:
                raise NetworkError(f"{self._network.name}: expected output {name!r}, got none")
            found.append(made[name])
        return found

    def _blame_input(self, inputs: Sequence[Variable], error: Error) -> None:
        """Raises an error that names the first input whose shape differs from the file, if there is one."""
        for name, given in zip(self.inputs, inputs, strict=True):
            expected = self._network.variables[name].shape
            fits = len(expected) == given.ndim and all(
                n in (-1, own) for n, own in zip(expected, given.shape, strict=True)
            )
            if not fits:
                shown = ", ".join("any" if n == -1 else str(n) for n in expected)
                raise ShapeError(
                    f"{self._network.name}: expected input {name!r} of shape ({shown}), got {given.shape}"
                ) from error

    def save(self, path: PathOrFile) -> None:
        """Write the model to a file, like `kinnor.save`.

        Args:
            path: Path that ends in `.nnp`, or a file open for writing bytes.

        Raises:
            NetworkError: If the path does not end in `.nnp`.
            OSError: If the file cannot be written.
        """
        _write(path, self._network, self.inputs, self.outputs)


def save(
    path: PathOrFile,
    outputs: Variable | Mapping[str, Variable] | Model,
    inputs: Mapping[str, Variable] | None = None,
    name: str = "model",
    free_batch: bool = True,
    parameters: Module | Mapping[str, Variable] | None = None,
) -> None:
    """Write a network and its parameters to a file, atomically. `load` and NNabla read it.

    Args:
        path: Path that ends in `.nnp`, or a file open for writing bytes.
        outputs: The output, or outputs by name; or a model.
        inputs: Inputs by name; other variables without a parent that are no parameters are then constants. By default
            all of these are inputs, named after the functions that read them.
        name: The name of the network.
        free_batch: Whether the first axis is a batch of any length, if the functions have an axis for it.
        parameters: The module of the network, or its parameters by name; by default the current parameter scope.

    Raises:
        CallError: If an output or an input is no Variable, or no output depends on an input.
        NetworkError: If the path does not end in `.nnp`, or the format cannot hold a function, such as one written in
            Python.
        OSError: If the file cannot be written.

    Examples:
        >>> import io, numpy as np, kinnor as nn, kinnor.parametric_functions as PF
        >>> x = nn.Variable((1, 3))
        >>> with nn.parameter_scope("example"):
        ...     y = PF.affine(x, 2, w_init=np.ones((3, 2), np.float32))
        >>> file = io.BytesIO()
        >>> nn.save(file, {"y": y}, inputs={"x": x})
        >>> nn.load(file)(np.ones((4, 3), np.float32)).shape
        (4, 2)
    """
    if isinstance(outputs, Model):
        outputs.save(path)
        return
    check_outputs("save", outputs)
    ends = {"y": outputs} if isinstance(outputs, Variable) else dict(outputs)
    if not ends:
        raise CallError("save: expected outputs, got none")
    if inputs is not None:
        check_inputs("save", inputs)
    starts = dict(inputs or {})
    scope: Any = None if parameters is None else getattr(parameters, "state_dict", lambda: dict(parameters))()
    leaves = None if inputs is None else starts.values()
    described = nnp.create_graph_from_variable(name, list(ends.values()), {**starts, **ends}, scope, leaves)
    network = described.default_graph()
    check_inputs("save", {key: x for key, x in starts.items() if key not in network.inputs}, set(ends.values()))
    order = [key for key in starts if key in network.inputs]
    order += [key for key in network.inputs if key not in order]
    _write(path, network, order, list(ends), free_batch)


def check_outputs(op: str, outputs: Any) -> None:
    """Refuse a module, a path or another object that is no Variable and has no Variables.

    Args:
        op: The call, for errors.
        outputs: The outputs of a network to write.

    Raises:
        CallError: If it is something else.
    """
    if callable(getattr(outputs, "named_parameters", None)):
        raise CallError(
            f"{op}: expected the output of a network, got the module {type(outputs).__name__}; its call "
            "y = module(x) gives an output, and x is an input"
        )
    is_collection = hasattr(outputs, "__iter__") and not isinstance(outputs, (str, bytes))
    if not is_collection and not isinstance(outputs, Variable):
        hint = ""
        if isinstance(outputs, (str, os.PathLike)):
            hint = "; the order is outputs, path" if op == "onnx.save" else "; the order is path, outputs"
        raise CallError(f"{op}: expected Variables as outputs, got {type(outputs).__name__}{hint}")


def check_inputs(op: str, inputs: Any, read: Collection[Variable] | None = None) -> None:
    """Refuse inputs that are no Variables by name, or that no output depends on.

    An input that nothing reads is a mistake: the variable that is read in its place would become a constant.

    Args:
        op: The call, for errors.
        inputs: The inputs of a network to write.
        read: The variables that functions of the network read; None to check the types only.

    Raises:
        CallError: If an input is not one.
    """
    if not hasattr(inputs, "items"):
        raise CallError(f"{op}: expected `inputs` to be Variables by name, got {type(inputs).__name__}")
    for name, x in inputs.items():
        if not isinstance(x, Variable):
            raise CallError(f"{op}: expected `inputs` to be Variables by name, got {type(x).__name__} for {name!r}")
        if read is not None and x not in read:
            raise CallError(
                f"{op}: expected inputs that the outputs are computed from, got {name!r} of shape {x.shape}, which "
                "no function between reads"
            )


def _write(
    path: PathOrFile, network: ProtoNetwork, inputs: Sequence[str], outputs: Sequence[str], free_batch: bool = True
) -> None:
    """Writes a network with its parameters and an executor for these inputs and outputs."""
    if not network_file.is_archive(path, ".nnp"):
        ending = str(path).rpartition(".")[2]
        hint = "; kinnor.onnx.save writes ONNX files" if ending == "onnx" else ""
        if ending in ("pt", "pth", "safetensors", "h5"):
            hint = "; save_parameters writes parameters, as .safetensors or .h5"
        raise NetworkError(f"save: expected a name that ends in .nnp, got {path}{hint}")
    executor = {"name": "runtime", "network": network.name, "data": inputs, "output": outputs}
    proto = network.owner.as_proto(networks=[network], variable_batch_size=free_batch)
    proto.ClearField("executor")
    proto.executor.append(ProtoExecutor.create_from_dict(executor, network).as_proto())
    held = network.owner.get_parameters()
    found = [(key, variable) for key, variable in held.items() if key in network.parameters]
    network_file.write_archive(path, proto, nnp.entries(found))


def load(path: PathOrFile, network: str | None = None) -> Model:
    """Read a model: a network with its parameters, from a `.nnp` file that `save` or NNabla wrote.

    Args:
        path: Path, or a file open for reading bytes.
        network: The name of the network; by default the network of the first executor, else the first network.

    Returns:
        The model, with its own parameters.

    Raises:
        NetworkError: If the file is malformed, or lacks the network.
        OSError: If the file cannot be read.
    """
    model = from_graph(nnp.load(path, extension=".nnp"), network)
    model._fold()
    return model


def from_graph(described: ProtoGraph, network: str | None = None) -> Model:
    """A model of one network of a `ProtoGraph`.

    Args:
        described: The graph, with the parameters.
        network: The name of the network, with the default of `load`.

    Raises:
        NetworkError: If the network does not exist.
    """
    executors = [held.proto for held in described.executors.values()]
    executor = next((held for held in executors if network in (None, held.network_name)), None)
    if network is None:
        network = executor.network_name if executor is not None else described.default_graph().name
    if network not in described.networks:
        raise NetworkError(f"load: expected one of the networks {list(described.networks)}, got {network!r}")
    found = described.networks[network].expand_loop_control()
    inputs = [held.variable_name for held in executor.data_variable] if executor is not None else []
    outputs = [held.variable_name for held in executor.output_variable] if executor is not None else []
    is_whole = sorted(inputs) == sorted(found.inputs)
    return Model(found, inputs if is_whole else None, outputs if outputs and is_whole else None)

"""Writes networks as ONNX files, atomically."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import parameter as parameters
from ..._check import explained
from ..._core import ArgumentError, CallError, UnsupportedError, Variable
from ...files.atomic import replacing
from ...files.progress import each
from ...model import Model as NetworkModel
from ...model import check_inputs, check_outputs
from ...modes import auto_forward
from ..read.reading import onnx_package
from ..run.network import Model
from .exports import EXPORTS
from .lengths import shapes_of
from .writer import Call, Graph, Length, Tensor, per

if TYPE_CHECKING:
    import os
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from ..._core import Function

__all__ = ["OPSET", "save"]

OPSET = 21
"""The default operator set version of written files."""

OLDEST = 9
"""The oldest operator set version that can be written."""

_MOST_INSIDE = (1 << 31) - (1 << 24)
"""Limit on the bytes of tensors inside of a file. Protobuf messages are limited to 2 GiB."""


ELSEWHERE = {
    "dynamic_axes": "`free_batch` makes the batch axis symbolic",
    "dynamic_shapes": "`free_batch` makes the batch axis symbolic",
    "input_names": "`inputs` has Variables by name",
    "opset_version": "opset",
    "output_names": "`outputs` has Variables by name",
}
"""Arguments of `torch.onnx.export`, and the arguments of `save` for the same purpose."""


OF_OTHERS = {
    ".h5": "kinnor.save_parameters writes parameters",
    ".nnp": "kinnor.save writes .nnp files",
    ".npz": "numpy.savez writes arrays",
    ".pt": "kinnor.save_parameters writes parameters, as .safetensors",
    ".pth": "kinnor.save_parameters writes parameters, as .safetensors",
    ".safetensors": "kinnor.save_parameters writes parameters",
    ".tflite": "other programs convert .onnx files to it",
}
"""Endings of files of other formats, and how to write such a file or what takes its place."""


@explained("onnx.save", ELSEWHERE)
def save(
    outputs: Variable | Mapping[str, Variable] | Sequence[Variable] | NetworkModel | Model,
    path: str | os.PathLike[str],
    inputs: Mapping[str, Variable] | None = None,
    opset: int = OPSET,
    name: str = "model",
    free_batch: bool | Mapping[str, int] = True,
    external_data: bool | None = None,
) -> None:
    """Write a network as an ONNX file, with its parameters as initializers. The file is replaced atomically.

    Functions are written as they were built: `batch_normalization` with the statistics that it was built to use.
    Dropout is left out.

    Args:
        outputs: The output, outputs by name, or a list of outputs; or a model of `kinnor.load` or `kinnor.onnx.load`.
        path: Path of the file. External tensors are written to a file of the same name with `.data` appended.
        inputs: Inputs by name. Other variables without parent are constants or parameters. By default all variables
            without parent that are not parameters are inputs.
        opset: The operator set version, from 9 on.
        name: The name of the network.
        free_batch: Whether the batch size is symbolic. The batch is the first axis of the first input, and of all
            inputs with an equally long first axis. Or the batch axis of each input that has one, by name.
        external_data: Whether to write tensors to an external file; by default from 2 GiB on.

    Raises:
        CallError: If an output or an input is no Variable, or no output depends on an input.
        UnsupportedError: If a function has no ONNX operators in this version, or does not allow a symbolic batch.
        ArgumentError: If the version does not exist, or the path ends as files of another format do.
        OSError: If a file cannot be written.
        ImportError: If the package `onnx` is not installed.

    Examples:
        >>> import kinnor as nn, kinnor.onnx, kinnor.parametric_functions as PF, numpy as np, tempfile
        >>> x = nn.Variable((1, 3))
        >>> with nn.parameter_scope("onnx_example"):
        ...     y = PF.affine(x, 2)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     kinnor.onnx.save({"y": y}, f"{folder}/net.onnx", inputs={"x": x})
        ...     kinnor.onnx.load(f"{folder}/net.onnx")(np.ones((4, 3), np.float32)).shape
        (4, 2)
    """
    ending = Path(str(path)).suffix.lower()  # What is no path is refused below.
    if ending in OF_OTHERS:
        raise ArgumentError(f"onnx.save: expected a path that ends in .onnx, got {str(path)!r}; {OF_OTHERS[ending]}")
    onnx = onnx_package("onnx.save")
    newest = int(onnx.defs.onnx_opset_version())
    if not OLDEST <= opset <= newest:
        raise ArgumentError(f"onnx.save: expected an `opset` from {OLDEST} to {newest}, got {opset}")
    if isinstance(outputs, Model):
        proto, held = outputs.written()
    else:
        network = _network(outputs, inputs)
        proto, held = _written(network, opset, name, free_batch)
    _write(Path(path), proto, held, external_data)


class _Network:
    """The network to write: outputs and inputs by name, names of parameters, and the functions between."""

    def __init__(
        self, outputs: Mapping[str, Variable], inputs: Mapping[str, Variable], names: Mapping[Variable, str]
    ) -> None:
        self.outputs, self.inputs, self.names = dict(outputs), dict(inputs), names
        found: dict[Function, None] = {}
        for output in self.outputs.values():
            if not isinstance(output, Variable):
                raise CallError(f"onnx.save: expected Variables as outputs, got {output!r}")
            output.visit(lambda function: found.setdefault(function, None))
        starts = set(self.inputs.values())
        needed = set(self.outputs.values()) - starts
        kept = []
        for function in reversed(found):  # functions that compute an input are left out
            if any(y in needed for y in function.outputs):
                kept.append(function)
                needed.update(x for x in function.inputs if x not in starts)
        self.functions = kept[::-1]


def _network(outputs: Any, inputs: Mapping[str, Variable] | None) -> _Network:
    """The network for the arguments of `save`."""
    if isinstance(outputs, NetworkModel):
        network = outputs.network
        size = network.batch_size or 2
        starts = {}
        for key in outputs.inputs:
            shape = [n if n >= 0 else size for n in network.variable(key).shape]
            starts[key] = Variable(shape)
        with auto_forward(False):
            made = outputs(**starts)
        ends = dict(zip(outputs.outputs, made if isinstance(made, tuple) else (made,), strict=True))
        return _Network(ends, starts, {x: key for key, x in outputs.get_parameters().items()})
    check_outputs("onnx.save", outputs)
    if isinstance(outputs, Variable):
        ends = {"y": outputs}
    elif hasattr(outputs, "items"):
        ends = dict(outputs.items())
    else:
        ends = {f"y{k}": y for k, y in enumerate(outputs)}
    if not ends:
        raise CallError("onnx.save: expected outputs, got none")
    names = {x: key for key, x in parameters.get_parameters(grad_only=False).items()}
    if inputs is not None:
        check_inputs("onnx.save", inputs)
        found = _Network(ends, inputs, names)
        read = {x for function in found.functions for x in function.inputs} | set(ends.values())
        check_inputs("onnx.save", inputs, read)
        return found
    whole = _Network(ends, {}, names)
    starts = {}
    for function in whole.functions:
        for x in function.inputs:
            if x.parent is None and x not in names and x not in starts.values():
                starts[x.name or ("x" if not starts else f"x{len(starts)}")] = x
    return _Network(ends, starts, names)


def _element_type(x: Variable) -> np.dtype[Any]:
    """The ONNX element type of a variable: its own type for integers and booleans, else float32."""
    try:
        found = np.dtype(x.data.dtype)
    except Exception:  # no array was written yet
        return np.dtype(np.float32)
    return found if found.kind in "iub" else np.dtype(np.float32)


def _open_axes(network: _Network, free_batch: bool | Mapping[str, int]) -> tuple[dict[Variable, int], int]:
    """The symbolic axis of each input that has one, and its current length."""
    if free_batch is False:
        return {}, 0
    if free_batch is True:
        first = next((x for x in network.inputs.values() if x.ndim), None)
        batch = 0 if first is None else int(first.shape[0])
        return {x: 0 for x in network.inputs.values() if x.ndim and x.shape[0] == batch}, batch
    found = {}
    for key, axis in free_batch.items():
        if key not in network.inputs or not -network.inputs[key].ndim <= axis < network.inputs[key].ndim:
            raise ArgumentError(f"onnx.save: expected axes of the inputs {list(network.inputs)}, got {axis} of {key!r}")
        found[network.inputs[key]] = axis % network.inputs[key].ndim
    lengths = {int(x.shape[axis]) for x, axis in found.items()}
    if len(lengths) > 1:
        raise ArgumentError(f"onnx.save: expected axes of one length in `free_batch`, got lengths {sorted(lengths)}")
    return found, max(lengths, default=0)


def _written(
    network: _Network, opset: int, name: str, free_batch: bool | Mapping[str, int]
) -> tuple[Any, dict[str, Any]]:
    """The `ModelProto` without tensors, and the tensors by name."""
    helper = onnx_package("onnx.save").helper
    missing = [
        f"{function.info.type_name} (function {k})"
        for k, function in enumerate(network.functions)
        if function.info.type_name not in EXPORTS
    ]
    if missing:
        raise UnsupportedError(f"onnx.save: expected functions of docs/onnx.md, got {', '.join(missing[:5])}")
    open_axes, batch = _open_axes(network, free_batch)
    shapes = shapes_of(network.functions, open_axes, batch)
    graph = Graph(opset, batch)
    made: dict[Variable, Tensor] = {}
    for key, x in network.inputs.items():
        made[x] = Tensor(graph.name(key), _element_type(x))
        if x in open_axes and graph.open_input is None:
            graph.open_input = made[x], open_axes[x]
    for key in network.outputs:
        if graph.name(key) != key:
            raise ArgumentError(f"onnx.save: expected names for outputs that inputs do not have, got {key!r}")

    def tensor(x: Variable) -> Tensor:
        """The ONNX tensor of a variable. Variables without parent become initializers."""
        if x not in made:
            if x.parent is not None and x.parent in network.functions:
                raise UnsupportedError(f"onnx.save: expected functions in order, got {x.parent.info.type_name} later")
            made[x] = Tensor(graph.name(network.names.get(x, "constant")), _element_type(x))
            graph.held[made[x].name] = x
        return made[x]

    for number, function in enumerate(each(network.functions, "convert to ONNX")):
        kind, xs, ys = function.info.type_name, function.inputs, function.outputs
        of = [[shapes.get(v, tuple(map(Length, v.shape))) for v in held] for held in (xs, ys)]
        call = Call(graph, kind, function.info.args, [tensor(x) for x in xs], of[0], of[1])
        try:
            found = EXPORTS[kind](call)
        except UnsupportedError as error:
            raise UnsupportedError(f"{error} (function {number})") from None
        found = [found] if isinstance(found, Tensor) else list(found)
        made.update(zip(ys, found, strict=False))
    final = [tensor(y) for y in network.outputs.values()]
    _reshape_parameters(graph, {held.name for held in final})
    ends = _ends(graph, network, final)
    used = {key for node in graph.nodes for key in node.input}
    held = {key: x for key, x in graph.held.items() if key in used}

    def info(key: str, dtype: Any, shape: Sequence[int]) -> Any:
        """The `ValueInfoProto` of an input or output."""
        lengths = [int(n) if not per(n) else "batch" if n == batch else f"batch_{k}" for k, n in enumerate(shape)]
        return helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), lengths)

    starts = [info(made[x].name, made[x].dtype, shapes.get(x, x.shape)) for x in network.inputs.values()]
    finals = [
        info(key, dtype, shapes.get(y, y.shape)) for (key, dtype), y in zip(ends, network.outputs.values(), strict=True)
    ]
    opsets = [helper.make_opsetid("", opset)]
    proto = helper.make_model(
        helper.make_graph(graph.nodes, name, starts, finals),
        opset_imports=opsets,
        producer_name="kinnor",
        ir_version=helper.find_min_ir_version_for(opsets),
    )
    return proto, held


def _reshape_parameters(graph: Graph, kept: Collection[str]) -> None:
    """Stores parameters that all nodes read through the same reshape in that shape, and removes the reshapes."""
    takers: dict[str, list[Any]] = {}
    for node in graph.nodes:
        for key in node.input:
            takers.setdefault(key, []).append(node)
    renamed: dict[str, str] = {}
    for key, x in graph.held.items():
        shapes = {_new_shape(graph, node, key, kept) for node in takers.get(key, ())}
        if isinstance(x, Variable) and len(shapes) == 1 and (shape := shapes.pop()):
            graph.held[key] = x.reshape(shape, unlink=True)
            renamed.update((node.output[0], key) for node in takers[key])
    graph.nodes[:] = [node for node in graph.nodes if node.output[0] not in renamed]
    for node in graph.nodes:
        node.input[:] = [renamed.get(key, key) for key in node.input]


def _new_shape(graph: Graph, node: Any, key: str, kept: Collection[str]) -> tuple[int, ...]:
    """The target shape if a node is a constant reshape of tensor `key`, and its output is not in `kept`; else empty."""
    if node.op_type != "Reshape" or node.input[0] != key or node.output[0] in kept:
        return ()
    shape = graph.held.get(node.input[1])
    return tuple(map(int, shape)) if isinstance(shape, np.ndarray) and np.all(shape > 0) else ()


def _ends(graph: Graph, network: _Network, found: Sequence[Tensor]) -> list[tuple[str, Any]]:
    """Gives outputs their names, by renaming the node's output or adding an `Identity`. Returns names and types."""
    makers = {key for node in graph.nodes for key in node.output}
    renamed: dict[str, str] = {}
    copies = []
    for key, tensor in zip(network.outputs, found, strict=True):
        if tensor.name in makers and tensor.name not in renamed:
            renamed[tensor.name] = key
        else:
            copies.append((tensor.name, key))
    helper = onnx_package("onnx.save").helper
    for node in graph.nodes:
        for names in (node.input, node.output):
            for k, held in enumerate(names):
                if held in renamed:
                    names[k] = renamed[held]
    for source, key in copies:
        graph.nodes.append(helper.make_node("Identity", [renamed.get(source, source)], [key]))
    return [(key, tensor.dtype) for key, tensor in zip(network.outputs, found, strict=True)]


# --- Files


def _array(held: NDArray[Any] | Variable) -> NDArray[Any]:
    """The little-endian array of a tensor to write."""
    kept = np.asarray(held.d).astype(_element_type(held), copy=False) if isinstance(held, Variable) else held
    return kept.astype(kept.dtype.newbyteorder("<"), copy=False)


def _n_bytes(held: NDArray[Any] | Variable) -> int:
    """The size of a tensor in the file."""
    itemsize = _element_type(held).itemsize if isinstance(held, Variable) else held.dtype.itemsize
    return int(held.size) * itemsize


def _write(path: Path, proto: Any, held: Mapping[str, Any], external_data: bool | None) -> None:
    """Adds the tensors to the message, and writes both files."""
    onnx = onnx_package("onnx.save")
    outside = sum(map(_n_bytes, held.values())) > _MOST_INSIDE if external_data is None else external_data
    data = path.with_name(path.name + ".data")
    with ExitStack() as files:
        temporary = files.enter_context(replacing(path))
        file = None
        if outside:
            file = files.enter_context(files.enter_context(replacing(data)).open("wb"))
        for key, x in each(list(held.items()), "write ONNX"):
            array = _array(x)
            tensor = proto.graph.initializer.add(name=key, dims=array.shape)
            tensor.data_type = onnx.helper.np_dtype_to_tensor_dtype(array.dtype.newbyteorder("="))
            content = array.tobytes()
            if file is None or len(content) < 64:  # small tensors, such as shapes, stay inside
                tensor.raw_data = content
                continue
            file.write(bytes(-file.tell() % 64))
            tensor.data_location = onnx.TensorProto.EXTERNAL
            entries = {"location": data.name, "offset": file.tell(), "length": len(content)}
            for entry, value in entries.items():
                tensor.external_data.add(key=entry, value=str(value))
            file.write(content)
        if proto.ByteSize() >= 1 << 31:
            raise UnsupportedError(f"onnx.save: expected less than 2 GiB in {path}, or external_data, got more")
        temporary.write_bytes(proto.SerializeToString())

"""Sessions: networks in ONNX files behind the interface of ONNX Runtime.

Knows models; knows no graphs and no operators.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import ArgumentError, CallError, DTypeError, ShapeError, UnsupportedError, set_num_threads
from .network import load

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from ..read.described import ModelMetadata, NodeArg

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
]

_CPU = "CPUExecutionProvider"


class GraphOptimizationLevel(IntEnum):
    """Levels of graph rewriting in ONNX Runtime. Kinnor accepts them and always does its own."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Ways of running nodes in ONNX Runtime. Kinnor accepts them and ignores them."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class _Entries:
    """Settings by name, which are kept and not read."""

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def _get(self, key: str) -> str:
        if key not in self._entries:
            raise ArgumentError(f"{type(self).__name__}: expected a setting that was added, got {key!r}")
        return self._entries[key]


class SessionOptions(_Entries):
    """Settings of a session.

    `intra_op_num_threads` is read: a session sets the number of threads of the process to it, unless it is 0.
    The entry `session.model_external_initializers_file_folder_path` names the folder of external data for models in
    memory. The other settings are accepted and ignored.

    Example:
        >>> import kinnor as nn
        >>> options = nn.onnx.SessionOptions()
        >>> options.intra_op_num_threads = 1
    """

    def __init__(self) -> None:
        super().__init__()
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.execution_mode = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order = 0
        self.graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.inter_op_num_threads = 0
        self.intra_op_num_threads = 0
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.optimized_model_filepath = ""
        self.profile_file_prefix = "onnxruntime_profile_"
        self.use_deterministic_compute = False
        self.use_per_session_threads = True

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Add a setting by name.

        Args:
            key: Its name.
            value: Its value.
        """
        self._entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """Returns a setting that was added.

        Args:
            key: Its name.

        Raises:
            ArgumentError: If it was not added.
        """
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, length: int) -> None:
        """Accepts the length of an open axis. Lengths follow from the arrays of each call.

        Args:
            name: The name of the axis.
            length: Its length.
        """

    def add_free_dimension_override_by_denotation(self, denotation: str, length: int) -> None:
        """Accepts the length of an open axis. Lengths follow from the arrays of each call.

        Args:
            denotation: The meaning of the axis.
            length: Its length.
        """

    def register_custom_ops_library(self, path: str) -> None:
        """Refuses libraries of operators, which are compiled for ONNX Runtime.

        Args:
            path: The library.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(f"SessionOptions: expected operators of docs/onnx.md, got a library of others: {path}")

    def add_initializer(self, name: str, value: Any) -> None:
        """Refuses values for initializers.

        Args:
            name: The initializer.
            value: Its value.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(f"SessionOptions: expected the initializers of the file, got another one for {name!r}")


class RunOptions(_Entries):
    """Settings of one run. They are accepted and ignored.

    Example:
        >>> import kinnor as nn
        >>> options = nn.onnx.RunOptions()
        >>> options.log_severity_level = 3
    """

    def __init__(self) -> None:
        super().__init__()
        self.log_severity_level = 2
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self.terminate = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Add a setting by name.

        Args:
            key: Its name.
            value: Its value.
        """
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """Returns a setting that was added.

        Args:
            key: Its name.

        Raises:
            ArgumentError: If it was not added.
        """
        return self._get(key)


class OrtValue:
    """An input or output of a session: an array, a list of arrays for a sequence, or None for an absent value.

    Args:
        content: The array. It is not copied.

    Example:
        >>> import numpy as np
        >>> import kinnor as nn
        >>> x = nn.onnx.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
        >>> x.shape(), x.data_type(), x.device_name()
        ([2, 3], 'tensor(float)', 'cpu')
    """

    def __init__(self, content: Any) -> None:
        self._content = content

    @classmethod
    def ortvalue_from_numpy(cls, numpy_obj: Any, device_type: str = "cpu", device_id: int = 0, *_: Any) -> OrtValue:
        """Returns an array as a value.

        Args:
            numpy_obj: The array.
            device_type: `cpu`.
            device_id: Ignored.

        Raises:
            UnsupportedError: If the device is not the CPU.
        """
        _check_device(device_type)
        return cls(np.asarray(numpy_obj))

    @classmethod
    def ortvalue_from_shape_and_type(
        cls, shape: Sequence[int], element_type: Any = np.float32, device_type: str = "cpu", device_id: int = 0, *_: Any
    ) -> OrtValue:
        """Returns a value of zeros.

        Args:
            shape: Its shape.
            element_type: The type of its elements: NumPy's, or the number that ONNX gives it.
            device_type: `cpu`.
            device_id: Ignored.

        Raises:
            UnsupportedError: If the device is not the CPU.
        """
        _check_device(device_type)
        return cls(np.zeros(tuple(shape), _element_type(element_type)))

    def numpy(self) -> Any:
        """Returns the array."""
        return self._content

    def shape(self) -> list[int]:
        """Returns its shape."""
        return list(np.shape(self._content))

    def data_type(self) -> str:
        """Returns its type as ONNX writes it."""
        if isinstance(self._content, list):
            return f"seq({OrtValue(self._content[0] if self._content else np.zeros(0, np.float32)).data_type()})"
        return _type_of(self._content)

    def element_type(self) -> int:
        """Returns the number that ONNX gives the type of its elements."""
        from ..read.tensors import onnx_package

        helper = onnx_package("OrtValue.element_type").helper
        return int(helper.np_dtype_to_tensor_dtype(np.asarray(self._content).dtype))

    def device_name(self) -> str:
        """Returns `cpu`."""
        return "cpu"

    def data_ptr(self) -> int:
        """Returns the address of the first element."""
        return int(np.asarray(self._content).ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Returns the bytes of its elements."""
        return int(np.asarray(self._content).nbytes)

    def has_value(self) -> bool:
        """True if it is not absent."""
        return self._content is not None

    def is_tensor(self) -> bool:
        """True if it is an array."""
        return isinstance(self._content, np.ndarray)

    def is_tensor_sequence(self) -> bool:
        """True if it is a sequence of arrays."""
        return isinstance(self._content, list)

    def is_sparse_tensor(self) -> bool:
        """False: there are no sparse arrays."""
        return False

    def update_inplace(self, np_arr: NDArray[Any]) -> None:
        """Write an array into its memory.

        Args:
            np_arr: The array, of the same shape and type.

        Raises:
            ShapeError: If it has another shape.
        """
        held = np.asarray(self._content)
        if held.shape != np_arr.shape:
            raise ShapeError(f"OrtValue.update_inplace: expected shape {held.shape}, got {np_arr.shape}")
        held[...] = np_arr


def _check_device(device: str) -> None:
    """Raises UnsupportedError unless the device is the CPU."""
    if device.lower() != "cpu":
        raise UnsupportedError(f"kinnor.onnx: expected the device 'cpu', got {device!r}")


def _element_type(element_type: Any) -> Any:
    """Returns NumPy's element type for a type or for ONNX's number of it."""
    if isinstance(element_type, int):
        from ..read.tensors import dtype_of

        return dtype_of(element_type)
    return np.dtype(element_type)


_TYPE_NAMES = {"float32": "float", "float64": "double"}
"""ONNX's names of element types, where NumPy has others."""


def _type_of(x: Any) -> str:
    """Returns the type of an array as ONNX writes it."""
    dtype = np.asarray(x).dtype
    return f"tensor({'string' if dtype.kind in 'OUST' else _TYPE_NAMES.get(dtype.name, dtype.name)})"


class IOBinding:
    """Inputs and outputs of a session that are bound before a run. `InferenceSession.io_binding` makes it.

    Args:
        session: The session.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._given: dict[str, Any] = {}
        # Arrays to write outputs to. None lets each run make the array.
        self._wanted: dict[str, Any] = {}
        self._made: list[OrtValue] = []

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Bind an array to an input.

        Args:
            name: The input.
            arr_on_cpu: The array, which is read in each run.
        """
        self._given[name] = arr_on_cpu

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind a value to an input.

        Args:
            name: The input.
            ortvalue: The value, which is read in each run.
        """
        self._given[name] = ortvalue

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind memory to an input.

        Args:
            name: The input.
            device_type: `cpu`.
            device_id: Ignored.
            element_type: The type of its elements.
            shape: Its shape.
            buffer_ptr: The address of the first element. The memory must exist until the last run.

        Raises:
            UnsupportedError: If the device is not the CPU.
        """
        _check_device(device_type)
        self._given[name] = _array_at(buffer_ptr, shape, _element_type(element_type))

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output.

        Args:
            name: The output.
            device_type: `cpu`.
            device_id: Ignored.
            element_type: The type of its elements, if it is written to memory of the caller.
            shape: Its shape, likewise.
            buffer_ptr: The address of that memory. By default each run makes an array.

        Raises:
            UnsupportedError: If the device is not the CPU.
        """
        _check_device(device_type)
        is_given = buffer_ptr is not None and shape is not None and element_type is not None
        self._wanted[name] = _array_at(buffer_ptr, shape, _element_type(element_type)) if is_given else None

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Have an output written into a value.

        Args:
            name: The output.
            ortvalue: The value, of the type and shape of the output.
        """
        self._wanted[name] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Bind no input."""
        self._given.clear()

    def clear_binding_outputs(self) -> None:
        """Ask for no output."""
        self._wanted.clear()
        self._made.clear()

    def synchronize_inputs(self) -> None:
        """Does nothing: there is one device."""

    def synchronize_outputs(self) -> None:
        """Does nothing: there is one device."""

    def get_outputs(self) -> list[OrtValue]:
        """Returns the outputs of the last run, in the order in which they were bound."""
        return list(self._made)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Returns the arrays of the last run."""
        return [value.numpy() for value in self._made]

    def _run(self, run_options: RunOptions | None) -> None:
        """Runs the session on the bound inputs, and stores the outputs in the bound arrays."""
        found = self._session.run(list(self._wanted), self._given, run_options) if self._wanted else []
        made = []
        for target, y in zip(self._wanted.values(), found, strict=True):
            if target is None:
                made.append(OrtValue(y))
                continue
            value = target if isinstance(target, OrtValue) else OrtValue(target)
            value.update_inplace(y)
            made.append(value)
        self._made = made


def _array_at(address: Any, shape: Any, dtype: Any) -> NDArray[Any]:
    """Returns the array at an address, without a copy."""
    import ctypes
    import math

    size = math.prod(shape)
    if size == 0:
        return np.zeros(tuple(shape), dtype)
    memory = (ctypes.c_byte * (size * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype).reshape(tuple(shape))


class InferenceSession:
    """A network from an ONNX file behind the interface of ONNX Runtime's `InferenceSession`.

    It computes on the CPU only. Threads may run one session together: each run has buffers of its own, and all share
    the weights. A run computes all outputs and returns the chosen ones.

    Args:
        path_or_bytes: Path, the bytes of a file, or a `ModelProto`.
        sess_options: Settings; by default `SessionOptions()`.
        providers: Accepted and ignored.
        provider_options: Accepted and ignored.

    Raises:
        UnsupportedError: If operators are missing: with their versions and nodes.
        OnnxError: If the model is malformed.
        OSError: If the file cannot be read.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import kinnor as nn
        >>> x = nn.Variable((2, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     nn.onnx.save({"y": nn.functions.relu(x)}, f"{folder}/net.onnx", inputs={"x": x})
        ...     session = nn.onnx.InferenceSession(f"{folder}/net.onnx", providers=["CPUExecutionProvider"])
        >>> session.get_inputs()[0].shape
        ['batch', 3]
        >>> session.run(["y"], {"x": np.array([[-1, 2, -3]], np.float32)})
        [array([[0., 2., 0.]], dtype=float32)]
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes | Any,
        sess_options: SessionOptions | None = None,
        providers: Sequence[str | tuple[str, Mapping[Any, Any]]] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        **_: Any,
    ) -> None:
        self._options = sess_options if sess_options is not None else SessionOptions()
        if self._options.intra_op_num_threads > 0:
            set_num_threads(self._options.intra_op_num_threads)
        folder = self._options._entries.get("session.model_external_initializers_file_folder_path")
        self._model = load(path_or_bytes, folder)
        self._dtypes = {name: held.dtype for name, held in self._model._types.items()}
        self._optional = {name for name, held in self._model._types.items() if held.is_optional}
        self._sequences = {name for name, held in self._model._types.items() if held.is_sequence}

    @property
    def model(self) -> Any:
        """The model that computes: the parameters are there, and calls with variables."""
        return self._model

    def get_inputs(self) -> list[NodeArg]:
        """Returns names, types and shapes of the inputs."""
        return list(self._model.input_info)

    def get_outputs(self) -> list[NodeArg]:
        """Returns names, types and shapes of the outputs."""
        return list(self._model.output_info)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the initializers that a run may replace: none."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """Returns what the file says of the model."""
        return self._model.metadata

    def get_session_options(self) -> SessionOptions:
        """Returns the settings."""
        return self._options

    def get_providers(self) -> list[str]:
        """Returns `["CPUExecutionProvider"]`."""
        return [_CPU]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns the settings of the provider: none."""
        return {_CPU: {}}

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Accepts providers.

        Args:
            providers: Ignored.
            provider_options: Ignored.
        """

    def enable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def disable_fallback(self) -> None:
        """Does nothing: there is one provider."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: The outputs that are wanted; all if there are none.
            input_feed: Arrays by the names of the inputs; lists of arrays for sequences.
            run_options: Accepted and ignored.

        Returns:
            The outputs as arrays, in the order of `output_names`; lists of arrays for sequences.

        Raises:
            CallError: If inputs are missing, or there are no inputs and outputs of these names.
            DTypeError: If an input has another element type than the file says.
            ShapeError: If an input has another shape.
            OnnxError: If the network cannot be computed for these inputs.
        """
        model = self._model
        if isinstance(output_names, str):
            raise CallError(f"InferenceSession.run: expected a list of names of outputs, got {output_names!r}")
        missing = [name for name in model.inputs if name not in input_feed and name not in self._optional]
        if missing:
            raise CallError(f"InferenceSession.run: expected the inputs {missing}, got only {list(input_feed)}")
        given = []
        for name in model.inputs:
            x = input_feed.get(name)
            given.append(self._checked(name, x.numpy() if isinstance(x, OrtValue) else x))
        if len(input_feed) > len(given) or any(name not in self._dtypes for name in input_feed):
            odd = [name for name in input_feed if name not in self._dtypes]
            raise CallError(f"InferenceSession.run: expected inputs of {model.inputs}, got {odd}")
        places = []
        for name in output_names or model.outputs:
            if name not in model.outputs:
                raise CallError(f"InferenceSession.run: expected outputs of {model.outputs}, got {name!r}")
            places.append(model.outputs.index(name))
        found = model(*given)
        made = found if len(model.outputs) > 1 else (found,)
        return [made[at] for at in places]

    def _checked(self, name: str, x: Any) -> Any:
        """Returns an input as an array of the element type of the file."""
        if x is None or name in self._sequences:
            return x
        wanted, array = self._dtypes[name], np.asarray(x)
        if array.dtype == wanted or (wanted.kind == "O" and array.dtype.kind in "STU"):
            return array
        if array.dtype.newbyteorder("=") == wanted or not isinstance(x, (np.ndarray, np.generic)):
            return array.astype(wanted)
        raise DTypeError(
            f"InferenceSession.run: expected {_type_of(np.zeros(0, wanted))} as input {name!r}, got {_type_of(array)}"
        )

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> list[OrtValue]:
        """Compute outputs as `OrtValue`.

        Args:
            output_names: As of `run`.
            input_dict_ort_values: As of `run`.
            run_options: As of `run`.
        """
        return [OrtValue(y) for y in self.run(output_names, input_dict_ort_values, run_options)]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], Any],
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Compute outputs in another thread.

        Args:
            output_names: As of `run`.
            input_feed: As of `run`.
            callback: Called with the outputs, `user_data` and the text of an error, which is empty if there is none.
            user_data: Given to the callback.
            run_options: As of `run`.
        """

        def work() -> None:
            """Runs the session and passes the results, or the text of an error, to the callback."""
            try:
                found, text = self.run(output_names, input_feed, run_options), ""
            except Exception as error:
                found, text = [], str(error)
            callback(found, user_data, text)

        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """Returns an object that inputs and outputs are bound to."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Compute the outputs that are bound.

        Args:
            iobinding: The object that `io_binding` returned.
            run_options: As of `run`.
        """
        iobinding._run(run_options)

    def end_profiling(self) -> str:
        """Returns the name of the file of times: none is written."""
        return ""

    def get_profiling_start_time_ns(self) -> int:
        """Returns 0: nothing is profiled."""
        return 0

"""Sessions: networks in ONNX files behind the interface of ONNX Runtime.

Knows models; knows no graphs and no operators.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import ArgumentError, CallError, DTypeError, UnsupportedError, set_num_threads
from .binding import IOBinding, OrtValue, type_of
from .network import load

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from ..read.reading import ModelMetadata, NodeArg

__all__ = ["ExecutionMode", "GraphOptimizationLevel", "InferenceSession", "RunOptions", "SessionOptions"]


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

    def _add_entry(self, key: str, value: str) -> None:
        """Add a setting by name.

        Args:
            key: Its name.
            value: Its value.
        """
        self._entries[key] = value

    def _entry(self, key: str) -> str:
        """Returns a setting that was added.

        Args:
            key: Its name.

        Raises:
            ArgumentError: If it was not added.
        """
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

    add_session_config_entry = _Entries._add_entry
    get_session_config_entry = _Entries._entry

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

    add_run_config_entry = _Entries._add_entry
    get_run_config_entry = _Entries._entry


_CPU = "CPUExecutionProvider"
"""The only provider, by ONNX Runtime's name."""


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
        odd = [name for name in input_feed if name not in self._dtypes]
        if odd:
            raise CallError(f"InferenceSession.run: expected inputs of {model.inputs}, got {odd}")
        wanted = output_names or model.outputs
        odd = [name for name in wanted if name not in model.outputs]
        if odd:
            raise CallError(f"InferenceSession.run: expected outputs of {model.outputs}, got {odd[0]!r}")
        found = model(*(self._checked(name, input_feed.get(name)) for name in model.inputs))
        made = dict(zip(model.outputs, found if len(model.outputs) > 1 else (found,), strict=True))
        return [made[name] for name in wanted]

    def _checked(self, name: str, x: Any) -> Any:
        """Returns an input as an array of the element type of the file."""
        x = x.numpy() if isinstance(x, OrtValue) else x
        if x is None or name in self._sequences:
            return x
        wanted, array = self._dtypes[name], np.asarray(x)
        if array.dtype == wanted or (wanted.kind == "O" and array.dtype.kind in "STU"):
            return array
        if array.dtype.newbyteorder("=") == wanted or not isinstance(x, (np.ndarray, np.generic)):
            return array.astype(wanted)
        raise DTypeError(
            f"InferenceSession.run: expected {type_of(np.zeros(0, wanted))} as input {name!r}, got {type_of(array)}"
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

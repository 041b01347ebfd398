"""Settings of sessions and runs, in the shape of ONNX Runtime's."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from ..._core import ArgumentError, CallError, UnsupportedError
from .binding import OrtValue

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "RunOptions", "SessionOptions"]


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


class ExecutionOrder(IntEnum):
    """Orders of nodes in ONNX Runtime. Kinnor accepts them and ignores them."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class _Entries:
    """Settings: attributes with a default, and entries by name. Other attributes and types are refused."""

    _entries: dict[str, str]

    def __init__(self, **defaults: Any) -> None:
        self.__dict__.update(defaults, _entries={})

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a setting.

        Args:
            name: Its name.
            value: Its value.

        Raises:
            AttributeError: If there is no such setting.
            CallError: If it is of another type.
        """
        if name not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no setting {name!r}")
        kind = type(self.__dict__[name])
        try:
            fits = isinstance(value, kind) or (issubclass(kind, int) and int(value) == value)
        except (TypeError, ValueError):
            fits = False
        if not fits:
            raise CallError(f"{type(self).__name__}.{name}: expected {kind.__name__}, got {value!r}")
        self.__dict__[name] = kind(value)

    def _add_entry(self, key: str, value: str) -> None:
        """Add a setting by name.

        Args:
            key: Its name.
            value: Its value.

        Raises:
            CallError: If they are no strings.
        """
        if {type(key), type(value)} != {str}:
            raise CallError(f"{type(self).__name__}: expected strings as a setting, got {key!r} and {value!r}")
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
    memory. `enable_profiling` writes the times of runs to a file. `optimized_model_filepath` names a file to which the
    model is written as it was read. The other settings are accepted and ignored.

    Example:
        >>> import kinnor as nn
        >>> options = nn.onnx.SessionOptions()
        >>> options.intra_op_num_threads = 1
    """

    enable_cpu_mem_arena: bool
    enable_mem_pattern: bool
    enable_mem_reuse: bool
    enable_profiling: bool
    execution_mode: ExecutionMode
    execution_order: ExecutionOrder
    graph_optimization_level: GraphOptimizationLevel
    inter_op_num_threads: int
    intra_op_num_threads: int
    log_severity_level: int
    log_verbosity_level: int
    logid: str
    optimized_model_filepath: str
    profile_file_prefix: str
    use_deterministic_compute: bool
    use_per_session_threads: bool
    _lengths: dict[str, int]
    _lengths_by_denotation: dict[str, int]
    _initializers: dict[str, OrtValue]
    _files: dict[str, bytes]

    def __init__(self) -> None:
        super().__init__(
            enable_cpu_mem_arena=True,
            enable_mem_pattern=True,
            enable_mem_reuse=True,
            enable_profiling=False,
            execution_mode=ExecutionMode.ORT_SEQUENTIAL,
            execution_order=ExecutionOrder.DEFAULT,
            graph_optimization_level=GraphOptimizationLevel.ORT_ENABLE_ALL,
            inter_op_num_threads=0,
            intra_op_num_threads=0,
            log_severity_level=-1,
            log_verbosity_level=0,
            logid="",
            optimized_model_filepath="",
            profile_file_prefix="onnxruntime_profile_",
            use_deterministic_compute=False,
            use_per_session_threads=True,
            _lengths={},
            _lengths_by_denotation={},
            _initializers={},
            _files={},
        )

    add_session_config_entry = _Entries._add_entry
    get_session_config_entry = _Entries._entry

    def add_free_dimension_override_by_name(self, name: str, length: int) -> None:
        """Give open axes of inputs a length.

        Args:
            name: The name of the axes.
            length: Their length.
        """
        self._lengths[name] = int(length)

    def add_free_dimension_override_by_denotation(self, denotation: str, length: int) -> None:
        """Give open axes of inputs a length.

        Args:
            denotation: The meaning of the axes.
            length: Their length.
        """
        self._lengths_by_denotation[denotation] = int(length)

    def register_custom_ops_library(self, path: str) -> None:
        """Refuses libraries of operators, which are compiled for ONNX Runtime.

        Args:
            path: The library.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError(f"SessionOptions: expected operators of docs/onnx.md, got a library of others: {path}")

    def add_initializer(self, name: str, ort_value: OrtValue) -> None:
        """Give an initializer another value.

        Args:
            name: The initializer. It is ignored if the model has none of this name.
            ort_value: Its value, of the same type and shape.

        Raises:
            CallError: If it is no `OrtValue`.
        """
        if not isinstance(ort_value, OrtValue):
            raise CallError(f"SessionOptions: expected an OrtValue as {name!r}, got {type(ort_value).__name__}")
        self._initializers[name] = ort_value

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[OrtValue]) -> None:
        """Give initializers the values that the file of the model has elsewhere.

        Args:
            names: The initializers.
            ort_values: Their values.

        Raises:
            CallError: If a value is no `OrtValue`, or there are more or fewer values than names.
        """
        if len(names) != len(ort_values):
            raise CallError(f"SessionOptions: expected a value for each of {len(names)} names, got {len(ort_values)}")
        for name, value in zip(names, ort_values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[bytes], lengths: Sequence[int]
    ) -> None:
        """Give the files of external tensors as bytes.

        Args:
            names: The names that the model has for the files.
            buffers: Their bytes.
            lengths: The number of bytes of each.

        Raises:
            CallError: If the lists have different lengths.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise CallError(f"SessionOptions: expected bytes and lengths of {len(names)} files, got other numbers")
        for name, content, length in zip(names, buffers, lengths, strict=True):
            self._files[name] = bytes(content)[:length]


class RunOptions(_Entries):
    """Settings of one run. `terminate` makes the run raise an error. The others are accepted and ignored.

    Example:
        >>> import kinnor as nn
        >>> options = nn.onnx.RunOptions()
        >>> options.log_severity_level = 3
    """

    log_severity_level: int
    log_verbosity_level: int
    logid: str
    only_execute_path_to_fetches: bool
    terminate: bool

    def __init__(self) -> None:
        super().__init__(
            log_severity_level=-1, log_verbosity_level=0, logid="", only_execute_path_to_fetches=False, terminate=False
        )

    add_run_config_entry = _Entries._add_entry
    get_run_config_entry = _Entries._entry

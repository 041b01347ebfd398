"""Settings of sessions and of their runs, named as in ONNX Runtime."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from ..._core import ArgumentError, UnsupportedError

__all__ = ["ExecutionMode", "GraphOptimizationLevel", "RunOptions", "SessionOptions"]


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

"""The public names of `onnxruntime`: sessions whose errors have ONNX Runtime's names."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import kinnor
from kinnor import onnx as sessions
from kinnor.onnx import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, ModelMetadata, NodeArg, OnnxError

from .binding import IOBinding, OrtValue, OrtValueVector, SessionIOBinding
from .devices import (
    OrtAllocatorType,
    OrtArenaCfg,
    OrtDevice,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtMemoryInfo,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from .environment import (
    check_and_normalize_provider_args,
    create_and_register_allocator,
    create_and_register_allocator_v2,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_ep_devices,
    get_version_string,
    has_collective_ops,
    log,
    preload_dlls,
    print_debug_info,
    set_default_logger_callback,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
)
from .errors import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoadCanceled,
    ModelLoaded,
    ModelRequiresCompilation,
    NoModel,
    NoSuchFile,
    NotFound,
    NotImplemented,
    RuntimeException,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelMetadata",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotFound",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtValue",
    "OrtValueVector",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "check_and_normalize_provider_args",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_default_session_options",
    "get_device",
    "get_ep_devices",
    "get_session_initializer",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "print_debug_info",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]


def _entry(owner: str, entries: Mapping[str, str], key: str) -> str:
    """Returns a setting that was added to options. Raises RuntimeError if it was not."""
    if key not in entries:
        raise RuntimeError(f"{owner} does not have configuration with key: {key}")
    return entries[key]


class SessionOptions(sessions.SessionOptions):
    """Settings of a session, whose errors have ONNX Runtime's names."""

    def get_session_config_entry(self, key: str) -> str:
        """Returns a setting that was added.

        Args:
            key: Its name.
        """
        return _entry("SessionOptions", self._entries, key)

    def register_custom_ops_library(self, path: str) -> None:
        """Refuses libraries of operators, which are compiled for ONNX Runtime.

        Args:
            path: The library.
        """
        with _named_as_there(while_loading=False):
            super().register_custom_ops_library(path)

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:
        """Accepts a provider.

        Args:
            name: Its name.
            options: Ignored.
        """
        check_and_normalize_provider_args([name], None, get_available_providers())

    def has_providers(self) -> bool:
        """Returns False: the CPU is always used."""
        return False


class RunOptions(sessions.RunOptions):
    """Settings of one run, whose errors have ONNX Runtime's names."""

    def get_run_config_entry(self, key: str) -> str:
        """Returns a setting that was added.

        Args:
            key: Its name.
        """
        return _entry("RunOptions", self._entries, key)

    def add_active_adapter(self, adapter: Any) -> None:
        """Refuses adapters.

        Args:
            adapter: The adapter.
        """
        raise NotImplemented("RunOptions: expected no LoRA adapters, got one")  # noqa: F901 - the class of this module


@contextmanager
def _named_as_there(while_loading: bool) -> Iterator[None]:
    """Raise errors under the names that ONNX Runtime gives them."""
    try:
        yield
    except FileNotFoundError as error:
        raise NoSuchFile(str(error)) from error
    except OSError as error:
        raise (InvalidProtobuf if isinstance(error, IsADirectoryError) else Fail)(str(error)) from error
    except kinnor.UnsupportedError as error:
        raise NotImplemented(str(error)) from error  # noqa: F901 - the class of this module
    except OnnxError as error:
        if while_loading:
            raise (InvalidProtobuf if "got bytes that are none" in str(error) else InvalidGraph)(str(error)) from error
        raise Fail(str(error)) from error
    except (kinnor.DTypeError, kinnor.ShapeError) as error:
        raise InvalidArgument(str(error)) from error
    except kinnor.CallError as error:
        if while_loading:
            raise TypeError(str(error)) from error
        raise InvalidArgument(str(error)) from error
    except kinnor.ArgumentError as error:
        raise RuntimeError(str(error)) from error
    except kinnor.Error as error:
        raise RuntimeException(str(error)) from error


_PROVIDERS = (
    *("TensorRT", "NvTensorRTRTX", "Tensorrt", "CUDA", "MIGraphX", "ROCM", "OpenVINO", "Dnnl", "VitisAI", "QNN"),
    *("NNAPI", "VSINPU", "JS", "CoreML", "ArmNN", "ACL", "DML", "Dml", "RKNPU", "WebNN", "WebGPU", "WebGpu", "XNNPACK"),
    *("Xnnpack", "Nnapi", "Rknpu", "CANN", "Tvm", "Azure", "SNPE", "Stvm", "Nuphar", "Vulkan", "CPU"),
)
"""The first parts of the names of ONNX Runtime's providers."""


class _InnerSession:
    """A session under the names of ONNX Runtime's inner class.

    Args:
        session: The session.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.inputs_meta, self.outputs_meta = session.get_inputs(), session.get_outputs()
        self.model_meta = session.get_modelmeta()
        self.run, self.run_with_iobinding = session.run, session.run_with_iobinding
        self.get_providers = session.get_providers

    def run_with_ort_values(self, input_feed: Any, output_names: Any, run_options: Any = None) -> OrtValueVector:
        """Compute outputs.

        Args:
            input_feed: Values by the names of the inputs.
            output_names: The outputs that are wanted.
            run_options: Settings of this run.
        """
        return OrtValueVector(self.session.run_with_ort_values(output_names, input_feed, run_options))


class InferenceSession(sessions.InferenceSession):
    """A session whose errors have ONNX Runtime's names."""

    def __init__(
        self,
        path_or_bytes: Any,
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        **named: Any,
    ) -> None:
        check_and_normalize_provider_args(providers, provider_options, get_available_providers())
        log(f"Loading a model of {type(path_or_bytes).__name__}")
        options = SessionOptions() if sess_options is None else sess_options
        with _named_as_there(while_loading=True):
            super().__init__(path_or_bytes, options, **named)

    @property
    def _sess(self) -> _InnerSession:
        """The session under the names of ONNX Runtime's inner class."""
        return _InnerSession(self)

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: The outputs that are wanted; all if there are none.
            input_feed: Arrays by the names of the inputs.
            run_options: Settings of this run.
        """
        missing = [name for name in self._model.inputs if name not in input_feed and name not in self._optional]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(input_feed)}).")
        with _named_as_there(while_loading=False):
            return super().run(output_names, input_feed, run_options)

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> list[Any]:
        """Compute outputs as `OrtValue`.

        Args:
            output_names: As of `run`.
            input_dict_ort_values: As of `run`.
            run_options: As of `run`.
        """
        return [OrtValue(y) for y in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Returns an object that inputs and outputs are bound to."""
        return IOBinding(self)

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Accepts providers.

        Args:
            providers: The names of providers of ONNX Runtime.
            provider_options: Ignored.
        """
        names, _ = check_and_normalize_provider_args(providers, provider_options, get_available_providers())
        for name in names:
            if name.removesuffix("ExecutionProvider") not in _PROVIDERS:
                raise RuntimeError(f"Unknown Provider Type: {name}")

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the kind of memory of each input."""
        return [_memory() for _ in self.get_inputs()]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the kind of memory of each output."""
        return [_memory() for _ in self.get_outputs()]

    def get_input_epdevices(self) -> list[None]:
        """Returns None for each input: there are no devices of plugins."""
        return [None for _ in self.get_inputs()]


def _memory() -> OrtMemoryInfo:
    """Returns the memory of the CPU."""
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)


def get_default_session_options() -> SessionOptions:
    """Returns settings of a session."""
    return SessionOptions()


get_session_initializer = get_default_session_options

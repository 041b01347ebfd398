"""The public names of `onnxruntime`: sessions whose errors have ONNX Runtime's names, and facts of the machine."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import kinnor
from kinnor import onnx as sessions
from kinnor.onnx import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, ModelMetadata, NodeArg, OnnxError

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

VERSION = "1.32.0"
"""The version of ONNX Runtime whose Python interface this is."""


class OrtValueVector(list[Any]):
    """Inputs or outputs of a session: a list of `OrtValue`."""

    def push_back(self, value: Any) -> None:
        """Add a value.

        Args:
            value: The value.
        """
        self.append(value)

    def element_type_at(self, at: int) -> int:
        """Returns the number that ONNX gives the element type of a value.

        Args:
            at: The index of the value.
        """
        return int(self[at].element_type())

    def dlpack_at(self, at: int) -> Any:
        """Returns a value as a DLPack capsule.

        Args:
            at: The index of the value.
        """
        return self[at].to_dlpack()

    def reserve(self, n: int) -> None:
        """Does nothing.

        Args:
            n: Ignored.
        """

    def shrink_to_fit(self) -> None:
        """Does nothing."""


class SessionOptions(sessions.SessionOptions):
    """Settings of a session, whose errors have ONNX Runtime's names."""

    def get_session_config_entry(self, key: str) -> str:
        """Returns a setting that was added.

        Args:
            key: Its name.
        """
        if key not in self._entries:
            raise RuntimeError(f"SessionOptions does not have configuration with key: {key}")
        return self._entries[key]

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
        if key not in self._entries:
            raise RuntimeError(f"RunOptions does not have configuration with key: {key}")
        return self._entries[key]

    def add_active_adapter(self, adapter: Any) -> None:
        """Refuses adapters.

        Args:
            adapter: The adapter.
        """
        raise NotImplemented("RunOptions: expected no LoRA adapters, got one")  # noqa: F901 - the class of this module


class OrtValue(sessions.OrtValue):
    """An input or output of a session, with the names of ONNX Runtime's inner class as well."""

    @property
    def _ortvalue(self) -> OrtValue:
        """The value itself."""
        return self

    def _get_c_value(self) -> OrtValue:
        """Returns the value itself."""
        return self


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


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], list[dict[str, str]]]:
    """Check the providers of a session, and warn if one is not available.

    Args:
        providers: Names, or pairs of a name and its settings.
        provider_options: The settings of each name, or None.
        available_provider_names: The providers that there are.

    Returns:
        The names, and the settings of each as strings.

    Raises:
        ValueError: If an argument is of another kind.
    """
    found: dict[str, dict[str, str]] = {}
    if providers is None:
        return [], []
    if not isinstance(providers, Sequence):
        raise ValueError(f"providers: expected a sequence, got {type(providers).__name__}")
    pairs = [(held, {}) if isinstance(held, str) else held for held in providers]
    if provider_options is not None:
        if not isinstance(provider_options, Sequence) or len(provider_options) != len(providers):
            raise ValueError(f"provider_options: expected {len(providers)} dictionaries, got {provider_options!r}")
        if not all(isinstance(held, str) for held in providers):
            raise ValueError("providers: expected names where `provider_options` are given, got others")
        pairs = list(zip(providers, provider_options, strict=True))
    for pair in pairs:
        fits = isinstance(pair, tuple) and len(pair) == 2
        if not (fits and isinstance(pair[0], str) and isinstance(pair[1], dict)):
            raise ValueError(f"providers: expected names, or pairs of a name and a dictionary, got {pair!r}")
        name, settings = pair
        if name not in available_provider_names:
            there = ", ".join(available_provider_names)
            warnings.warn(f"provider {name!r} is not available, only: {there}", UserWarning, stacklevel=3)
        if name in found:
            warnings.warn(f"provider {name!r} is there twice", UserWarning, stacklevel=3)
        else:
            found[name] = {str(key): str(value) for key, value in settings.items()}
    return list(found), list(found.values())


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
        _log(f"Loading a model of {type(path_or_bytes).__name__}")
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


class IOBinding(sessions.IOBinding):
    """Inputs and outputs of a session that are bound before a run."""

    def get_outputs(self) -> list[Any]:
        """Returns the outputs of the last run, in the order in which they were bound."""
        return OrtValueVector(OrtValue(value.numpy()) for value in super().get_outputs())

    get_outputs_as_ortvaluevector = get_outputs


class SessionIOBinding(IOBinding):
    """The same in the shape of ONNX Runtime's inner class, which takes devices as objects.

    Args:
        session: The session, or its inner one.
    """

    def __init__(self, session: Any) -> None:
        super().__init__(getattr(session, "session", session))

    def bind_input(self, name: str, device: Any, *described: Any) -> None:
        """Bind memory or an array to an input.

        Args:
            name: The input.
            device: The device; or the array.
            described: Element type, shape and address of the memory.
        """
        if described:
            super().bind_input(name, device, 0, *described)
        else:
            self.bind_cpu_input(name, device)

    def bind_output(self, name: str, device: Any, *described: Any) -> None:  # type: ignore[override]
        """Ask for an output.

        Args:
            name: The output.
            device: The device.
            described: Element type, shape and address of memory of the caller.
        """
        super().bind_output(name, device, 0, *described)


def get_available_providers() -> list[str]:
    """Returns `["CPUExecutionProvider"]`."""
    return ["CPUExecutionProvider"]


get_all_providers = get_available_providers


def get_device() -> str:
    """Returns `CPU`."""
    return "CPU"


def get_version_string() -> str:
    """Returns the version of ONNX Runtime whose interface this is."""
    return VERSION


def get_build_info() -> str:
    """Returns the version of Kinnor."""
    return f"ORT Build Info: Kinnor {kinnor.__version__}"


def has_collective_ops() -> bool:
    """Returns False."""
    return False


def set_seed(seed: int) -> None:
    """Seed random operators.

    Args:
        seed: The seed.
    """
    kinnor.seed(seed)


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Set the number of threads of the process.

    Args:
        intra_op_num_threads: The number; 0 changes nothing.
        inter_op_num_threads: Ignored.
    """
    if intra_op_num_threads > 0:
        kinnor.set_num_threads(intra_op_num_threads)


def get_ep_devices() -> list[Any]:
    """Returns the devices of plugins: none."""
    return []


def get_default_session_options() -> SessionOptions:
    """Returns settings of a session."""
    return SessionOptions()


get_session_initializer = get_default_session_options


_logging: dict[str, Any] = {"callback": None, "severity": 2}
"""The function that gets messages, and the lowest level of those."""


def set_default_logger_severity(severity: int) -> None:
    """Set the lowest level of messages.

    Args:
        severity: From 0, all, to 4.
    """
    if severity not in range(5):
        raise RuntimeError(f"set_default_logger_severity: expected a level from 0 to 4, got {severity!r}")
    _logging["severity"] = severity


def set_default_logger_callback(callback: Any, severity: int = 2) -> None:
    """Set the function that gets messages.

    Args:
        callback: Function of level, category, name of the logger, place and text. None removes it.
        severity: The lowest level of messages, from 0 to 4.
    """
    if callback is not None and not callable(callback):
        raise RuntimeError(f"set_default_logger_callback: expected a function, got {type(callback).__name__}")
    set_default_logger_severity(severity)
    _logging["callback"] = callback


def _log(text: str) -> None:
    """Passes a message to the function of the program, whose errors are ignored."""
    if _logging["callback"] is not None and _logging["severity"] == 0:
        try:
            _logging["callback"](0, "kinnor", "Default", __name__, text)
        except Exception as error:
            warnings.warn(f"the logging callback raised {error!r}", RuntimeWarning, stacklevel=3)


def print_debug_info() -> None:
    """Print versions."""
    print(get_build_info(), f"ONNX Runtime {VERSION}", sep="\n")


def _ignore(*_: Any, **__: Any) -> None:
    """Does nothing."""


create_and_register_allocator = _ignore
create_and_register_allocator_v2 = _ignore
disable_telemetry_events = _ignore
enable_telemetry_events = _ignore
preload_dlls = _ignore
set_default_logger_verbosity = _ignore

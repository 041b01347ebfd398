"""The public names of `onnxruntime`: sessions whose errors have ONNX Runtime's names, and facts of the machine."""

from __future__ import annotations

from contextlib import contextmanager
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import kinnor
from kinnor.onnx import (
    ExecutionMode,
    GraphOptimizationLevel,
    IOBinding,
    ModelMetadata,
    NodeArg,
    OnnxError,
    OrtValue,
    RunOptions,
    SessionOptions,
)
from kinnor.onnx import InferenceSession as Session

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    "ModelLoaded",
    "ModelMetadata",
    "NoModel",
    "NoSuchFile",
    "NodeArg",
    "NotImplemented",
    "OrtAllocatorType",
    "OrtDevice",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionIOBinding",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]

VERSION = "1.32.0"
"""The version of ONNX Runtime whose Python interface this is."""

SessionIOBinding = IOBinding


class Fail(Exception):
    """A run failed."""


class InvalidArgument(Exception):
    """An input has another name, element type or shape than the file says."""


class NoSuchFile(Exception):
    """There is no such file."""


class NoModel(Exception):
    """There is no model."""


class EngineError(Exception):
    """A provider failed."""


class RuntimeException(Exception):
    """A run failed."""


class InvalidProtobuf(Exception):
    """The file is no ONNX file."""


class ModelLoaded(Exception):
    """The session has a model already."""


class NotImplemented(Exception):
    """Operators are missing."""


class InvalidGraph(Exception):
    """The graph is malformed."""


class EPFail(Exception):
    """A provider failed."""


class ExecutionOrder(IntEnum):
    """The order in which ONNX Runtime runs nodes. Kinnor ignores it."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(IntEnum):
    """Kinds of allocators of ONNX Runtime. Kinnor ignores them."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(IntEnum):
    """Kinds of memory of ONNX Runtime. Kinnor ignores them."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    DEFAULT = 0


class OrtDevice:
    """The CPU."""

    @staticmethod
    def make(name: str, device_id: int) -> OrtDevice:
        """Returns the device of a name.

        Args:
            name: `cpu`.
            device_id: Ignored.
        """
        if name.lower() != "cpu":
            raise InvalidArgument(f"OrtDevice: expected 'cpu', got {name!r}")
        return OrtDevice()

    @staticmethod
    def cpu() -> int:
        """Returns the number of the kind of device."""
        return 0

    @staticmethod
    def default_memory() -> int:
        """Returns the number of the kind of memory."""
        return 0

    def device_id(self) -> int:
        """Returns 0: there is one device."""
        return 0

    def device_type(self) -> str:
        """Returns `cpu`."""
        return "cpu"


class OrtMemoryInfo:
    """A kind of memory. Kinnor ignores it."""

    def __init__(self, *_: Any) -> None:
        pass


@contextmanager
def _named_as_there(while_loading: bool) -> Iterator[None]:
    """Raise errors under the names that ONNX Runtime gives them."""
    try:
        yield
    except FileNotFoundError as error:
        raise NoSuchFile(str(error)) from error
    except kinnor.UnsupportedError as error:
        raise NotImplemented(str(error)) from error  # noqa: F901 - the class of this module
    except OnnxError as error:
        if while_loading:
            raise (InvalidProtobuf if "got bytes that are none" in str(error) else InvalidGraph)(str(error)) from error
        raise Fail(str(error)) from error
    except (kinnor.DTypeError, kinnor.ShapeError) as error:
        raise InvalidArgument(str(error)) from error
    except kinnor.CallError as error:
        if "expected the inputs" in str(error):
            raise ValueError(str(error)) from error
        raise InvalidArgument(str(error)) from error
    except kinnor.Error as error:
        raise RuntimeException(str(error)) from error


class InferenceSession(Session):
    """A session whose errors have ONNX Runtime's names."""

    def __init__(self, *args: Any, **named: Any) -> None:
        with _named_as_there(while_loading=True):
            super().__init__(*args, **named)

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> list[Any]:
        """Compute outputs.

        Args:
            output_names: The outputs that are wanted; all if there are none.
            input_feed: Arrays by the names of the inputs.
            run_options: Ignored.
        """
        with _named_as_there(while_loading=False):
            return super().run(output_names, input_feed, run_options)


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
    return f"Kinnor {kinnor.__version__}"


def has_collective_ops() -> bool:
    """Returns False."""
    return False


def set_seed(seed: int) -> None:
    """Seed random operators.

    Args:
        seed: The seed.
    """
    kinnor.seed(seed)


def _ignore(*_: Any, **__: Any) -> None:
    """Does nothing."""


disable_telemetry_events = _ignore
enable_telemetry_events = _ignore
preload_dlls = _ignore
set_default_logger_severity = _ignore
set_default_logger_verbosity = _ignore

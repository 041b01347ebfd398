"""The errors of `onnxruntime`."""

__all__ = [
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
]


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


class ModelLoadCanceled(Exception):
    """The program ended the reading of a model."""


class ModelRequiresCompilation(Exception):
    """A provider takes compiled models only."""


class NotFound(Exception):
    """There is no such thing."""

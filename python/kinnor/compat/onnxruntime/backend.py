"""ONNX's backend interface over sessions: `prepare` makes a model ready, and `run` computes its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.backend.base import Backend, BackendRep

from .runtime import InferenceSession, RunOptions, SessionOptions

__all__ = ["OnnxRuntimeBackend", "OnnxRuntimeBackendRep", "is_compatible", "prepare", "run", "supports_device"]

__path__: list[str] = []  # Programs import the modules `backend` and `backend_rep` below this one.

_RUN = frozenset({"log_severity_level", "log_verbosity_level", "logid", "only_execute_path_to_fetches"})
"""Settings of a run that callers may give."""

_SESSION = frozenset(
    {
        *("enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order"),
        *("graph_optimization_level", "inter_op_num_threads", "intra_op_num_threads", "log_severity_level"),
        *("log_verbosity_level", "logid", "use_deterministic_compute", "use_per_session_threads"),
    }
)
"""Settings of a session that callers may give. They write no files."""


def _set(options: Any, allowed: frozenset[str], named: dict[str, Any]) -> Any:
    """Returns options with settings. Unknown settings are ignored. Settings that may write files are refused."""
    for name, value in named.items():
        if name in allowed:
            setattr(options, name, value)
        elif hasattr(options, name):
            kind = type(options).__name__
            raise RuntimeError(f"{kind}.{name} is not permitted here, only: {', '.join(sorted(allowed))}")
    return options


class OnnxRuntimeBackendRep(BackendRep):
    """A model that is ready to run.

    Args:
        session: Its session.
    """

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def run(self, inputs: Any, **named: Any) -> Any:
        """Compute the outputs.

        Args:
            inputs: A list of the inputs in order, or the only input.
            named: Settings of the run.
        """
        options = _set(RunOptions(), _RUN, named)
        names = [held.name for held in self._session.get_inputs()]
        inputs = inputs if isinstance(inputs, list) else [inputs]
        if len(names) != len(inputs):
            raise RuntimeError(f"expected {len(names)} inputs, got {len(inputs)}")
        given = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
        return self._session.run(None, dict(zip(names, given, strict=True)), options)


class OnnxRuntimeBackend(Backend):
    """ONNX's backend interface."""

    @classmethod
    def is_compatible(cls, model: Any, device: str | None = None, **_: Any) -> bool:
        """True if a device can run models.

        Args:
            model: Ignored.
            device: The device; by default the CPU.
        """
        return cls.supports_device(device or "CPU")

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for the CPU.

        Args:
            device: The device.
        """
        return device.split(":")[0] == "CPU"

    @classmethod
    def prepare(cls, model: Any, device: str | None = None, **named: Any) -> Any:
        """Make a model ready.

        Args:
            model: A path, the bytes of a file, a `ModelProto`, a session, or a model that is ready.
            device: The device; by default the CPU.
            named: Settings of the session.
        """
        if isinstance(model, OnnxRuntimeBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxRuntimeBackendRep(model)
        if device is not None and not cls.supports_device(device):
            raise RuntimeError(f"expected the device 'CPU', got {device!r}")
        return OnnxRuntimeBackendRep(InferenceSession(model, _set(SessionOptions(), _SESSION, named)))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str | None = None, **named: Any) -> Any:
        """Compute the outputs of a model.

        Args:
            model: As of `prepare`.
            inputs: A list of the inputs in order, or the only input.
            device: As of `prepare`.
            named: Settings of the session and of the run.
        """
        return cls.prepare(model, device, **named).run(inputs, **{k: x for k, x in named.items() if k not in _SESSION})

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str | None = None, outputs_info: Any = None, **_: Any) -> Any:
        """Refuses single nodes.

        Args:
            node: The node.
            inputs: Its inputs.
            device: Ignored.
            outputs_info: Ignored.
        """
        raise NotImplementedError("expected a model, got a node")


is_compatible = OnnxRuntimeBackend.is_compatible
prepare = OnnxRuntimeBackend.prepare
run = OnnxRuntimeBackend.run_model
supports_device = OnnxRuntimeBackend.supports_device

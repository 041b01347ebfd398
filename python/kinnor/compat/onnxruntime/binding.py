"""Values of sessions and bindings to their inputs and outputs, with the names of ONNX Runtime's inner classes."""

from __future__ import annotations

from typing import Any

from kinnor import onnx as sessions

__all__ = ["IOBinding", "OrtValue", "OrtValueVector", "SessionIOBinding"]


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


class OrtValue(sessions.OrtValue):
    """An input or output of a session, with the names of ONNX Runtime's inner class as well."""

    @property
    def _ortvalue(self) -> OrtValue:
        """The value itself."""
        return self

    def _get_c_value(self) -> OrtValue:
        """Returns the value itself."""
        return self


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

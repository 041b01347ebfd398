"""Sessions: networks in ONNX files behind the interface of ONNX Runtime.

Knows models; knows no graphs and no operators.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._core import CallError, DTypeError, set_num_threads
from ..read.reading import described
from ..read.replacing import fill_files, fix_lengths, replace_initializers, with_arrays
from ..read.tensors import onnx_package
from ..read.values import OnnxError
from .binding import IOBinding, OrtValue, type_of
from .loading import loaded
from .options import RunOptions, SessionOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ..read.reading import ModelMetadata, NodeArg

__all__ = ["InferenceSession"]

_CPU = "CPUExecutionProvider"
"""The only provider, by ONNX Runtime's name."""


class Profile:
    """The times of a session: of reading its model, and of each run.

    Args:
        prefix: The first part of the path of the file. Date and time follow.

    Attributes:
        start: The time of its begin in nanoseconds.
    """

    def __init__(self, prefix: str) -> None:
        self.start = time.time_ns()
        self._origin = time.perf_counter_ns()
        self._path = f"{prefix}_{datetime.now().astimezone():%Y-%m-%d_%H-%M-%S}"
        self._events: list[str] = []

    def note(self, name: str, begin: int) -> None:
        """Notes an event that ends now.

        Args:
            name: The name of the event.
            begin: The value of `time.perf_counter_ns` at its begin.
        """
        event = {
            "cat": "Session",
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": (time.perf_counter_ns() - begin) // 1000,
            "ts": (begin - self._origin) // 1000,
            "ph": "X",
            "name": name,
            "args": {},
        }
        self._events.append(json.dumps(event))

    def written(self) -> str:
        """Writes the file.

        Returns:
            Its path.

        Raises:
            OSError: If it cannot be written.
        """
        path, at = Path(f"{self._path}.json"), 1
        while path.exists():
            path, at = Path(f"{self._path}_{at}.json"), at + 1
        path.write_text("[\n" + ",\n".join(self._events) + "\n]\n")
        return str(path)


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
        if not isinstance(sess_options, (SessionOptions, type(None))):
            raise CallError(f"InferenceSession: expected SessionOptions, got {type(sess_options).__name__}")
        self._options = sess_options if sess_options is not None else SessionOptions()
        if self._options.intra_op_num_threads > 0:
            set_num_threads(self._options.intra_op_num_threads)
        self._profile = Profile(self._options.profile_file_prefix) if self._options.enable_profiling else None
        folder = self._options._entries.get("session.model_external_initializers_file_folder_path")
        begin = time.perf_counter_ns()
        self._model = loaded(path_or_bytes, folder, self._changed)
        self._note("model_loading", begin)
        self._dtypes = {name: held.dtype for name, held in self._model._types.items()}
        self._optional = {name for name, held in self._model._types.items() if held.is_optional}
        self._sequences = {name for name, held in self._model._types.items() if held.is_sequence}
        # Initializers that a run may replace, and sessions in which some of them are inputs.
        initial = [held for held in self._model._proto.graph.input if held.name not in self._dtypes]
        self._initial = {held.name: described(held) for held in initial}
        self._with_inputs: dict[frozenset[str], InferenceSession] = {}
        if self._options.optimized_model_filepath:
            self._write(self._options.optimized_model_filepath)

    def _changed(self, proto: Any) -> Any:
        """Returns the model with the lengths and initializers of the settings."""
        held = self._options
        if not (held._lengths or held._lengths_by_denotation or held._initializers or held._files):
            return proto
        found = type(proto)()
        found.CopyFrom(proto)
        fix_lengths(found, held._lengths, held._lengths_by_denotation)
        replace_initializers(found, {name: value.numpy() for name, value in held._initializers.items()})
        fill_files(found, held._files)
        return found

    def _write(self, path: str) -> None:
        """Writes the model as it was read. Entries of the settings name a file for its large tensors."""
        prefix = "session.optimized_model_external_initializers_"
        location = self._options._entries.get(f"{prefix}file_name")
        least = int(self._options._entries.get(f"{prefix}min_size_in_bytes", "1024"))
        outside = {}
        if location is not None:
            (Path(path).parent / location).unlink(missing_ok=True)  # the package would append to it
            outside = {"save_as_external_data": True, "location": location, "size_threshold": least}
        onnx_package("InferenceSession").save_model(with_arrays(*self._model.written()), path, **outside)

    def _note(self, name: str, begin: int) -> None:
        """Notes the time since `begin`, if times are wanted."""
        if self._profile is not None:
            self._profile.note(name, begin)

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
        """Returns the initializers that a run may replace: the initializers that the file lists among its inputs."""
        return list(self._initial.values())

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
            input_feed: Arrays by the names of the inputs; lists of arrays for sequences, dictionaries for tables.
            run_options: Settings of this run.

        Returns:
            The outputs as arrays, in the order of `output_names`; lists of arrays for sequences.

        Raises:
            CallError: If inputs are missing, or there are no inputs and outputs of these names.
            DTypeError: If an input has another element type than the file says.
            ShapeError: If an input has another shape.
            OnnxError: If the network cannot be computed for these inputs, or `run_options` ends the run.
        """
        model = self._model
        if not isinstance(input_feed, Mapping):
            raise CallError(f"InferenceSession.run: expected inputs by name, got {type(input_feed).__name__}")
        if not isinstance(run_options, (RunOptions, type(None))):
            raise CallError(f"InferenceSession.run: expected RunOptions, got {type(run_options).__name__}")
        if run_options is not None and run_options.terminate:
            raise OnnxError("InferenceSession.run: expected options that let it run, got some with `terminate`")
        if self._initial and (replaced := frozenset(name for name in input_feed if name in self._initial)):
            return self._session_with(replaced).run(output_names, input_feed, run_options)
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
        begin = time.perf_counter_ns()
        found = model(*(self._checked(name, input_feed.get(name)) for name in model.inputs))
        self._note("model_run", begin)
        made = dict(zip(model.outputs, found if len(model.outputs) > 1 else (found,), strict=True))
        return [made[name] for name in wanted]

    def _session_with(self, names: frozenset[str]) -> InferenceSession:
        """Returns a session in which initializers are inputs. Their values are in the feed of each run."""
        found = self._with_inputs.get(names)
        if found is None:
            proto, arrays = self._model.written()
            found = InferenceSession(with_arrays(proto, {key: x for key, x in arrays.items() if key not in names}))
            self._with_inputs[names] = found
        return found

    def _checked(self, name: str, x: Any) -> Any:
        """Returns an input as an array of the element type of the file."""
        x = x.numpy() if isinstance(x, OrtValue) else x
        if x is None or name in self._sequences or self._model._types[name].keys is not None:
            return x
        wanted, array = self._dtypes[name], np.asarray(x)
        if array.dtype == wanted or (wanted.kind == "O" and array.dtype.kind in "STUV"):
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
        """Writes the times of the session to a file, which trace viewers show.

        Returns:
            The path of the file; empty if `enable_profiling` was not set.

        Raises:
            OSError: If the file cannot be written.
        """
        profile, self._profile = self._profile, None
        return "" if profile is None else profile.written()

    def get_profiling_start_time_ns(self) -> int:
        """Returns the time in nanoseconds at which profiling began, or 0."""
        return 0 if self._profile is None else self._profile.start

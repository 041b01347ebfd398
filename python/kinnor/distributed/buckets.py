"""All-reduce of gradients in buckets, in the order in which a backward run completes them.

The gradients are views of one flat array. A bucket is a range of it, which MPI sums in place. All processes send the
same buckets in the same order, even if their runs complete gradients in different orders.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .. import _check
from .._core import CommunicatorBackwardCallback, NdArray, completed_gradients
from .arguments import dtype_of
from .transport import CommunicatorError, is_slow
from .watch import caller

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike, NDArray

    from .._core import Function, Variable
    from .communicator import Communicator
    from .transport import Transport

__all__ = ["AllReduceCallback", "Compressed"]


class Compressed:
    """Sums float32 arrays that are sent with 16 bits per value.

    Each process sums a part of the array in float32, and gathers the other parts. The rounding error of each sent
    value is added to the value at the same position in the next step (error feedback).

    Args:
        members: The processes.
        dtype: `"bfloat16"` or `"float16"`.

    Raises:
        CommunicatorError: If `dtype` is another type.
    """

    def __init__(self, members: Transport, dtype: DTypeLike) -> None:
        name = str(getattr(dtype, "__name__", dtype))
        if name not in ("bfloat16", "float16", "half"):
            raise CommunicatorError(f"all_reduce_callback: expected dtype to be bfloat16 or float16, got {dtype!r}")
        self._members = members
        self._is_bfloat16 = name == "bfloat16"
        self._errors: dict[int, NDArray[np.float32]] = {}
        self._errors_of_sums: dict[int, NDArray[np.float32]] = {}

    def all_reduce(self, values: NDArray[Any], place: int) -> None:
        """Replaces `values` by the sum over all processes.

        Args:
            values: Float32 values of one axis.
            place: A number that identifies the array in each step; its rounding errors are stored under it.
        """
        n, size = self._members.size, values.size
        part = -(-size // n)
        counts = [max(0, min(size, (k + 1) * part) - k * part) for k in range(n)]
        sent = self._rounded(values, self._errors, place)
        own = counts[self._members.rank]
        received = np.empty(n * own, np.uint16)
        self._members.all_to_all(sent, received, counts)
        total = np.zeros(own, np.float32)
        for k in range(n):
            total += self._widened(received[k * own : (k + 1) * own])
        gathered = np.empty(size, np.uint16)
        self._members.all_gather(self._rounded(total, self._errors_of_sums, place), gathered, counts)
        values[...] = self._widened(gathered)

    def _rounded(self, values: NDArray[Any], errors: dict[int, NDArray[np.float32]], place: int) -> NDArray[np.uint16]:
        """Values plus the stored errors, rounded to 16 bits. Stores the new errors."""
        error = errors.get(place)
        wanted = values if error is None else values + error
        sent = self._narrowed(wanted)
        left = wanted - self._widened(sent)
        errors[place] = np.where(np.isfinite(left), left, np.float32(0))  # Overflow leaves no error to feed back.
        return sent

    def _narrowed(self, values: NDArray[Any]) -> NDArray[np.uint16]:
        """Float32 values rounded to 16 bits."""
        if not self._is_bfloat16:
            with np.errstate(over="ignore"):
                return values.astype(np.float16).view(np.uint16)
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
        return np.where(np.isnan(values), ((bits >> 16) | 0x40).astype(np.uint16), nearest)  # stays NaN

    def _widened(self, values: NDArray[np.uint16]) -> NDArray[np.float32]:
        """16-bit values as float32."""
        if not self._is_bfloat16:
            return values.view(np.float16).astype(np.float32)
        return (values.astype(np.uint32) << 16).view(np.float32)


OVERLAPS = ("auto", "none", "blocking", "thread")
"""The values of `overlap`."""


class Bucket(NamedTuple):
    """Gradients that are sent together."""

    names: list[str]
    """The names of the gradients."""
    start: int
    """The position of the first element in the buffer of all gradients."""
    stop: int
    """The position after the last element."""


class AllReduceCallback(CommunicatorBackwardCallback):
    """Sums gradients over processes during a backward run. `Communicator.get_all_reduce_callback` makes it.

    Args:
        communicator: The communicator.
        members: The processes of the group.
        variables: Parameters by name, if their gradients may move to one flat array; else None.
        grads: The gradients by name.
        packing_size: Number of values in a bucket.
        division: Whether to divide by the number of processes.
        scale_grad: Factor of the gradients before they are summed.
        dtype: The 16-bit type in which gradients are sent, or None to send them unchanged.
        overlap: `"auto"`, `"none"`, `"blocking"` or `"thread"`, as in `get_all_reduce_callback`.

    Raises:
        CommunicatorError: If `dtype` or `overlap` is unknown.
    """

    def __init__(
        self,
        communicator: Communicator,
        members: Transport,
        variables: Mapping[str, Variable] | None,
        grads: Mapping[str, NdArray],
        packing_size: int,
        division: bool,
        scale_grad: float,
        dtype: DTypeLike | None = None,
        overlap: str = "blocking",
    ) -> None:
        if overlap not in OVERLAPS:
            raise CommunicatorError(f"all_reduce_callback: expected overlap to be one of {OVERLAPS}, got {overlap!r}")
        self._communicator, self._members = communicator, members
        self._variables, self._grads = variables, dict(grads)
        self._packing_size = packing_size
        self._scale = float(_check.number("all_reduce_callback", "scale_grad", scale_grad))
        self._divisor = members.size if _check.flag("all_reduce_callback", "division", division) else 1
        with communicator._watched("all_reduce_callback"):
            if overlap == "auto":
                overlap = "thread" if members.size > 1 and is_slow(members) else "none"
            self._overlap = overlap
            self._sender = members.beside() if overlap == "thread" else members
        self._compressed = None if dtype is None else Compressed(self._sender, dtype)
        self._thread = ThreadPoolExecutor(1, "kinnor-communicator") if overlap == "thread" else None
        self._flat: NDArray[Any] | None = None
        self._array: NdArray | None = None
        self._parts: list[NdArray] = []
        self._buckets: list[Bucket] = []
        self._order: list[str] = []
        self._start_run()

    @property
    def overlap(self) -> str:
        """The time at which gradients are sent: `"none"` (after the run), `"blocking"` or `"thread"`."""
        return self._overlap

    def _start_run(self) -> None:
        """Resets the state of a backward run."""
        self._due: dict[Function, int] = {}
        self._are_in_place = False
        self._sent = 0
        self._waiting: list[Future[None]] = []

    # --- During the run

    def on_finish_function_backward(self, f: Function) -> None:
        """Send the buckets that `f` has completed.

        Args:
            f: The function that ran backward.
        """
        due = self._due.pop(f, None)
        if due is None:  # the first function of a run, perhaps after an interrupted one
            self._wait()
            self._start_run()
            self._plan_run(f)
            due = self._due.pop(f, 0)
        while self._sent < due:
            self._send()

    def on_finish_backward(self) -> None:
        """Send the remaining buckets, and wait for all sums."""
        if self._flat is None:
            self._reduce_packed()
            self._arrange()
        else:
            if not self._are_in_place:
                self._check_places()
            while self._sent < len(self._buckets):
                self._send()
            self._wait()
        self._start_run()

    def sum_gradients(self) -> None:
        """Sum gradients after a backward run without this callback.

        With `overlap` `"none"`, nothing is sent during the run. Then it is faster to run without the callback, which
        is called for each function, and to call this method afterwards. The sums are the same.

        Examples:
            >>> import kinnor as nn, kinnor.functions as F
            >>> from kinnor.distributed import MultiProcessDataParallelCommunicator
            >>> comm = MultiProcessDataParallelCommunicator()
            >>> comm.init()
            >>> w = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
            >>> comm.add_context_and_parameters((nn.Context(), {"w": w}))
            >>> callback = comm.get_all_reduce_callback(division=True)
            >>> loss = F.sum(w * w)
            >>> loss.forward()
            >>> w.grad.zero()
            >>> loss.backward(clear_buffer=True)
            >>> callback.sum_gradients()
            >>> w.g.tolist()
            [2.0, 4.0]
        """
        self.on_finish_backward()

    def _grad(self, name: str) -> NdArray:
        """The current gradient of a parameter."""
        return self._grads[name] if self._variables is None else self._variables[name].grad

    def _wait(self) -> None:
        """Waits for the sums in the thread, and raises their errors."""
        for sent in self._waiting:
            sent.result()

    def _plan_run(self, first: Function) -> None:
        """Plans a run that starts at `first`: the number of complete buckets after each function."""
        if self._flat is None:
            names = list(self._grads)
            run = completed_gradients(first, [self._grad(name) for name in names])
            self._order = [names[n] for _, complete in run for n in complete]
            self._due = dict.fromkeys((f for f, _ in run), 0)
            return
        run = completed_gradients(first, self._parts)
        bucket_of = [n for n, bucket in enumerate(self._buckets) for _ in bucket.names]
        missing = [len(bucket.names) for bucket in self._buckets]
        full = 0
        for f, complete in run:
            for n in complete:
                missing[bucket_of[n]] -= 1
            while full < len(missing) and not missing[full]:
                full += 1
            self._due[f] = full if self._overlap != "none" else 0
        self._are_in_place = not any(missing)

    # --- Buckets

    def _send(self) -> None:
        """Sums the next bucket, in this thread or in the sending one."""
        bucket = self._buckets[self._sent]
        self._sent += 1
        flat = self._flat
        if flat is None:
            return
        values = flat[bucket.start : bucket.stop]
        if self._thread is None:
            self._reduce(values, bucket)
        else:
            where = None if self._communicator._watch is None else caller()
            self._waiting.append(self._thread.submit(self._reduce, values, bucket, where))

    def _reduce(self, values: NDArray[Any], bucket: Bucket, where: str | None = None) -> None:
        """Scales, sums and divides the values of a bucket in place."""
        if self._scale != 1.0:
            values *= self._scale
        if self._members.size > 1:
            what = f"all_reduce of {len(bucket.names)} gradients from {bucket.names[0]!r}"
            with self._communicator._watched(what, where):
                if self._compressed is None:
                    self._sender.all_reduce(values)
                else:
                    self._compressed.all_reduce(values, bucket.start)
        if self._divisor > 1:
            values /= self._divisor

    def _reduce_packed(self) -> None:
        """Sums gradients that are not in the flat array, as in the first run, by packing them."""
        arrays = [self._grad(name) for name in self._grads]
        if self._scale != 1.0:
            for array in arrays:
                array.get_data("rw")[...] *= self._scale
        self._communicator._collective(
            "all_reduce of gradients", self._members, arrays, self._members.all_reduce, False, self._divisor > 1
        )

    def _arrange(self) -> None:
        """Moves the gradients into the flat array, in the order of this run on the first process."""
        own = list(dict.fromkeys([*self._order, *self._grads]))
        with self._communicator._watched("the order of gradients"):
            self._order = self._members.exchange("\n".join(own))[0].split("\n")
        dtypes = {dtype_of(self._grad(name)) for name in self._order}
        if self._variables is None or dtypes != {np.dtype(np.float32)}:
            self._order = []
            return  # Gradients of other types are packed in each run.
        size = sum(self._grad(name).size for name in self._order)
        array = NdArray((size,))
        flat = array.get_data("w")
        start = 0
        names: list[str] = []
        self._parts, self._buckets, first = [], [], 0
        for name in self._order:
            variable = self._variables[name]
            stop = start + variable.size
            flat[start:stop] = variable.grad.get_data("r").ravel()
            variable.grad = array.narrow(0, start, variable.size).view(variable.shape)
            self._parts.append(variable.grad)
            names.append(name)
            start = stop
            if stop - first >= self._packing_size or name == self._order[-1]:
                self._buckets.append(Bucket(names, first, stop))
                names, first = [], stop
        self._array, self._flat = array, flat

    def _check_places(self) -> None:
        """Raises CommunicatorError if the program has replaced a parameter's `grad`."""
        if self._flat is None or self._variables is None:
            return
        at = self._flat.ctypes.data
        for name in self._order:
            variable = self._variables[name]
            if variable.grad.data_ptr(np.float32) != at:
                raise CommunicatorError(
                    f"all_reduce_callback: expected the gradient of parameter {name!r} to stay where it was put, got "
                    "another array: make the callback anew after a change of `grad`"
                )
            at += 4 * variable.size

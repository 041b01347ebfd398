"""NNabla's communicators: groups, collectives, and sums of gradients between processes."""

from __future__ import annotations

import atexit
import hashlib
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .. import _check, _core
from ..context import Context
from .arguments import (
    by_type,
    dtype_of,
    listed,
    name_and_ranks,
    names_of,
    one,
    parameters_of,
    run_packed,
    several,
    summed_in,
)
from .transport import CommunicatorError, Mpi, OneProcess, Transport, connect
from .watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from numpy.typing import DTypeLike, NDArray

    from .._core import NdArray, Variable
    from .buckets import AllReduceCallback

__all__ = [
    "Communicator",
    "DataParallelCommunicator",
    "MultiProcessCommunicator",
    "MultiProcessDataParalellCommunicator",
    "MultiProcessDataParallelCommunicator",
]

WORLD = "world"
"""The name of the group of all processes."""

_watches: list[Watch] = []
"""The watches of this process's communicators."""


def _leave() -> None:
    """Reports the end of this process to the others, at exit. Aborts the program if a process is missing."""
    for watch in _watches:
        watch.say_end()
    for watch in _watches:
        watch.stop()


CHECKED = 64
"""Number of collectives, by group and kind, that are compared between processes before they run."""


class Communicator:
    """Base class of communicators: contexts, parameters, groups, and collectives.

    Args:
        context: The context. It has no effect.
        timeout: Seconds that a process waits for the others in a collective. Then every process prints the state of
            all, and the program ends.

    Raises:
        TypeError: If the context is not a context.
        ValueError: If the timeout is not above 0.
    """

    def __init__(self, context: Context | None = None, *, timeout: float = 600.0) -> None:
        name = type(self).__name__
        if context is not None and not isinstance(context, Context):
            raise TypeError(f"{name}: expected a Context, got {context!r}")
        if not _check.number(name, "timeout", timeout) > 0:
            raise ValueError(f"{name}: expected a timeout above 0 seconds, got {timeout!r}")
        self._context = context if context is not None else Context()
        self._timeout = timeout
        self._parameters: list[tuple[Context, dict[str, Variable]]] = []
        self._groups: dict[str, list[int]] = {}
        self._transports: dict[str, Transport | None] = {}
        self._watch: Watch | None = None
        self._compared: dict[tuple[Transport, str], int] = {}

    # --- Processes

    def init(self) -> None:
        """Connect to the other processes. A second call does nothing.

        Raises:
            CommunicatorError: If MPI started the program, and `mpi4py` or its library is missing.
        """
        if not self._transports:
            self._meet(connect())

    def _meet(self, world: Transport) -> None:
        """Sets the transport of all processes, and starts the watchdog if there are several."""
        self._transports[WORLD] = world
        self._groups[WORLD] = list(range(world.size))
        if isinstance(world, Mpi) and world.size > 1:
            self._watch = Watch(world, self._timeout)
            if not _watches:
                atexit.register(_leave)  # runs before the end of MPI, which is registered earlier
            _watches.append(self._watch)

    @property
    def name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    @property
    def rank(self) -> int:
        """The number of this process, from 0."""
        return self._world("rank").rank

    @property
    def local_rank(self) -> int:
        """The number of this process among the processes of its machine, from 0."""
        return self._world("local_rank").local_rank

    @property
    def size(self) -> int:
        """Number of processes."""
        return self._world("size").size

    def barrier(self) -> None:
        """Wait until all processes have called it.

        Raises:
            CommunicatorError: If `init` was not called, or if the others call another collective.
        """
        world = self._world("barrier")
        self._agree(world, "barrier")
        with self._watched("barrier"):
            world.barrier()

    def abort(self) -> NoReturn:
        """End all processes of the program immediately."""
        self._world("abort").abort()

    def _world(self, op: str) -> Transport:
        """The transport between all processes. Raises CommunicatorError before `init`."""
        world = self._transports.get(WORLD)
        if world is None:
            raise CommunicatorError(f"{self.name}.{op}: expected a call of init() before, got none")
        return world

    def share_random(self, on: bool = True) -> None:
        """Draw random numbers by example rather than by process.

        Each process then draws its part of the numbers that one process would draw for the whole batch, in dropout,
        `F.rand` and so on. The first axis is the examples, in the order of ranks. All processes must have the same
        seed.

        Args:
            on: Whether to do so; otherwise each process draws the whole sequence of its seed.
        """
        world = self._world("share_random")
        _core.share_random(world.rank if on else 0, world.size if on else 1)

    # --- Groups

    def new_group(self, name_ranks: tuple[str, Sequence[int]]) -> str:
        """Make a group of some of the processes. All processes must call it.

        Args:
            name_ranks: A new name, and the ranks of the group.

        Returns:
            The name.

        Raises:
            CommunicatorError: If the name exists, or if a rank is invalid or is given twice.
        """
        world = self._world("new_group")
        name, ranks = name_and_ranks(f"{self.name}.new_group", name_ranks)
        if name in self._groups:
            raise CommunicatorError(f"{self.name}.new_group: expected a new name, got {name!r} again")
        if not ranks or len(set(ranks)) < len(ranks) or not all(0 <= rank < world.size for rank in ranks):
            raise CommunicatorError(
                f"{self.name}.new_group: expected different ranks from 0 to {world.size - 1}, got {ranks}"
            )
        self._agree(world, f"new_group {name} {ranks}")
        with self._watched("new_group"):
            self._transports[name] = world.group(ranks)
        self._groups[name] = ranks
        return name

    def list_groups(self) -> dict[str, list[int]]:
        """The ranks of each group by name. The group `world` has all processes."""
        return {name: list(ranks) for name, ranks in self._groups.items()}

    def find_group(self, group: str) -> list[int]:
        """The ranks of a group; empty if the group does not exist.

        Args:
            group: Name of the group.
        """
        return list(self._groups.get(_check.text(f"{self.name}.find_group", "group", group), []))

    def _members(self, op: str, group: str) -> Transport:
        """The transport of a group. Raises CommunicatorError if this process is not in it."""
        self._world(op)
        if _check.text(f"{self.name}.{op}", "group", group) not in self._groups:
            known = ", ".join(self._groups)
            raise CommunicatorError(f"{self.name}.{op}: expected one of the groups {known}, got {group!r}")
        transport = self._transports[group]
        if transport is None:
            raise CommunicatorError(
                f"{self.name}.{op}: expected a process of the group {group!r} with the ranks {self._groups[group]}, "
                f"got rank {self.rank}"
            )
        return transport

    # --- Parameters

    def add_context_and_parameters(self, ctx_param_dict: tuple[Context, Mapping[str, Variable]]) -> None:
        """Add parameters. `allreduce` and callbacks sum their gradients.

        Args:
            ctx_param_dict: A context, and variables by name, such as `nn.get_parameters()`.

        Raises:
            CallError: If it is not such a pair.
        """
        self._parameters.append(parameters_of(f"{self.name}.add_context_and_parameters", ctx_param_dict))

    def remove_context_parameters(self, ctx_param_dict: tuple[Context, Sequence[str]]) -> None:
        """Remove parameters that were added.

        Args:
            ctx_param_dict: The context, and the names of the parameters. Unknown names are ignored.

        Raises:
            CallError: If it is not such a pair.
        """
        context, names = names_of(f"{self.name}.remove_context_parameters", ctx_param_dict)
        for known, parameters in self._parameters:
            if known == context:
                for name in names:
                    parameters.pop(name, None)

    def clear_context_parameters(self) -> None:
        """Remove all parameters."""
        self._parameters = []

    def _added(self) -> dict[str, Variable]:
        """All added parameters by name."""
        return {name: variable for _, parameters in self._parameters for name, variable in parameters.items()}

    # --- Collectives

    def reduce(
        self,
        data: NdArray | Sequence[NdArray],
        dst: int,
        division: bool = False,
        inplace: bool = False,
        group: str = WORLD,
    ) -> None:
        """Sum arrays over all processes into the arrays of one.

        Args:
            data: Arrays. They stay unchanged on the other processes.
            dst: The rank that gets the sums.
            division: Whether to divide by the number of processes.
            inplace: Whether each array is sent on its own; otherwise they are packed into one.
            group: Name of the group.

        Raises:
            CommunicatorError: If the processes do not agree on the collective.
        """
        members, root = self._root("reduce", dst, group)

        def run(array: NDArray[Any]) -> None:
            """Sums an array on the target process."""
            members.reduce(array, root)

        only = members.rank == root
        self._collective("reduce", members, data, run, inplace, division and only, write=only, told=f" to {dst}")

    def all_reduce(
        self, data: NdArray | Sequence[NdArray], division: bool = False, inplace: bool = False, group: str = WORLD
    ) -> None:
        """Sum arrays over all processes, in place on all of them.

        Args:
            data: Arrays. Half precision is summed in float32.
            division: Whether to divide by the number of processes.
            inplace: Whether each array is reduced on its own; otherwise they are packed into one.
            group: Name of the group.

        Raises:
            CommunicatorError: If the processes do not agree on the collective.

        Examples:
            >>> import kinnor as nn
            >>> comm = MultiProcessDataParallelCommunicator()
            >>> comm.init()
            >>> x = nn.NdArray.from_numpy_array([1.0, 2.0])
            >>> comm.all_reduce(x, division=True)
            >>> x.data.tolist(), comm.size
            ([1.0, 2.0], 1)
        """
        members = self._members("all_reduce", group)
        self._collective("all_reduce", members, data, members.all_reduce, inplace, division)

    def allreduce(self, division: bool = False, inplace: bool = False) -> None:
        """Sum the gradients of the added parameters: NNabla's old form of `all_reduce`.

        Args:
            division: Whether to divide by the number of processes.
            inplace: Whether each gradient is reduced on its own.
        """
        self.all_reduce([variable.grad for variable in self._added().values()], division, inplace)

    def bcast(self, data: NdArray | Sequence[NdArray], src: int, inplace: bool = False, group: str = WORLD) -> None:
        """Copy arrays of one process to all others.

        Args:
            data: Arrays.
            src: The rank whose arrays are copied.
            inplace: Whether each array is sent on its own; otherwise they are packed into one.
            group: Name of the group.

        Raises:
            CommunicatorError: If the processes do not agree on the collective.
        """
        members, root = self._root("bcast", src, group)

        def run(array: NDArray[Any]) -> None:
            """Copies an array of the source process."""
            members.broadcast(array, root)

        self._collective("bcast", members, data, run, inplace, told=f" from {src}")

    def all_gather(self, ndarray: NdArray, ndarray_list: Sequence[NdArray], group: str = WORLD) -> None:
        """Copy the array of each process to all.

        Args:
            ndarray: The array of this process.
            ndarray_list: The targets, one array for each process of the group, in its order.
            group: Name of the group.

        Raises:
            CommunicatorError: If the processes do not agree on the collective.
        """
        members = self._members("all_gather", group)
        ndarray = one("all_gather", "ndarray", ndarray)
        ndarray_list = several("all_gather", "ndarray_list", ndarray_list)
        self._shapes("all_gather", members, ndarray, ndarray_list)
        own = np.ascontiguousarray(ndarray.get_data("r"))
        parts = np.empty((members.size, *own.shape), own.dtype)
        self._agree(members, f"all_gather {own.shape} {own.dtype}")
        with self._watched("all_gather"):
            members.all_gather(own, parts, [own.size] * members.size)
        for array, part in zip(ndarray_list, parts, strict=True):
            array.get_data("w", dtype=own.dtype)[...] = part

    def reduce_scatter(
        self, ndarray_list: Sequence[NdArray], ndarray: NdArray, division: bool = False, group: str = WORLD
    ) -> None:
        """Sum arrays over all processes. The sum of array n goes to process n.

        Args:
            ndarray_list: The summands, one array for each process of the group, in its order.
            ndarray: The target of this process's sum.
            division: Whether to divide by the number of processes.
            group: Name of the group.

        Raises:
            CommunicatorError: If the processes do not agree on the collective.
        """
        members = self._members("reduce_scatter", group)
        ndarray = one("reduce_scatter", "ndarray", ndarray)
        ndarray_list = several("reduce_scatter", "ndarray_list", ndarray_list)
        self._shapes("reduce_scatter", members, ndarray, ndarray_list)
        parts = np.stack([array.get_data("r") for array in ndarray_list])
        wide, dtype = summed_in(parts.dtype), parts.dtype
        parts = parts.astype(wide, copy=False)
        own = np.empty(parts.shape[1:], wide)
        self._agree(members, f"reduce_scatter {own.shape} {dtype}")
        with self._watched("reduce_scatter"):
            members.reduce_scatter(parts, own, [own.size] * members.size)
        if division:
            own /= members.size
        ndarray.get_data("w", dtype=dtype)[...] = own

    def all_reduce_callback(
        self,
        data: NdArray | Sequence[NdArray],
        pack_size: int,
        division: bool = False,
        group: str = WORLD,
        scale_grad: float = 1.0,
        keep_dtype: bool = False,
    ) -> AllReduceCallback:
        """A callback that sums gradients during `backward`.

        Args:
            data: Gradients of parameters, `v.grad` of each.
            pack_size: Number of values that are sent together.
            division: Whether to divide by the number of processes.
            group: Name of the group.
            scale_grad: Factor of the gradients before they are summed.
            keep_dtype: No effect: types never change.

        Returns:
            The callback for the argument `communicator_callbacks` of `Variable.backward`.
        """
        from .buckets import AllReduceCallback

        members = self._members("all_reduce_callback", group)
        arrays = {str(n): array for n, array in enumerate(listed("all_reduce_callback", "data", data))}
        pack_size = _check.count("all_reduce_callback", "pack_size", pack_size, CommunicatorError)
        return AllReduceCallback(self, members, None, arrays, pack_size, division, scale_grad)

    def get_all_reduce_callback(
        self,
        packing_size: int = 2 << 20,
        division: bool = False,
        group: str = WORLD,
        scale_grad: float = 1.0,
        *,
        dtype: DTypeLike | None = None,
        overlap: str = "auto",
    ) -> AllReduceCallback:
        """A callback that sums the gradients of the added parameters during `backward`.

        Make it once and pass it to each `backward`. The first run moves the gradients into one flat array, in the order
        in which they are computed, so that MPI sums them in place. This replaces the `grad` of each parameter: read
        `v.grad` again after the first run.

        Args:
            packing_size: Number of values that are sent together.
            division: Whether to divide by the number of processes.
            group: Name of the group.
            scale_grad: Factor of the gradients before they are summed.
            dtype: `"bfloat16"` or `"float16"` to send half as many bytes. The rounding error is added to the gradient
                of the next step. Sums are in float32. None sends gradients unchanged.
            overlap: `"none"` sums after the run. `"blocking"` sums whenever `packing_size` values are complete;
                `"thread"` does so in a thread, parallel to the run. `"auto"` measures the bandwidth and chooses
                `"thread"` for links slower than shared memory, else `"none"`.

        Returns:
            The callback for the argument `communicator_callbacks` of `Variable.backward`.

        Raises:
            CommunicatorError: If no parameters were added, or if the processes have different parameters.
        """
        from .buckets import AllReduceCallback

        members = self._members("get_all_reduce_callback", group)
        added = self._added()
        if not added:
            raise CommunicatorError(
                f"{self.name}.get_all_reduce_callback: expected parameters from add_context_and_parameters, got none"
            )
        self.check_parameters(added, group)
        packing_size = _check.count("get_all_reduce_callback", "packing_size", packing_size, CommunicatorError)
        grads = {name: variable.grad for name, variable in added.items()}
        return AllReduceCallback(self, members, added, grads, packing_size, division, scale_grad, dtype, overlap)

    def check_parameters(self, parameters: Mapping[str, Variable], group: str = WORLD) -> None:
        """Compare names, shapes and order of parameters between processes.

        Args:
            parameters: Variables by name.
            group: Name of the group.

        Raises:
            CommunicatorError: If they differ. All processes raise it, with the first difference.
        """
        members = self._members("check_parameters", group)
        lines = [f"{name} {tuple(variable.shape)}" for name, variable in parameters.items()]
        with self._watched("check_parameters"):
            digests = members.exchange(hashlib.sha256("\n".join(lines).encode()).hexdigest())
            if len(set(digests)) == 1:
                return
            all_lines = [text.split("\n") for text in members.exchange("\n".join(lines))]
        for rank, other in zip(members.ranks, all_lines, strict=True):
            for n in range(max(len(other), len(all_lines[0]))):
                first, found = (each[n] if n < len(each) else "none" for each in (all_lines[0], other))
                if first != found:
                    raise CommunicatorError(
                        f"{self.name}: expected the same parameters in the same order on all processes, got {first} "
                        f"on rank {members.ranks[0]} and {found} on rank {rank} as number {n}"
                    )
        raise CommunicatorError(f"{self.name}: expected the same parameters on all processes, got different ones")

    # --- How a collective runs

    def _root(self, op: str, rank: int, group: str) -> tuple[Transport, int]:
        """The transport of a group, and the index of a rank in it."""
        members = self._members(op, group)
        if rank not in members.ranks:
            raise CommunicatorError(f"{self.name}.{op}: expected one of the ranks {members.ranks}, got {rank!r}")
        return members, members.ranks.index(rank)

    def _shapes(self, op: str, members: Transport, one: NdArray, several: Sequence[NdArray]) -> None:
        """Raises CommunicatorError unless there is one array for each process, all of one shape."""
        shapes = [array.shape for array in several]
        if shapes != [one.shape] * members.size:
            raise CommunicatorError(
                f"{self.name}.{op}: expected {members.size} arrays of shape {one.shape}, got shapes {shapes}"
            )

    def _collective(
        self,
        op: str,
        members: Transport,
        data: NdArray | Sequence[NdArray],
        run: Callable[[NDArray[Any]], None],
        inplace: bool,
        division: bool = False,
        write: bool = True,
        told: str = "",
    ) -> None:
        """Compares a collective between processes and runs it, on packed arrays unless `inplace`.

        Args:
            op: Name of the collective.
            members: The processes of the group.
            data: Arrays.
            run: The collective, in place on a NumPy array.
            inplace: Whether each array is sent on its own.
            division: Whether to divide by the number of processes.
            write: Whether this process gets the result.
            told: Further details for the comparison.
        """
        arrays = listed(op, "data", data)
        inplace, division = _check.flag(op, "inplace", inplace), _check.flag(op, "division", division)
        summary = ", ".join(f"{array.shape} {dtype_of(array)}" for array in arrays)
        self._agree(members, f"{op}{told} of {summary}")
        if members.size == 1:
            return
        with self._watched(f"{op} of {len(arrays)} arrays"):
            for together in [[array] for array in arrays] if inplace else by_type(arrays):
                run_packed(together, run, members.size if division else 1, write)

    def _agree(self, members: Transport, what: str, kind: str = "call") -> None:
        """Compares the description of one of the first collectives between processes.

        Different collectives would wait for ever, or mix up arrays. Raises CommunicatorError instead.
        """
        compared = self._compared.get((members, kind), 0)
        if members.size == 1 or compared >= CHECKED:
            return
        self._compared[members, kind] = compared + 1
        with self._watched(what):
            told = members.exchange(what)
        if len(set(told)) > 1:
            lines = "\n  ".join(f"rank {rank}: {text}" for rank, text in zip(members.ranks, told, strict=True))
            raise CommunicatorError(f"{self.name}: expected the same collective on all processes, got\n  {lines}")

    def _watched(self, what: str, where: str | None = None) -> AbstractContextManager[None]:
        """A context in which the watchdog observes a collective."""
        return nullcontext() if self._watch is None else self._watch.over(what, where)


class MultiProcessDataParallelCommunicator(Communicator):
    """Data parallelism over processes: each trains a copy of the network on a part of each batch.

    `python -m kinnor.launch -n 4 train.py` or `mpirun -n 4 python -m mpi4py train.py` starts several processes. In one
    process all collectives work without MPI.

    Args:
        context: The context. It has no effect.
        timeout: Seconds that a process waits in a collective for the others.
    """


class DataParallelCommunicator(Communicator):
    """Data parallelism within one process: several copies of a network, each added with its own context.

    Args:
        context: The context. It has no effect.
        timeout: No effect, as there is no other process.
    """

    def init(self) -> None:
        """Make the communicator ready. A second call does nothing."""
        if not self._transports:
            self._meet(OneProcess())

    def allreduce(self, division: bool = False, inplace: bool = False) -> None:
        """Sum the gradients of parameters over the copies, in place on all of them.

        Args:
            division: Whether to divide by the number of copies.
            inplace: No effect.

        Raises:
            CommunicatorError: If the copies do not have the same parameters.
        """
        self._world("allreduce")
        copies = [parameters for _, parameters in self._parameters]
        shapes = [[(name, v.shape) for name, v in copy.items()] for copy in copies]
        if any(shape != shapes[0] for shape in shapes):
            raise CommunicatorError(f"{self.name}.allreduce: expected copies of the same parameters, got {shapes}")
        for name in copies[0] if copies else ():
            total = sum(copy[name].grad.get_data("r") for copy in copies)
            for copy in copies:
                copy[name].grad.get_data("w")[...] = total / len(copies) if division else total


MultiProcessCommunicator = MultiProcessDataParallelCommunicator
MultiProcessDataParalellCommunicator = MultiProcessDataParallelCommunicator


def members_of(op: str, communicator: Any, group: str = WORLD) -> Transport:
    """The transport of a communicator's group. Raises CallError unless `communicator` is a Communicator."""
    if not isinstance(communicator, Communicator):
        raise _core.CallError(f"{op}: expected a communicator, got {communicator!r}")
    return communicator._members(op, group)

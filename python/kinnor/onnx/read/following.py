"""The parts of a graph that follow from lengths of its inputs, and the same graph for inputs of other lengths.

Most functions of a graph take over new lengths by themselves. The others are built again: nodes whose constants or
arguments follow from lengths, such as `Shape`, `Reshape` and `Slice`. Their outputs stay the same variables, so that
the rest of the graph does not change.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import functions as F
from ..._core import Error, Variable, set_up_all
from ...rewrite.patterns import is_a
from . import reading
from .values import TRACE, NeedsValuesError, OnnxError, Trace, Value, always, check_size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from ..._core import Function
    from ...rewrite.folding import Folding
    from .building import Builder
    from .values import Node

__all__ = ["Following"]

_LARGE = 1 << 16
"""Arrays from this size in bytes on are large."""


class _Step:
    """A node that is built again for other lengths.

    Args:
        at: Its index.
        read: The names that it reads and that depend on inputs.
        computed: The names in `read` that a run computes.
        others: The other names that it reads.
        outputs: The names of its outputs, with their places.
        is_computed: True if a run computes an output.
        inputs: The names of its inputs.
        is_same: True for inputs from which the node makes the same functions. None if that is not known.

    Attributes:
        lengths: The shapes of the computed names that it was built for last.
        node: The node, from the second time on.
        direct: Makes its only output, an array if it has constant inputs. None before the second time, or if there is
            no such function.
    """

    __slots__ = (
        *("at", "computed", "direct", "inputs", "is_computed", "is_same", "lengths", "node", "others", "outputs"),
        "read",
    )

    def __init__(
        self,
        at: int,
        read: list[str],
        computed: list[str],
        others: list[str],
        outputs: list[tuple[int, str]],
        is_computed: bool,
        inputs: list[str],
        is_same: Callable[[Sequence[Value | None]], bool] | None,
    ) -> None:
        self.inputs = inputs
        self.is_same = is_same
        self.at = at
        self.read = read
        self.computed = computed
        self.others = others
        self.outputs = outputs
        self.is_computed = is_computed
        self.lengths: list[tuple[int, ...]] | None = None
        self.node: Node | None = None
        self.direct: Callable[[Node], Any] | None = None


class _Values(dict[str, Any]):
    """Values by name. A value of a function's output is made when it is read, so that runs may clear the output.

    Attributes:
        places: Functions, places, types and sources of the values that are not made, by name.
        made: The names of the values that were made since the last `let_go`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.places: dict[str, tuple[Function, int, Any, frozenset[str]]] = {}
        self.made: list[str] = []

    def __missing__(self, name: str) -> Value:
        """Makes a value."""
        f, k, dtype, sources = self.places[name]
        value = self[name] = Value(f.outputs[k], dtype, sources=sources)
        self.made.append(name)
        return value

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a name, or `default` if there is none."""
        return self[name] if name in self or name in self.places else default

    def let_go(self) -> None:
        """Keeps functions in place of the outputs that were made."""
        for name in self.made:
            value = self[name]
            f = value.variable.parent
            if f is not None:
                outputs = f.outputs
                place = 0 if len(outputs) == 1 else outputs.index(value.variable)
                self.places[name] = (f, place, value.dtype, value.sources)
                del self[name]
        self.made.clear()


class Following:
    """Notes while a graph is built which nodes depend on lengths of its inputs, and builds them again for others.

    Args:
        values: The inputs by name: variables, or constants if shapes depend on their values.

    Attributes:
        is_possible: False if the graph cannot be given other lengths.
    """

    def __init__(self, values: Mapping[str, Value | None]) -> None:
        self.is_possible = all(type(value) is Value for value in values.values())
        self._inputs = dict(values)
        self._moving = set(values)
        self._makers: dict[str, Any] = {}
        self._steps: list[_Step] = []
        self._values = _Values()
        # Variables that stand for outputs of steps while the rest is built and folded, and these outputs.
        self._apart: list[tuple[Variable, Variable]] = []
        for value in values.values():
            if value is not None and value.known:
                value.has_lengths = True

    @contextmanager
    def node(self, at: int, node: Any, inputs: list[str], values: dict[str, Value | None]) -> Iterator[None]:
        """Traces the building of a node, for a `with` block.

        Args:
            at: Its index.
            node: The `NodeProto`.
            inputs: The names of its inputs, and of other values that it reads.
            values: Values by name, to which the block adds the outputs.
        """
        trace = Trace()
        token = TRACE.set(trace)
        try:
            yield
        finally:
            TRACE.reset(token)
        if self.is_possible:
            self._note(at, node, inputs, values, trace)

    def pass_on(self, node: Any) -> None:
        """Notes a node whose output is its input.

        Args:
            node: The `NodeProto`.
        """
        if node.input[0] in self._moving:
            self._moving.add(node.output[0])
            self._makers[node.output[0]] = node

    def _note(self, at: int, node: Any, inputs: list[str], values: dict[str, Any], trace: Trace) -> None:
        """Notes a node that was built, if it must be built again for other lengths."""
        has_graphs = reading.has_graphs(node)
        names = reading.names_read([node]) if has_graphs else inputs
        read = [name for name in names if name in self._moving]
        if not read:
            return
        outputs = [(place, name) for place, name in enumerate(node.output) if name]
        made: list[Any] = [values.get(name) for _, name in outputs]
        self._moving.update(name for _, name in outputs)
        self._makers.update((name, node) for _, name in outputs)
        if not all(type(value) is Value for value in made) or self._joins_slices(node, made[0]):
            self.is_possible = False
            return
        known = [value.known for value in made]
        if not (trace.has_lengths or has_graphs or any(known)):
            return
        others = [name for name in names if name in values and name not in self._moving]
        computed = [name for name in read if not values[name].known]
        self._steps.append(_Step(at, read, computed, others, outputs, not all(known), inputs, trace.is_same))
        taken = _variables(values, [*read, *others])
        for _, name in outputs:
            value = values[name]
            if value.known:
                value.has_lengths = True
                continue
            y = _unshared_output(value.variable, taken)
            apart = Variable(y.shape, need_grad=False)  # an unlinked one would keep the memory from being cleared
            self._apart.append((apart, y))
            values[name] = Value(apart, value.dtype, sources=value.sources)

    def _joins_slices(self, node: Any, made: Value) -> bool:
        """True if a node joins large slices without their axis, which a folded graph does without a copy."""
        if node.op_type != "Concat" or made.n_bytes < _LARGE:
            return False
        built = {name for step in self._steps if step.is_computed for _, name in step.outputs}
        for name in node.input:
            is_flat = False
            while (maker := self._makers.get(name)) is not None and maker.op_type in ("Identity", "Reshape", "Squeeze"):
                name, is_flat = maker.input[0], is_flat or maker.op_type != "Identity"
            if (
                name in built
                and maker is not None
                and (maker.op_type == "Gather" or (maker.op_type == "Slice" and is_flat))
            ):
                return True
        return False

    def parts(self, values: Mapping[str, Any]) -> tuple[list[Variable], list[Variable]]:
        """Returns what to fold besides the outputs of the graph, and the variables that are no constants then.

        Args:
            values: Values by name.
        """
        names = dict.fromkeys(name for step in self._steps if step.is_computed for name in step.read)
        read = [values[name].variable for name in names if not values[name].known]
        held = [value._variable for value in values.values() if value is not None and value.has_lengths]
        given = [*(apart for apart, _ in self._apart), *(x for x in held if x is not None)]
        return [x for x in read if x.parent is not None], given

    def join(
        self,
        values: Mapping[str, Any],
        watched: dict[str, Variable],
        folding: Folding | None,
        kept: Sequence[Variable],
    ) -> None:
        """Puts the nodes that are built again into the graph, which was folded without them.

        Args:
            values: Values by name.
            watched: Integer variables that may become too large, by name.
            folding: The folding of the model.
            kept: The outputs of the graph.
        """
        now = {y: apart for apart, y in self._apart}
        for key, variable in watched.items():
            watched[key] = now.get(variable, variable)
        for apart, y in self._apart:
            apart.rewire_on(y)
        self._apart.clear()
        for step in self._steps:
            for name in (*step.read, *step.others, *(name for _, name in step.outputs)):
                self._values[name] = values[name]
            step.lengths = [values[name].variable.shape for name in step.computed]
            self._fold(step, folding, kept)
        self._makers.clear()
        self._values.made = [name for name, value in self._values.items() if value is not None and not value.known]
        self._let_go()

    def _let_go(self) -> None:
        """Keeps functions in place of their outputs, so that runs may clear those."""
        self._values.let_go()
        for step in self._steps:
            if step.node is not None:
                step.node.inputs = ()

    def _fold(self, step: _Step, folding: Folding | None, kept: Collection[Variable]) -> None:
        """Folds the functions of a node."""
        if folding is None or not step.is_computed:
            return
        values = self._values
        outputs = [values[name].variable for _, name in step.outputs if not values[name].known]
        if len(outputs) == 1 and is_a(f := outputs[0].parent, "Reshape") and f.inputs[0].parent is not None:
            args = f.args
            if outputs[0] not in kept and not args["inplace"]:
                outputs[0].rewire_on(F.reshape(f.inputs[0], args["shape"], axes=args["axes"]))
            if values[step.read[0]]._variable == f.inputs[0]:
                return
        order = _between(outputs, _variables(values, step.read))
        if len(order) > 1:
            given = [x for name in step.read if (x := values[name]._variable) is not None]
            folding.fold(list(kept), given, order)

    def move(
        self,
        builder: Builder,
        folding: Folding | None,
        given: Mapping[str, NDArray[Any]],
        kept: Sequence[Variable],
    ) -> Mapping[str, Any]:
        """Gives the graph inputs of other lengths. After an error the graph cannot be used.

        Args:
            builder: The builder of the model.
            folding: The folding of the model.
            given: The inputs by name.
            kept: The outputs of the graph.

        Returns:
            Constants that have changed, by name.

        Raises:
            OnnxError: If the graph for these inputs has other functions.
        """
        values = self._values
        changed = set[str]()
        for name, old in self._inputs.items():
            if old is None:
                raise OnnxError(f"expected a tensor as input {name!r}, got none")
            if old.known:
                self._inputs[name] = values[name] = new = _constant(Value(given[name].astype(old.dtype)), old)
                if new is not old:
                    changed.add(name)
            elif old.variable.shape != given[name].shape:
                old.variable.reset_shape(given[name].shape, True)
        since = set_up_all([value.variable for value in self._inputs.values() if value is not None])
        ends = set(kept)
        free: list[_Step] = []
        trace = Trace()
        token = TRACE.set(trace)
        try:
            with builder.repeating():
                for step in self._steps:
                    if step.is_same is always and changed.isdisjoint(step.read):
                        free.append(step)
                    elif self._has_changed(step, changed, since):
                        trace.is_same, trace.is_in_place = None, step.is_computed and folding is not None
                        if trace.is_in_place:
                            trace.is_in_place = not any(values[name]._variable in ends for _, name in step.outputs)
                        self._rebuild(step, builder, changed)
                        step.is_same = trace.is_same
                        self._fold(step, folding, ends)
        except (Error, NeedsValuesError):
            raise
        except Exception as error:
            raise OnnxError(f"expected the same functions for other lengths, got {error}") from error
        finally:
            TRACE.reset(token)
        set_up_all(kept)
        for step in free:
            if any(0 in values[name].variable.shape for _, name in step.outputs if not values[name].known):
                raise OnnxError("expected arrays with elements, got one without")  # nodes may differ for it
        self._let_go()
        return {name: values[name] for name in changed}

    def _has_changed(self, step: _Step, changed: set[str], since: Any) -> bool:
        """True if a node must be built again.

        Args:
            step: The node.
            changed: Names of the constants that have changed.
            since: What `set_up_all` returned for the inputs.
        """
        values = self._values
        is_same = changed.isdisjoint(step.read)
        if step.computed:
            read = [values[name].variable for name in step.computed]
            set_up_all(read, since)
            lengths = [x.shape for x in read]
            if lengths != step.lengths:
                if any(0 in shape for shape in lengths):
                    raise OnnxError("expected arrays with elements, got one without")  # nodes may differ for it
                is_same, step.lengths = False, lengths
        if is_same:
            return False
        return step.is_same is None or not step.is_same([values[name] if name else None for name in step.inputs])

    def _rebuild(self, step: _Step, builder: Builder, changed: set[str]) -> None:
        """Builds a node again, and puts its outputs in the places of the old ones.

        Args:
            step: The node.
            builder: The builder of the model.
            changed: Names of the constants that have changed, to which its outputs are added.
        """
        values = self._values
        node = step.node
        if node is None:
            node = step.node = builder.node(step.at, values)
            step.direct = builder.direct(node, step.is_computed)
        else:
            node.inputs = [values[name] if name else None for name in step.inputs]
        made = step.direct(node) if step.direct is not None else None
        if isinstance(made, Variable):
            made = [Value(made, values[step.outputs[0][1]].dtype)]
            check_size(sum([value.n_bytes for value in node.inputs if value is not None], made[0].n_bytes))
        elif isinstance(made, (np.ndarray, np.generic)) and made.dtype.kind != "O":
            made = [Value(np.asarray(made))]
        elif type(made) is Value:
            made = [made]
        else:
            made, step.direct = builder.made(node), None
        if node.run is not None:
            step.node = None  # its inner graphs read other values in each turn
        taken: set[Variable] = set()
        for place, name in step.outputs:
            value, old = made[place], values[name]
            if type(value) is not Value or value.known != old.known or value.dtype != old.dtype:
                raise OnnxError(f"expected {name!r} of the same kind, got another")
            if value.known:
                new = _constant(value, old)
                if new is not old:
                    values[name] = new
                    changed.add(name)
            else:
                taken = taken or _variables(values, [*step.read, *step.others])
                _replace(old.variable, _unshared_output(value.variable, taken))


def _constant(value: Value, old: Value) -> Value:
    """Returns a constant that takes the place of another, with its variable, or the other if they are equal."""
    if value.is_equal(old):
        return old
    value.take_variable(old)
    value.has_lengths = True
    return value


def _replace(old: Variable, new: Variable) -> None:
    """Lets the function of a new variable compute an old one."""
    if old.ndim != new.ndim:
        raise OnnxError(f"expected an array with {old.ndim} axes, got {new.ndim}")
    if old.shape != new.shape:
        old.reset_shape(new.shape, True)
    old.rewire_on(new)


def _variables(values: Mapping[str, Any], names: Sequence[str]) -> set[Variable]:
    """Returns the variables that values have, without making any."""
    return {x for name in names if (value := values[name]) is not None and (x := value._variable) is not None}


def _unshared_output(y: Variable, taken: set[Variable]) -> Variable:
    """Returns an output that nothing else is or reads, and notes it as taken."""
    y = F.identity(y) if y.parent is None or y in taken or y.function_references else y
    taken.add(y)
    return y


def _between(outputs: Sequence[Variable], inputs: set[Variable]) -> list[Function]:
    """Returns the functions that compute outputs from inputs, inputs before outputs."""
    found: dict[Function, None] = {}
    path = [(y.parent, False) for y in reversed(outputs)]
    while path:
        f, is_done = path.pop()
        if f is None or f in found:
            continue
        if is_done:
            found[f] = None
            continue
        path.append((f, True))
        path += [(x.parent, False) for x in reversed(f.inputs) if x not in inputs]
    return list(found)

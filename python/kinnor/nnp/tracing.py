"""Traces graphs of variables into network descriptions.

Names the nodes, and finds the graph that a `with` block describes. No file access.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import parameter as parameters
from .._core import CallError, Variable
from .._python_functions import CONSTANT_INPUT
from ..core.module import listeners
from ..files.network_file import NetworkError
from .batch import lowered
from .graph import ProtoGraph
from .network import ProtoNetwork
from .nodes import NetworkVariable, ProtoFunction

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from .._core import Function
    from ..core.module import Module
    from ..parameter.tree import Scope

__all__ = [
    "ProtoVariable",
    "create_graph_from_variable",
    "get_default_graph",
    "get_default_graph_by_variable",
    "graph",
    "graph_name",
    "reset_default_graph",
]


class _Call(NamedTuple):
    """A call of a module's method on traced variables."""

    module: Module
    given: list[Variable]
    """The traced variables among the arguments."""
    made: list[Variable]
    """The variables that the method returned."""


class _Builder:
    """Collects the inputs and module calls of one description until `finish` turns them into networks."""

    def __init__(self, name: str | None = None, parameter_scope: Scope | None = None) -> None:
        self.name = name
        self.graph = ProtoGraph(None, parameter_scope)
        self.inputs: list[ProtoVariable] = []
        self.calls: list[_Call] = []

    def note(self, module: Module, given: Sequence[Any], made: Any) -> None:
        """Record a call of a module on traced variables. The network gets the module's parameters."""
        variables = list(_variables(given))
        functions = [v.parent for v in variables if v.parent is not None]
        inputs = [x for builder in _builders for x in builder.inputs]
        reached = set(_following(inputs)) if functions else set()
        if any(isinstance(v, ProtoVariable) for v in variables) or any(f in reached for f in functions):
            self.calls.append(_Call(module, variables, list(_variables([made]))))

    def finish(self, name: str | None = None) -> None:
        """Describe the graphs of the inputs. Inputs that lead to a common function belong to the same network."""
        inputs, calls = [x for x in self.inputs if x.function_references], self.calls
        self.inputs, self.calls = [], []
        for group, functions in _connected(inputs):
            modules = dict.fromkeys(
                call.module for call in calls if any(v in group or v.parent in functions for v in call.given)
            )
            own = next(iter(modules)).name if len(modules) == 1 else "model"
            self._describe(_unique(self.graph.networks, name or self.name or own), group, modules)

    def _describe(self, name: str, inputs: Sequence[ProtoVariable], modules: Iterable[Module]) -> None:
        """Add a network with these inputs and modules to the graph."""
        known: dict[str, Variable] = dict(parameters.get_parameters(grad_only=False))
        taken = {**known, **self.graph.get_parameters()}
        for module in modules:
            for path, variable in module.get_parameters().items():
                held = taken.get(path)
                key = path if held is None or held is variable else f"@{name}/{path}"
                taken[key] = known[key] = variable
        outputs = _ends(inputs)
        network = _describe(self.graph, name, outputs, {x.name: x for x in inputs if x.name}, known, inputs)
        for key, output in zip(network.outputs, outputs, strict=False):
            network.variables[key].variable_instance = output


def _variables(found: Iterable[Any]) -> Iterator[Variable]:
    """The variables among arguments, including those in lists and dicts."""
    for held in found:
        if isinstance(held, Variable):
            yield held
        elif isinstance(held, (list, tuple)):
            yield from _variables(held)
        elif isinstance(held, dict):
            yield from _variables(held.values())


_builders = [_Builder()]
"""The default builder, then a builder for each open `with` block of `graph`, the innermost last."""


class ProtoVariable(Variable):
    """An input of a traced network. `get_default_graph` returns the description of the functions that use it.

    It is a variable like any other, and nothing is computed before a call of `forward`. The description includes only
    outputs that are alive when it is asked for: keep the outputs.

    Args:
        shape: Lengths of its axes.
        name: Name in the network; `Input`, `Input_1` and so on by default.
        need_grad: Whether it needs a gradient.
    """

    def __new__(cls, shape: Sequence[int], name: str | None = None, need_grad: bool = False) -> ProtoVariable:
        """Create the variable; see the class."""
        made = super().__new__(cls, shape, need_grad)
        made.name = name or ""
        _builders[-1].inputs.append(made)
        return made

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: `__new__` has initialized the variable."""


def _unique(names: Mapping[str, Any], wanted: str) -> str:
    """A name that is not in use: `a`, `a_1`, `a_2` and so on."""
    if wanted not in names:
        return wanted
    number = 1
    while f"{wanted}_{number}" in names:
        number += 1
    return f"{wanted}_{number}"


class _Names:
    """Makes names unique within one kind of node."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.taken: set[str] = set()

    def take(self, wanted: str) -> str:
        """A unique name: `a`, then `a_1`, `a_2` and so on."""
        name = wanted
        while name in self.taken:
            self.counts[wanted] = self.counts.get(wanted, 0) + 1
            name = f"{wanted}_{self.counts[wanted]}"
        self.taken.add(name)
        return name


def _functions(outputs: Sequence[Variable]) -> list[Function]:
    """The functions that compute these variables, in the order of a forward run."""
    found: dict[Function, None] = {}
    for output in outputs:
        output.visit(lambda function: found.setdefault(function, None))
    return list(found)


def _following(inputs: Sequence[Variable]) -> dict[Function, None]:
    """The functions that depend on these variables."""
    seen: dict[Function, None] = {}
    waiting = [function for x in inputs for function in x.function_references]
    while waiting:
        function = waiting.pop(0)
        if function not in seen:
            seen[function] = None
            waiting += [consumer for output in function.outputs for consumer in output.function_references]
    return seen


def _ends(inputs: Sequence[Variable]) -> list[Variable]:
    """The variables that depend on `inputs` and that no function reads."""
    return [y for function in _following(inputs) for y in function.outputs if not y.function_references]


def _connected(inputs: Sequence[ProtoVariable]) -> list[tuple[list[ProtoVariable], set[Function]]]:
    """Groups of inputs that lead to common functions, with all these functions; in the order of the inputs."""
    groups: list[tuple[list[ProtoVariable], set[Function]]] = []
    for x in inputs:
        found, functions = [x], set(_following([x]))
        apart = []
        for group in groups:
            if group[1].isdisjoint(functions):
                apart.append(group)
            else:
                found, functions = [*group[0], *found], group[1] | functions
        groups = [*apart, (found, functions)]
    return groups


def _describe(
    owner: ProtoGraph,
    name: str,
    outputs: Sequence[Variable],
    names: Mapping[str, Variable],
    known: Mapping[str, Variable],
    inputs: Collection[Variable] | None = None,
) -> ProtoNetwork:
    """Describe the graph of these outputs as a network of `owner`.

    Variables without a parent that are not in `known` are inputs. They are parameters if `inputs` is given.
    """
    network = ProtoNetwork(owner, name)
    prefix = "" if name == "model" else f"@{name}/"
    paths = {variable: path for path, variable in known.items()}
    given: dict[Variable, str] = {}
    for key, variable in names.items():
        if not isinstance(variable, Variable):
            raise CallError(f"graph_def: expected a Variable for the name {key!r}, got {variable!r}")
        given[variable] = key
    taken, function_names = _Names(), _Names()
    taken.taken.update([*given.values(), *paths.values()])
    described: dict[Variable, str] = {}

    def describe(variable: Variable, default: str, parent: bool, is_constant: bool = False) -> str:
        """Add a node for a variable. Returns its name."""
        if variable in described:
            return described[variable]
        path = None if parent else paths.get(variable)
        key = path or given.get(variable) or taken.take(default)
        is_parameter = path is not None
        kind = "Parameter" if is_parameter or is_constant else "Buffer"
        node = NetworkVariable(key, variable.shape, kind, variable.need_grad)
        if is_constant:
            owner.set_parameter(key, variable)
        elif is_parameter:
            info = known[key].info
            node.initializer = getattr(info, "initializer", None)
            node.need_grad = known[key].need_grad
            owner.set_parameter(key, known[key])
        network.add_variable(node)
        described[variable] = key
        return key

    def add(function: Function) -> None:
        """Add a node for a function."""
        kind = function.info.type_name
        constant = function.info.tags.get(CONSTANT_INPUT)
        taking = []
        for i, x in enumerate(function.inputs):
            is_kept = inputs is not None and x.parent is None and x not in inputs and x not in paths
            default = f"{prefix}{kind}_{i}" if is_kept else f"{prefix}{kind}_in"
            taking.append(describe(x, default, False, is_kept or str(i) == constant))
        making = [describe(y, f"{prefix}{kind}_out", True) for y in function.outputs]
        args = _arguments(function, [network.variable(key).shape for key in (*taking, *making)], len(taking))
        network.add_function(ProtoFunction(function_names.take(prefix + kind), kind, args, taking, making))

    functions = {f: None for f in _functions(outputs) if f.info.type_name != "Sink"}
    for function in functions:
        made = lowered(function)
        if made is None or made.parent is None:
            add(function)
            continue
        described[made] = describe(function.outputs[0], f"{prefix}{made.parent.info.type_name}_out", True)
        for part in _functions([made]):
            if part not in functions:
                add(part)
    network.find_ports()
    order = [described[y] for y in outputs if y in described]
    for key in order:  # A reader of the network expects the order of the variables.
        if key in network.variables:
            network.variables.move_to_end(key)
    network.outputs.sort(key=lambda key: order.index(key) if key in order else len(order))
    for variable, key in given.items():
        if variable in described and described[variable] != key:
            raise NetworkError(f"graph_def: expected {described[variable]!r} as the name of a parameter, got {key!r}")
    owner.networks[name] = network
    return network


def _arguments(function: Function, shapes: Sequence[tuple[int, ...]], n_inputs: int) -> dict[str, Any]:
    """The arguments of a function. Defaults that depend on shapes are written out, as in files."""
    args = dict(function.info.args)
    if function.info.type_name == "Interpolate":
        scale = args.pop("scale", None)
        if args.get("output_size") is None:
            last = 1 if args.get("channel_last") else 0
            shape = shapes[n_inputs]
            args["output_size"] = list(shape[len(shape) - len(scale) - last : len(shape) - last])
    elif function.info.type_name == "Reshape":
        args.update(shape=list(shapes[n_inputs]), axes=[])
    return args


# --- Public functions


def create_graph_from_variable(
    name: str,
    variables: Variable | Sequence[Variable],
    names: Mapping[str, Variable] | None = None,
    parameter_scope: Scope | None = None,
    inputs: Collection[Variable] | None = None,
) -> ProtoGraph:
    """Describe the graph that computes these variables.

    Args:
        name: The name of the network.
        variables: The outputs.
        names: Variables by the names to give them. Other variables are named after the functions that compute them, and
            parameters by their paths.
        parameter_scope: The scope with the parameters; the current one by default.
        inputs: The inputs. Other variables without parent that are no parameters are constants then, saved with their
            values; by default they are inputs.

    Returns:
        A graph with one network.

    Raises:
        NetworkError: If there is nothing to describe, or if a parameter would get another name.
    """
    outputs: list[Any] = list(variables) if isinstance(variables, (list, tuple)) else [variables]
    for output in outputs:
        if not isinstance(output, Variable):
            raise CallError(f"create_graph_from_variable: expected Variables, got {output!r}")
    known = parameters.get_parameters(parameter_scope, grad_only=False)
    described = ProtoGraph(None, parameter_scope)
    _describe(described, name, outputs, names or {}, known, inputs)
    return described


@contextmanager
def graph(name: str | None = None, parameter_scope: Scope | None = None) -> Iterator[ProtoGraph]:
    """Trace a `with` block: describe the functions of each `ProtoVariable` created in it.

    Variables that lead to a common function belong to the same network.

    Args:
        name: Name of the network; by default the name of the `Module` that built it, or `model`.
        parameter_scope: A further scope for its parameters, besides the current one; a new one by default.

    Returns:
        The context manager. Its value is the graph, which gets its networks when the block ends.
    """
    builder, around = _Builder(name, parameter_scope), list(_builders)
    before = {x for outer in around for x in outer.inputs if x.function_references}
    _builders.append(builder)
    try:
        yield builder.graph
        for outer in around:  # Variables created in an outer block and first used in this one.
            builder.inputs += [x for x in outer.inputs if x.function_references and x not in before]
            outer.inputs = [x for x in outer.inputs if x in before or not x.function_references]
        builder.finish()
    finally:
        _builders.remove(builder)


@contextmanager
def graph_name(name: str) -> Iterator[str]:
    """Name the network that a `with` block traces.

    Args:
        name: The name.

    Returns:
        The context manager. Its value is the name.
    """
    yield name
    _builders[-1].finish(name)


def reset_default_graph() -> None:
    """Forget everything traced outside of `graph` blocks."""
    _builders[0] = _Builder()


def get_default_graph(name: str | None = None) -> Any:
    """The description traced so far, in the current `graph` block or outside of any block.

    Args:
        name: Name of a network, to return only this network.

    Returns:
        A `ProtoGraph`; with `name` a `ProtoNetwork`, or None if it does not exist.
    """
    _builders[-1].finish()
    found = _builders[-1].graph
    return found if name is None else found.networks.get(name)


def get_default_graph_by_variable(proto_variable: Variable) -> ProtoNetwork:
    """The network with a variable as output.

    Args:
        proto_variable: An output of a function of a `ProtoVariable`.

    Raises:
        NetworkError: If no network has this output.
    """
    _builders[-1].finish()
    for network in _builders[-1].graph.networks.values():
        if network.name_of(proto_variable) in network.outputs:
            return network
    raise NetworkError("get_default_graph_by_variable: expected an output of a network, got another variable")


def _note(module: Module, given: Sequence[Any], made: Any) -> None:
    """Pass a module call to the current description, if it has inputs."""
    if any(builder.inputs for builder in _builders):
        _builders[-1].note(module, given, made)


listeners.append(_note)

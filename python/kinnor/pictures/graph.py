"""The data of a picture of a graph: functions in order, scopes, shapes and bytes. Draws nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .._core import CallError, Function, GraphError, Variable
from ..core.module import parameter_paths
from ..display import bytes_of, dtype_name
from ..parameter import get_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Graph", "Node", "collect"]


@dataclass(slots=True)
class Node:
    """A function of a graph, or an input variable.

    Attributes:
        kind: Function type, such as `Convolution`; `Input` for a variable without a parent.
        scope: Names of the nested scopes of its parameters.
        label: Name of the parametric function or of the variable; may be empty.
        arguments: Arguments as text.
        inputs: Numbers of the nodes that it reads.
        takes: Shapes of its inputs, including parameters.
        gives: Shapes of its outputs.
        dtype: Element type of its first output, if known.
        memory: Bytes of its outputs.
        parameters: Names and shapes of its parameters.
        weights: Bytes of its parameters.
        time: Seconds of its run, if known.
    """

    kind: str
    scope: tuple[str, ...] = ()
    label: str = ""
    arguments: str = ""
    inputs: list[int] = field(default_factory=list)
    takes: list[str] = field(default_factory=list)
    gives: list[str] = field(default_factory=list)
    dtype: str = ""
    memory: int = 0
    parameters: list[str] = field(default_factory=list)
    weights: int = 0
    time: float = 0.0


@dataclass(slots=True)
class Graph:
    """The nodes of a graph, in the order of a forward run.

    Attributes:
        nodes: The nodes.
        outputs: Numbers of the nodes that compute the requested variables.
    """

    nodes: list[Node]
    outputs: list[int]


def collect(
    outputs: Variable | Sequence[Variable],
    parameters: Mapping[str, Variable] | None = None,
    times: Mapping[Function, float] | None = None,
) -> Graph:
    """Collect the nodes of a graph without running it.

    Args:
        outputs: The outputs of the graph.
        parameters: Its parameters by path; by default the parameters of the current scope and of all modules.
        times: Seconds of each function's run.

    Returns:
        Its functions and inputs.

    Raises:
        TypeError: If `outputs` are not variables.
        GraphError: If an output has no parent.
    """
    ends: list[Any] = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    if not ends or not all(isinstance(y, Variable) for y in ends):
        is_module = callable(getattr(outputs, "named_parameters", None))
        hint = "; print(module) shows its layers, and show(module(x)) their functions" if is_module else ""
        raise CallError(f"show: expected a Variable or a list of them, got {type(outputs).__name__}{hint}")
    if all(y.parent is None for y in ends):
        raise GraphError("show: expected a variable that a function computes, got one without parent")
    paths = named(get_parameters(grad_only=False) if parameters is None else parameters)
    if parameters is None:
        paths = {**parameter_paths(), **paths}
    walk = Walk(paths, {hash(f): seconds for f, seconds in (times or {}).items()})
    for y in ends:
        y.visit(walk.add)
    return Graph(walk.nodes, sorted({walk.made[hash(y)] for y in ends if hash(y) in walk.made}))


def named(parameters: Mapping[str, Variable]) -> dict[int, str]:
    """Paths of parameters by their arrays, because unlinked copies of a parameter share its array."""
    return {hash(v.data): path for path, v in parameters.items()}


class Walk:
    """The nodes collected so far, while the functions are visited in the order of a forward run."""

    def __init__(self, paths: Mapping[int, str], times: Mapping[int, float]) -> None:
        self.paths = paths
        self.times = times
        self.nodes: list[Node] = []
        self.made: dict[int, int] = {}
        self.seen: set[int] = set()

    def add(self, f: Function) -> None:
        """Add a node for a function."""
        key = hash(f)
        if key in self.seen:
            return
        self.seen.add(key)
        node = Node(f.info.type_name, arguments=", ".join(f"{k}={v}" for k, v in f.info.args.items()))
        paths = []
        for x in f.inputs:
            number = self.made.get(hash(x))
            path = self.paths.get(hash(x.data)) if number is None and x.parent is None else None
            node.takes.append(str(x.shape))
            if path is not None:
                paths.append(path)
                node.parameters.append(f"{path} {x.shape}")
                node.weights += bytes_of(x)
                continue
            if number is None:
                number = self.feed(x)
            if number not in node.inputs:
                node.inputs.append(number)
        self.place(node, paths)
        node.time = self.times.get(key, 0.0)
        self.end(node, f.outputs)

    def feed(self, x: Variable) -> int:
        """Add a node for a variable without a parent."""
        self.end(Node("Input", label=x.name or ""), [x])
        return len(self.nodes) - 1

    def end(self, node: Node, outputs: Sequence[Variable]) -> None:
        """Add a node with its outputs."""
        for y in outputs:
            self.made[hash(y)] = len(self.nodes)
            node.gives.append(str(y.shape))
            node.memory += bytes_of(y)
        node.dtype = dtype_name(outputs[0]) if outputs else ""
        self.nodes.append(node)

    def place(self, node: Node, paths: list[str]) -> None:
        """Set the scope of a function: the scope of its parameters, else the scope of the last node that it reads.

        A function that joins several branches gets the scope around the last of them.
        """
        if paths:
            *scope, _ = paths[0].split("/")
            node.scope, node.label = tuple(scope[:-1]), scope[-1] if scope else ""
            return
        before = [n for n in node.inputs if self.nodes[n].kind != "Input"]
        if before:
            last = self.nodes[max(before)].scope
            node.scope = last if len(before) == 1 else last[:-1]


def data(graph: Graph, title: str) -> dict[str, Any]:
    """The graph in the format of the HTML page: each text once, nodes as lists of numbers."""
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        """The index of a text in the list of texts."""
        return texts.setdefault(text, len(texts))

    nodes = [
        [
            number(n.kind), number("/".join(n.scope)), number(n.label), number(n.arguments), n.inputs,
            number(" ".join(n.takes)), number(" ".join(n.gives)), number(n.dtype), n.memory,
            [number(p) for p in n.parameters], n.weights, round(n.time * 1e6),
        ]
        for n in graph.nodes
    ]  # fmt: skip
    return {"title": title, "texts": list(texts), "nodes": nodes, "outputs": graph.outputs}

"""Inspection of the backward graph, with PyTorch's names: nodes, and edges along which gradients flow."""

from __future__ import annotations

from typing import NamedTuple

from .._core import CallError, Function, GraphError, Variable

__all__ = ["AccumulateGrad", "GradientEdge", "Node", "get_gradient_edge"]


class Node:
    """A function as a node of the backward graph.

    Args:
        function: The function.
    """

    def __init__(self, function: Function) -> None:
        if not isinstance(function, Function):
            raise CallError(f"Node: expected a Function, got {type(function).__name__}")
        self.function = function

    def name(self) -> str:
        """The type of the function."""
        return self.function.name

    @property
    def next_functions(self) -> tuple[tuple[Node | AccumulateGrad | None, int], ...]:
        """The target of each input's gradient: a node and the index of its output, or (None, 0) without gradient."""
        edges = (get_gradient_edge(x) if x.requires_grad else (None, 0) for x in self.function.inputs)
        return tuple((node, number) for node, number in edges)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Node) and other.function == self.function

    def __hash__(self) -> int:
        return hash(self.function)

    def __repr__(self) -> str:
        return f"<Node {self.name()}>"


class AccumulateGrad:
    """The node of the backward graph that accumulates the gradient of a leaf.

    Args:
        variable: The leaf.
    """

    next_functions: tuple[()] = ()

    def __init__(self, variable: Variable) -> None:
        if not isinstance(variable, Variable):
            raise CallError(f"AccumulateGrad: expected a Variable, got {type(variable).__name__}")
        self.variable = variable

    def name(self) -> str:
        """PyTorch's name of this node."""
        return "AccumulateGrad"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccumulateGrad) and other.variable == self.variable

    def __hash__(self) -> int:
        return hash(self.variable)

    def __repr__(self) -> str:
        return f"<AccumulateGrad of shape {self.variable.shape}>"


class GradientEdge(NamedTuple):
    """An edge of the backward graph, which stands for a variable. It keeps the graph alive, but not the variable.

    Args:
        node: The node that computes the variable.
        output_nr: Index of the node's output.
    """

    node: Node | AccumulateGrad
    output_nr: int


def get_gradient_edge(variable: Variable) -> GradientEdge:
    """The gradient edge of a variable. `autodiff.grad` and `autodiff.backward` accept it instead of the variable.

    Args:
        variable: A variable that requires grad.

    Returns:
        The edge.

    Raises:
        RuntimeError: If the variable does not require grad.

        >>> import kinnor as nn
        >>> from kinnor.autodiff.graph import get_gradient_edge
        >>> x = nn.Variable((2,), need_grad=True)
        >>> edge = get_gradient_edge(nn.functions.exp(x))
        >>> edge.node.name(), edge.node.next_functions
        ('Exp', ((<AccumulateGrad of shape (2,)>, 0),))
    """
    if not isinstance(variable, Variable):
        raise TypeError(f"get_gradient_edge: expected a Variable, got {type(variable).__name__}")
    if not variable.requires_grad:
        raise GraphError("get_gradient_edge: expected a variable that requires grad, got one that does not")
    function = variable.grad_fn
    if function is None:
        return GradientEdge(AccumulateGrad(variable), 0)
    return GradientEdge(Node(function), function.outputs.index(variable))

"""Random graphs under memory budgets or in `forget` segments: equal gradients, bit by bit if sums keep their order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plain_graph import OPS
from support import DOUBLE
from test_random_graphs import QUICK, build, flags, graphs, kept, leaf_gradients_are, near

import kinnor as nn
import kinnor.functions as F


def gradients(nodes, variables, **options):
    """Returns the gradients of the leaves after a step."""
    for node in nodes:
        if node.op is None:
            variables[node].g = np.zeros((2, 3))
    variables[nodes[-1]].forward(**options)
    variables[nodes[-1]].backward(clear_buffer=True)
    return [variables[node].g.copy() for node in nodes if node.op is None]


@QUICK
@given(graphs(), flags, st.lists(st.floats(0, 1), min_size=1, max_size=3))
def test_any_budget(nodes, flags, parts):
    """Under any budget that a graph fits in, its gradients are right."""
    with nn.context_scope(DOUBLE):
        variables = kept(nodes, build(nodes, flags), flags)
        expected = gradients(nodes, variables)
        leaf_gradients_are(nodes, variables, nodes[-1].gradients())
        with pytest.raises(nn.BudgetError) as refused:
            variables[nodes[-1]].forward(memory_budget=0)
        for part in parts:
            budget = int(refused.value.least * (1 + part))
            got = gradients(nodes, variables, memory_budget=budget)
            near(variables[nodes[-1]].d, nodes[-1].evaluate()[nodes[-1]])
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(gradients(nodes, variables), expected)


@QUICK
@given(graphs(), st.sets(st.integers(0, 25)), st.booleans())
def test_any_function_may_forget(nodes, forgetting, at_once):
    """Any functions of a random graph may run in a `forget` segment, statically and eagerly."""
    with nn.context_scope(DOUBLE):
        made = {}
        for i, node in enumerate(nodes):
            if node.op is None:
                made[node] = nn.Variable.from_numpy_array(node.value, need_grad=node.need_grad)
                continue
            func, inputs = OPS[node.op].build, [made[x] for x in node.inputs]
            with nn.auto_forward(at_once):
                made[node] = F.forget(func, *inputs) if i in forgetting else func(*inputs)
        if not at_once:
            made[nodes[-1]].forward()
        near(made[nodes[-1]].d, nodes[-1].evaluate()[nodes[-1]])
        for node in nodes:
            made[node].grad.zero()
        if made[nodes[-1]].parent is not None:  # without a gradient nothing is kept
            made[nodes[-1]].backward()
        leaf_gradients_are(nodes, made, nodes[-1].gradients())


@QUICK
@given(graphs(), st.booleans(), st.booleans())
def test_a_whole_graph_may_forget(nodes, at_once, closed_over):
    """The leaves are arguments of the segment or captured variables."""
    with nn.context_scope(DOUBLE):
        leaves = [node for node in nodes if node.op is None]
        outside = [nn.Variable.from_numpy_array(node.value, need_grad=node.need_grad) for node in leaves]

        def segment(*xs):
            """Builds the whole graph from its leaves."""
            made = dict(zip(leaves, xs or outside, strict=True))
            for node in nodes:
                if node.op is not None:
                    made[node] = OPS[node.op].build(*(made[x] for x in node.inputs))
            return made[nodes[-1]]

        with nn.auto_forward(at_once):
            end = F.forget(segment, *([] if closed_over else outside))
        if not at_once:
            end.forward()
        if end.parent is not None and end.need_grad:
            end.backward()
        leaf_gradients_are(nodes, dict(zip(leaves, outside, strict=True)), nodes[-1].gradients())

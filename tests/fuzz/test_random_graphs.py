"""Random graphs match a plain NumPy model, with any flags, clearing, held variables, edits and repeated runs."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule
from plain_graph import OF_ONE_SHAPE, OPS, SMALL, Node, near
from support import DOUBLE

import kinnor as nn

QUICK = settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))


def leaf_value(number, rows=2):
    """Returns the values of a leaf with this seed."""
    return np.random.RandomState(number).uniform(-1, 1, (rows, 3))


@st.composite
def graphs(draw):
    """Draws a random graph as a list of nodes. The last one depends on nodes of all kinds."""
    nodes = [Node(leaf_value(i)) for i in range(draw(st.integers(1, 3)))]
    for node in nodes:
        node.need_grad = draw(st.sampled_from([True, True, False]))
    for _ in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(sorted(OPS)))
        inputs = [draw(st.sampled_from(nodes[-6:])) for _ in range(OPS[op].n_inputs)]
        nodes.append(Node(op=op, inputs=inputs))
        if op == "mul":
            nodes.append(Node(op=draw(st.sampled_from(SMALL)), inputs=nodes[-1:]))
    return nodes


numbers = st.sets(st.integers(0, 25), max_size=8)
"""Indices of nodes."""
flags = st.fixed_dictionaries(
    {
        "persistent": numbers,
        "recompute": numbers,
        "held": numbers,
        "need_grad": st.dictionaries(st.integers(0, 25), st.booleans(), max_size=3),
    }
)
"""Flags of variables, by the index of their node."""


def build(nodes, flags=None, at_once=False):
    """Returns the variables of the nodes."""
    made = {}
    for i, node in enumerate(nodes):
        recompute = flags is not None and i in flags["recompute"] and node.op is not None
        with nn.recompute(recompute), nn.auto_forward(at_once):
            if node.op is None:
                made[node] = nn.Variable.from_numpy_array(node.value, need_grad=node.need_grad)
            else:
                made[node] = OPS[node.op].build(*(made[x] for x in node.inputs))
        if flags is not None and node.op is not None and node is not nodes[-1]:
            made[node].persistent = i in flags["persistent"]
            if i in flags["need_grad"]:
                node.need_grad = made[node].need_grad = flags["need_grad"][i]
    return made


def kept(nodes, made, flags):
    """Removes the variables that the program does not hold from `made`. Returns the other ones."""
    held = [n for i, n in enumerate(nodes) if i in flags["held"] or n.op is None or n is nodes[-1]]
    chosen = {node: made[node] for node in held}
    made.clear()
    return chosen


def leaf_gradients_are(nodes, variables, expected, times=1):
    """Asserts that the gradients of all leaves are right, `times` over."""
    for node in nodes:
        if node.op is None:
            near(variables[node].g, times * expected.get(node, np.zeros_like(node.value)))


@QUICK
@given(graphs(), flags, st.booleans(), st.booleans())
def test_values_and_gradients(nodes, flags, clear_no_need_grad, clear_buffer):
    """Values and gradients of random graphs match the NumPy model, in two runs and with clearing."""
    with nn.context_scope(DOUBLE):
        end = nodes[-1]
        variables = kept(nodes, build(nodes, flags), flags)
        expected = end.gradients()
        for node in nodes:
            if node.op is None:
                variables[node].grad.zero()
        for times in (1, 2):
            variables[end].forward(clear_no_need_grad=clear_no_need_grad)
            near(variables[end].d, end.evaluate()[end])
            variables[end].backward(clear_buffer=clear_buffer)
            leaf_gradients_are(nodes, variables, expected, times)
        if not clear_buffer:
            variables[end].forward()
            for node, value in end.evaluate().items():
                if node in variables and not variables[node].recompute:
                    near(variables[node].d, value)


@QUICK
@given(graphs(), flags)
def test_forward_that_clears_all(nodes, flags):
    """`forward(clear_buffer=True)` of random graphs returns the right value."""
    with nn.context_scope(DOUBLE):
        variables = kept(nodes, build(nodes, flags), flags)
        variables[nodes[-1]].forward(clear_buffer=True)
        near(variables[nodes[-1]].d, nodes[-1].evaluate()[nodes[-1]])


@QUICK
@given(graphs())
def test_eager_and_static_results_are_equal(nodes):
    """Values and gradients of a random graph have the same bits, eager and static."""
    with nn.context_scope(DOUBLE):
        later, at_once = build(nodes), build(nodes, at_once=True)
        end = nodes[-1]
        later[end].forward()
        for node in end.above():
            np.testing.assert_array_equal(later[node].d, at_once[node].d)
        for variables in (later, at_once):
            for node in nodes:
                variables[node].grad.zero()
            variables[end].backward()
        for node in nodes:
            if node.op is None:
                np.testing.assert_array_equal(later[node].g, at_once[node].g)


@QUICK
@given(graphs(), flags, st.booleans(), st.booleans(), st.data())
def test_several_ends(nodes, flags, clear_no_need_grad, clear_buffer, data):
    """`forward_all` of some nodes, then backward from each in turn."""
    with nn.context_scope(DOUBLE):
        inner = [node for node in nodes if node.op is not None]
        ends = list(dict.fromkeys(data.draw(st.lists(st.sampled_from(inner), min_size=1, max_size=4))))
        made = build(nodes, flags)
        ends_made = {node: made[node] for node in ends}
        variables = kept(nodes, made, flags) | ends_made
        for node in nodes:
            if node.op is None:
                variables[node].grad.zero()
        nn.forward_all([variables[end] for end in ends], clear_no_need_grad=clear_no_need_grad)
        total = {}
        for i, end in enumerate(ends):
            near(variables[end].d, end.evaluate()[end])
            for node, g in end.gradients().items():
                total[node] = total.get(node, 0) + g
            variables[end].backward(clear_buffer=clear_buffer and i == len(ends) - 1)
        for node in nodes:
            if node.op is None and node not in ends:
                near(variables[node].g, total.get(node, np.zeros_like(node.value)))


@QUICK
@given(graphs(), st.data())
def test_gradients_as_graphs(nodes, data):
    """`nn.grad` by any nodes, also run again after the leaves have changed."""
    with nn.context_scope(DOUBLE):
        variables, end = build(nodes), nodes[-1]
        above = [node for node in end.above() if node is not end]
        chosen = list(dict.fromkeys(data.draw(st.lists(st.sampled_from(above), min_size=1, max_size=3))))
        found = nn.grad([variables[end]], [variables[node] for node in chosen])
        for number in (0, 50):
            for i, node in enumerate(n for n in nodes if n.op is None):
                node.value = leaf_value(number + i)
                variables[node].d = node.value
            nn.forward_all(found)
            expected = end.gradients()
            for node, g in zip(chosen, found, strict=True):
                if end.wanted()[node]:
                    near(g.d, expected.get(node, np.zeros((2, 3))))


@QUICK
@given(graphs(), graphs(), st.booleans())
def test_unlinked_in_two_stages(first, second, clear_buffer):
    """Backward of the second graph gives the unlinked variable a gradient, where backward of the first graph starts."""
    with nn.context_scope(DOUBLE):
        joint, end = first[-1], second[-1]
        second[0].value, second[0].need_grad = joint.evaluate()[joint], True
        variables = build(first)
        middle = variables[joint].get_unlinked_variable(need_grad=True)
        rest = {second[0]: middle}
        for node in second[1:]:
            if node.op is None:
                rest[node] = nn.Variable.from_numpy_array(node.value, need_grad=node.need_grad)
            else:
                rest[node] = OPS[node.op].build(*(rest[x] for x in node.inputs))
        variables[joint].forward(clear_no_need_grad=True)
        rest[end].forward(clear_no_need_grad=True)
        for node in first:
            variables[node].grad.zero()
        rest[end].backward(clear_buffer=clear_buffer)
        between = end.gradients().get(second[0], np.zeros((2, 3)))
        near(middle.g, between)
        variables[joint].backward(grad=None, clear_buffer=clear_buffer)
        leaf_gradients_are(first, variables, joint.gradients(between))


class Edits(RuleBasedStateMachine):
    """Builds, edits and runs a graph in any order of steps."""

    nodes = Bundle("nodes")

    def __init__(self):
        super().__init__()
        self.variables = {}
        self.rows = 2

    def add(self, node, variable):
        """Adds a node with its variable."""
        self.variables[node] = variable
        return node

    @rule(target=nodes, number=st.integers(0, 99), need_grad=st.sampled_from([True, True, False]))
    def leaf(self, number, need_grad):
        """Adds a leaf."""
        node = Node(leaf_value(number, self.rows))
        node.need_grad = need_grad
        return self.add(node, nn.Variable.from_numpy_array(node.value, need_grad=need_grad))

    @rule(
        target=nodes,
        # without operations of fixed shape, since leaves may be resized
        op=st.sampled_from(sorted(set(OPS) - set(OF_ONE_SHAPE))),
        inputs=st.lists(nodes, min_size=3, max_size=3),
        recompute=st.booleans(),
    )
    def apply(self, op, inputs, recompute):
        """Applies an operation to nodes."""
        if op == "mul":
            inputs = [self.apply("tanh", [x], False) for x in inputs[:2]]
        inputs = inputs[: OPS[op].n_inputs]
        for x in inputs:
            self.run(x)
        with nn.context_scope(DOUBLE), nn.recompute(recompute):
            variable = OPS[op].build(*(self.variables[x] for x in inputs))
        return self.add(Node(op=op, inputs=inputs), variable)

    @rule(node=nodes, number=st.integers(100, 199))
    def write(self, node, number):
        """Writes new values to a leaf."""
        if node.op is None:
            node.value = leaf_value(number, self.rows)
            self.variables[node].d = node.value

    @rule(rows=st.sampled_from([1, 2, 4]))
    def resize(self, rows):
        """Changes the shape of the leaves. Dependent nodes follow in the next run."""
        self.rows = rows
        for i, node in enumerate(self.variables):
            if node.op is None:
                node.value = leaf_value(200 + i, rows)
                self.variables[node].reset_shape((rows, 3), True)
                self.variables[node].d = node.value

    @rule(node=nodes, need_grad=st.booleans())
    def flag(self, node, need_grad):
        """Sets `need_grad` of a node."""
        node.need_grad = self.variables[node].need_grad = need_grad

    @rule(node=nodes, persistent=st.booleans())
    def keep(self, node, persistent):
        """Sets `persistent` of a node."""
        self.variables[node].persistent = persistent

    @rule(node=nodes, recompute=st.booleans())
    def recompute(self, node, recompute):
        """Sets `recompute` of a node."""
        if node.op is not None:
            self.variables[node].recompute = recompute

    @rule(a=nodes, b=consumes(nodes))
    def rewire(self, a, b):
        """Replaces the function of `a` with the function of an unused node `b`."""
        used = any(b in node.inputs for node in self.variables)
        if b.op is None or used or a in b.above():
            return
        self.run(a)
        self.run(b)
        self.variables[a].rewire_on(self.variables.pop(b))
        a.op, a.inputs, a.value, a.need_grad = b.op, b.inputs, None, b.need_grad

    def run(self, node, **how):
        """Runs a node forward and checks its values."""
        if node.op is not None:
            self.variables[node].forward(**how)
            np.testing.assert_allclose(self.variables[node].d, node.evaluate()[node], rtol=1e-9, atol=1e-11)

    @rule(node=nodes, how=st.sampled_from([{}, {"clear_buffer": True}, {"clear_no_need_grad": True}]))
    def forward(self, node, how):
        """Runs a node forward with options."""
        self.run(node, **how)

    @rule(node=nodes, clear_no_need_grad=st.booleans(), clear_buffer=st.booleans())
    def backward(self, node, clear_no_need_grad, clear_buffer):
        """Runs forward and backward, and checks the gradients of the leaves."""
        if node.op is None:
            return
        above = [n for n in node.above() if n.op is None]
        for leaf in above:
            self.variables[leaf].grad.zero()
        self.run(node, clear_no_need_grad=clear_no_need_grad)
        self.variables[node].backward(clear_buffer=clear_buffer)
        expected = node.gradients()
        for leaf in above:
            np.testing.assert_allclose(
                self.variables[leaf].g, expected.get(leaf, np.zeros_like(leaf.value)), rtol=1e-9, atol=1e-11
            )

    @invariant()
    def knows_its_shapes(self):
        """Invariant: all variables have two axes."""
        assert all(variable.ndim == 2 for variable in self.variables.values())


TestEdits = Edits.TestCase
TestEdits.settings = settings(QUICK, max_examples=60, stateful_step_count=25)

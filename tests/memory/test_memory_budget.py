"""Training steps under a memory budget stay within it and give the same bits."""

import threading

import numpy as np
import pytest
from support import chain, random_leaf, same

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import _core, autodiff

SHAPE = (64, 1024)
"""Shape of each value of a chain."""
BYTES = 4 * 64 * 1024
"""Bytes of an array that is large enough to be counted immediately, not in batches."""


def leaf_and_loss(n, f=F.tanh):
    """Returns a leaf and the mean after `n` functions."""
    x = random_leaf(*SHAPE)
    return x, F.mean(chain(x, n, f))


def net(seed):
    """Returns a random graph with branches, skips, random numbers, several outputs and views."""
    rng = np.random.RandomState(seed)
    leaves = [random_leaf(*SHAPE, seed=seed + i) for i in range(2)]
    nodes = list(leaves)
    for _ in range(rng.randint(5, 40)):
        a, b = (nodes[-1 - min(int(rng.exponential(2)), len(nodes) - 1)] for _ in range(2))
        pick = rng.randint(10)
        if pick < 3:
            nodes.append([F.tanh, F.sin, F.identity][pick](a))
        elif pick < 5:
            nodes.append([F.add2, F.mul2][pick - 3](a, b))
        elif pick == 5:
            nodes.append(F.dropout(a, 0.3))
        elif pick == 6:
            nodes.append(F.reshape(F.relu(F.reshape(a, (1024, 64))), SHAPE))
        elif pick == 7:
            nodes.append(F.stack(*reversed(F.split(F.reshape(a, (4, 16, 1024))))).reshape(SHAPE))
        elif pick == 8:
            nodes.append(F.add2(a, a))
        else:
            nodes.append(F.sum(F.reshape(a, (4, 16, 1024)), 0, keepdims=True) * F.reshape(b, (4, 16, 1024)))
            nodes.append(F.reshape(nodes.pop(), SHAPE))
    loss = F.mean(nodes[-1] * F.identity(leaves[0]) + nodes[len(nodes) // 2])
    used = set()
    loss.visit(lambda f: used.update(f.inputs))
    return [x for x in leaves if x in used], loss


def step(loss, leaves, **options):
    """Runs a training step. Returns its gradients and the peak bytes of its arrays."""
    nn.seed(5)
    for x in leaves:
        x.g[...] = 0
    own = sum(x.d.nbytes + x.g.nbytes for x in leaves)
    before = nn.memory_stats()["live"]
    nn.reset_peak_memory()
    loss.forward(**options)
    loss.backward(clear_buffer=True)
    return [x.g.copy() for x in leaves], nn.memory_stats()["peak"] - before + own


def facts(loss, budget=None):
    """Returns what the planner says of a run: its budget, its least budget, and the fate of each value."""
    return _core.plan_facts(loss, budget)


def least(loss):
    """Returns the least budget that suffices."""
    with pytest.raises(nn.BudgetError) as caught:
        loss.forward(memory_budget=0)
    return caught.value.least


@pytest.mark.parametrize("n", [1, 2, 3, 9, 64])
def test_a_chain_takes_the_planned_memory(n):
    """The measured peak of a chain equals the peak that the plan report states."""
    x, loss = leaf_and_loss(n)
    plain, peak = step(loss, [x])
    assert abs(peak - facts(loss)["peak_clearing"]) < 4096
    for budget in np.ceil(np.linspace(least(loss), peak + 4096, 5)).astype(int).tolist():
        gradients, real = step(loss, [x], memory_budget=budget)
        same(plain, gradients)
        said = facts(loss, budget)["peak"]
        assert said <= budget
        assert abs(real - said) < 4096


def test_a_chain_needs_about_twice_the_square_root_of_its_length():
    _, loss = leaf_and_loss(100)
    assert least(loss) < (2 * 10 + 6) * BYTES
    assert facts(loss, least(loss))["extra"] < 0.34


@pytest.mark.parametrize("seed", range(40))
def test_any_graph_stays_within_its_budget(seed):
    """Random graphs stay within any sufficient budget, with unchanged gradients."""
    leaves, loss = net(seed)
    plain, _ = step(loss, leaves)
    low, high = least(loss), facts(loss)["peak_clearing"]
    for budget in {low, (low + high) // 2, high}:
        for _ in range(2):
            gradients, real = step(loss, leaves, memory_budget=budget)
            same(plain, gradients)
            assert abs(real - facts(loss, budget)["peak"]) < 4096
    same(plain, step(loss, leaves)[0])


def test_a_budget_that_is_too_small_is_refused_with_the_least_one():
    x, loss = leaf_and_loss(20)
    with pytest.raises(MemoryError, match=r"expected at least \d+ bytes, .* got 1000") as caught:
        loss.forward(memory_budget=1000)
    assert isinstance(caught.value, nn.Error)
    step(loss, [x], memory_budget=caught.value.least)
    with pytest.raises(nn.BudgetError):
        loss.forward(memory_budget=caught.value.least - 1)
    step(loss, [x])


def residual(n, drop=0.2):
    """Returns the input and the loss of a network with convolutions, batch normalization, dropout and skips."""
    nn.seed(1)
    x = random_leaf(4, 8, 16, 16, seed=3)
    h = x
    for i in range(n):
        with nn.parameter_scope(f"block{i}"):
            a = F.relu(PF.batch_normalization(PF.convolution(h, 8, (3, 3), pad=(1, 1), with_bias=False)))
            h = h + F.dropout(a, drop)
    with nn.parameter_scope("last"):
        loss = F.mean(F.softmax_cross_entropy(PF.affine(h, 10), nn.Variable((4, 1))))
    return x, loss


def train(loss, x, steps=3, **options):
    """Trains some steps. Returns loss, gradients and parameters."""
    nn.seed(2)
    parameters = nn.get_parameters(grad_only=False)
    for _ in range(steps):
        for p in (x, *parameters.values()):
            p.grad.zero()
        loss.forward(**options)
        loss.backward(clear_buffer=True)
    values = [p.d.copy() for p in parameters.values()]
    return [loss.d.copy(), x.g.copy(), *values, *(p.g.copy() for p in nn.get_parameters().values())]


def test_a_network_learns_the_same():
    """Training under any budget gives the same bits as without."""
    results = []
    for part in (None, 0.0, 0.3, 0.7):
        with nn.parameter_scope("", {}):
            x, loss = residual(6)
            if part is None:
                results.append(train(loss, x))
                continue
            low, high = least(loss), facts(loss)["peak_clearing"]
            results.append(train(loss, x, memory_budget=int(low + part * (high - low))))
    for other in results[1:]:
        same(results[0], other)


def test_the_context_is_thread_local_and_nests():
    _, loss = leaf_and_loss(20)
    seen = []

    def elsewhere():
        """Runs the loss in another thread, which has no budget."""
        loss.forward()
        seen.append(True)

    with nn.memory_budget(1):
        with pytest.raises(nn.BudgetError):
            loss.forward()
        with nn.memory_budget(None):
            loss.forward()
        with nn.memory_budget(10**9):
            loss.forward()
        with pytest.raises(nn.BudgetError):
            nn.forward_all([loss])
        loss.forward(memory_budget=10**9)
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    loss.forward()
    assert seen


@pytest.mark.parametrize("wrong", [-1, 1.5, "1X", "", "M", "1.5G"])
def test_a_budget_is_a_number_of_bytes(wrong):
    with pytest.raises(nn.Error, match="memory_budget: expected `bytes` to be"), nn.memory_budget(wrong):
        pass
    with pytest.raises((ValueError, TypeError, OverflowError)):
        leaf_and_loss(1)[1].forward(memory_budget=wrong)


def test_flags_stay_as_they_are_and_persistent_values_stay():
    """A run with a budget leaves flags and persistent values alone."""
    x = random_leaf(*SHAPE)
    values = [x]
    for _ in range(20):
        values.append(F.tanh(values[-1]))
    loss = F.mean(values[-1])
    values[5].persistent = True
    values[7].recompute = True
    flags = [(v.recompute, v.persistent) for v in values]
    step(loss, [x], memory_budget=least(loss))
    assert [(v.recompute, v.persistent) for v in values] == flags
    assert np.abs(values[5].d - expected(x, 5)).max() < 1e-6
    with pytest.raises(nn.ClearedError):
        values[6].d  # noqa: B018


def expected(x, n):
    """Returns `n` applications of tanh to the leaf `x`, in NumPy."""
    y = x.d
    for _ in range(n):
        y = np.tanh(y)
    return y


def test_backward_frees_memory_under_a_budget():
    """After a budgeted step, `backward` without a new forward run raises ClearedError."""
    x, loss = leaf_and_loss(20)
    with nn.memory_budget(least(loss)):
        loss.forward()
    loss.backward()
    x.g = 0
    with pytest.raises(nn.ClearedError):
        loss.backward()
    plain, _ = step(loss, [x])
    loss.forward()
    x.g = 0
    loss.backward()
    first = x.g.copy()
    loss.backward()
    same(plain, [first])


def test_a_step_with_a_budget_may_follow_one_without():
    x, loss = leaf_and_loss(30)
    plain, _ = step(loss, [x])
    loss.forward()
    loss.backward()
    budget = least(loss)
    for options in ({"memory_budget": budget}, {}, {"memory_budget": budget + BYTES}, {"clear_no_need_grad": True}):
        same(plain, step(loss, [x], **options)[0])
    loss.forward()
    loss.backward()
    step(loss, [x], memory_budget=budget)
    held = nn.memory_stats()["live"]
    _, again = step(loss, [x], memory_budget=budget)
    assert again <= budget + 4096
    assert nn.memory_stats()["live"] == held


def test_evaluation_needs_two_values_at_a_time():
    """Without gradients, a chain runs in the memory of its input and two values."""
    x = nn.Variable(SHAPE)
    h = x
    for _ in range(20):
        h = F.tanh(h)
    h.forward(memory_budget=4 * BYTES)  # includes the input and the values of the last run
    with pytest.raises(nn.BudgetError):
        h.forward(memory_budget=3 * BYTES)
    x, loss = leaf_and_loss(20)
    loss.forward(clear_buffer=True, memory_budget=5 * BYTES)


def test_memory_in_a_hook_is_within_the_budget():
    """Live memory stays within the budget whenever a hook is called."""
    x, loss = leaf_and_loss(30)
    budget = least(loss)
    step(loss, [x], memory_budget=budget)
    start = nn.memory_stats()["live"] - 2 * BYTES
    live = []
    loss.forward(memory_budget=budget, function_post_hook=lambda f: live.append(nn.memory_stats()["live"] - start))
    loss.backward(function_post_hook=lambda f: live.append(nn.memory_stats()["live"] - start))
    assert max(live) <= budget + 4096


def test_clearing_frees_memory_immediately():
    """A clearing run of a chain needs the memory of three arrays."""
    x, loss = leaf_and_loss(30)
    step(loss, [x])
    before = nn.memory_stats()["live"]
    nn.reset_peak_memory()
    loss.forward(clear_buffer=True)
    assert nn.memory_stats()["peak"] - before <= 3 * BYTES


def test_values_of_half_the_size_take_half_the_memory():
    """Budgets count the bytes of half-precision values."""
    with nn.context_scope(nn.Context(["cpu:half"])):
        x, loss = leaf_and_loss(16)
    plain, _ = step(loss, [x])
    budget = least(loss)
    gradients, real = step(loss, [x], memory_budget=budget)
    same(plain, gradients)
    assert real <= budget + 4096


def test_the_report_is_readable():
    """`plan_report` lists functions and the fate of their values, with and without a budget."""
    x, loss = leaf_and_loss(3)
    text = nn.plan_report(loss)
    assert [line.split()[1] for line in text.splitlines()[1:5]] == ["Tanh"] * 3 + ["Mean"]
    assert "kept" in text
    assert "budget" not in text
    x, loss = leaf_and_loss(30)
    with nn.memory_budget(least(loss)):
        text = nn.plan_report(loss)
    assert "recomputed" in text
    assert "under the budget of" in text
    assert nn.plan_report(loss, least(loss)) == text
    with pytest.raises(nn.GraphError, match="no parent"):
        nn.plan_report(x)
    with pytest.raises(nn.BudgetError):
        nn.plan_report(loss, 1)


def test_autodiff_goes_through_a_budgeted_graph():
    """`autodiff` gives the same gradients after a forward run under a budget."""
    x, loss = leaf_and_loss(20)
    expected, _ = step(loss, [x])
    budget = least(loss)
    loss.forward(memory_budget=budget)
    (g,) = autodiff.grad(loss, x)
    same(expected, [g.d])
    x.grad.zero()
    loss.forward(memory_budget=budget)
    autodiff.backward(loss)
    same(expected, [x.g])
    loss.forward(memory_budget=budget)
    (g,) = autodiff.grad(loss, x, create_graph=True)
    assert np.allclose(expected[0], g.d, rtol=1e-5, atol=1e-12)
    del g  # its graph keeps intermediate values alive
    loss.forward(memory_budget=budget)
    (g,) = nn.grad([loss], [x])
    g.forward()
    assert np.allclose(expected[0], g.d, rtol=1e-5, atol=1e-12)


def test_a_changed_value_is_detected_if_it_is_recomputed():
    x, loss = leaf_and_loss(20)
    loss.forward(memory_budget=least(loss))
    x.d = 0.5
    with pytest.raises(autodiff.ModifiedError):
        autodiff.backward(loss)


def test_convolutions_run_in_a_third_of_the_memory():
    """The figure that the benchmark shows, on a small network."""
    h = nn.Variable.from_numpy_array(np.ones((4, 8, 32, 32), np.float32))
    for i in range(50):
        with nn.parameter_scope(f"budget{i}"):
            h = F.relu(PF.convolution(h, 8, (3, 3), pad=(1, 1)))
    loss = F.mean(h)
    parameters = 2 * sum(4 * p.size for p in nn.get_parameters().values())
    nn.clear_parameters()
    keeping = facts(loss)["peak_clearing"] - parameters
    found = facts(loss, parameters + keeping // 3)
    assert found["peak"] <= parameters + keeping // 3
    assert found["extra"] <= 0.35


def test_a_value_computed_after_a_run_under_a_budget_stays():
    """`autodiff` recomputes values that the budget dropped, and keeps values that a later run computed."""
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 6).reshape(2, 3), need_grad=True)
    early = F.sin(x)
    late = F.tanh(early * 3.0 + 0.5)
    loss = F.sum(F.tanh(F.tanh(late * 2.0) * 2.0))
    with pytest.raises(nn.BudgetError) as caught:
        loss.forward(memory_budget=1)
    loss.forward(memory_budget=caught.value.least)
    loss.backward()
    with pytest.raises(nn.ClearedError):
        early.d  # noqa: B018
    early.forward()
    x.grad.zero()
    autodiff.backward(late, nn.NdArray.from_numpy_array(np.ones(late.shape)), retain_graph=True)
    np.testing.assert_allclose(early.d, np.sin(x.d), 1e-6)
    slope = 3 * np.cos(x.d) * (1 - np.tanh(3 * np.sin(x.d) + 0.5) ** 2)
    np.testing.assert_allclose(x.g, slope, 1e-4, 1e-6)

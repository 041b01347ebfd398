"""Solvers of modules, and groups of parameters with rates and decays of their own."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.parametric_functions as PF
import kinnor.solvers as S


def network(seed=0):
    """Returns two layers whose values depend on the seed only."""
    nn.seed(seed)
    return L.Sequential(("body", L.Linear(3, 4)), ("head", L.Linear(4, 2)))


def backward(module, zero=lambda: None):
    """Computes gradients of a fixed loss."""
    x = nn.Variable.from_numpy_array(np.random.RandomState(1).normal(size=(5, 3)))
    loss = F.sum(F.squared_error(module(x), nn.Variable.from_numpy_array(np.ones((5, 2)))))
    loss.forward()
    zero()
    loss.backward()


def states_of(module):
    """Returns copies of all values by name."""
    return {name: v.d.copy() for name, v in module.state_dict().items()}


def test_a_solver_takes_modules_and_variables():
    """`set_parameters` accepts a module, named parameters or variables."""
    module, solver = network(), S.Adam()
    solver.set_parameters(module)
    names = list(module.state_dict())
    assert list(solver.get_parameters()) == names
    solver.set_parameters(module.named_parameters())
    assert list(solver.get_parameters()) == names
    solver.set_parameters(module.parameters())
    assert list(solver.get_parameters()) == ["0", "1", "2", "3"]
    assert list(solver.get_parameters().values()) == list(module.parameters())
    module[0].requires_grad_(False)
    solver.set_parameters(module)
    assert list(solver.get_parameters()) == names[2:]


def test_what_holds_no_parameters_is_refused():
    """A module without parameters and other objects are refused."""

    class Lazy(nn.Module):
        """A module without parameters before its first call."""

        def call(self, x):
            """Returns the output of the module."""
            return PF.affine(x, 2)

    solver = S.Adam()
    with pytest.raises(
        nn.ParameterError, match=r"Adam.set_parameters: .* a call of the module .* got Lazy without any"
    ):
        solver.set_parameters(Lazy())
    with pytest.raises(TypeError, match="expected Variables by name, a module or Variables, got int"):
        solver.set_parameters(3)
    with pytest.raises(TypeError, match="expected Variables, got int"):
        solver.set_parameters([3])
    with pytest.raises(nn.ParameterError, match=r"Adam.add_group: .* got none"):
        solver.add_group([])


RULES = [name for name in S.__all__ if name not in ("Solver", "SolverState")]
"""Names of all solvers."""


@pytest.mark.parametrize("rule", RULES)
def test_groups_are_solvers_of_their_own(rule):
    """A group updates its parameters as a separate solver would."""
    one, other = network(), network()
    solver = getattr(S, rule)()
    solver.set_parameters(one)
    rate = solver.learning_rate()
    first = next(iter(type(solver).__signature__.parameters))
    assert solver.groups == []
    group = solver.add_group(one[1], **{first: 3 * rate})
    assert solver.groups == [group] and type(group) is getattr(S, rule) and isinstance(solver, getattr(S, rule))
    apart = getattr(S, rule)(), getattr(S, rule)(**{first: 3 * rate})
    for each, layer in zip(apart, other, strict=True):
        each.set_parameters(layer)
    for _ in range(3):
        backward(one, solver.zero_grad)
        solver.update()
        backward(other, lambda: [each.zero_grad() for each in apart])
        for each in apart:
            each.update()
    for name, value in states_of(one).items():
        np.testing.assert_array_equal(value, states_of(other)[name])


def test_parameters_move_to_groups_under_their_names_with_their_states():
    module, solver = network(), S.Adam(alpha=0.5, beta1=0.8)
    solver.set_parameters(module)
    backward(module)
    solver.update()
    before = {key: state.t for key, state in solver.get_states().items()}
    group = solver.add_group(module[1].parameters(), alpha=0.25)
    assert list(group.get_parameters()) == ["@head/W", "@head/b"]
    assert sorted(solver.get_parameters()) == sorted(module.state_dict())
    assert {key: state.t for key, state in solver.get_states().items()} == before
    assert group.info["beta1"] == solver.info["beta1"]
    extra = nn.Variable((2,), need_grad=True)
    solver.add_group({"extra": extra}, alpha=0.1)
    assert "extra" in solver.get_parameters()
    with pytest.raises(nn.ParameterError, match="got 'extra'"):
        solver.add_group({"extra": nn.Variable((2,), need_grad=True)})
    with pytest.raises(TypeError, match=r"Adam: expected \(alpha, .*got an argument 'lr'"):
        solver.add_group(module[0], lr=0.1)
    assert len(solver.groups) == 2


def test_rates_keep_their_ratio():
    """`set_learning_rate` of a solver changes the rates of its groups by the same factor."""
    module, solver = network(), S.Sgd(lr=0.1)
    solver.set_parameters(module)
    group = solver.add_group(module[1], lr=0.4)
    solver.set_learning_rate(0.05)
    assert group.learning_rate() == pytest.approx(0.2)
    group.set_learning_rate(0.3)
    assert solver.learning_rate() == pytest.approx(0.05)
    solver.set_learning_rate(0.0)
    solver.set_learning_rate(0.01)
    assert group.learning_rate() == pytest.approx(0.04)


def test_weight_decays_of_groups():
    """`weight_decay` applies the rate of each group to its parameters."""
    module, solver = network(), S.Sgd(lr=1.0)
    solver.set_parameters(module)
    solver.add_group([module[1].b], weight_decay=0.0)
    solver.add_group([module[1].W], weight_decay=0.5)
    for v in module.parameters():
        v.d, v.g = 1.0, 1.0
    solver.weight_decay(0.25)
    solver.update()
    found = {name: float(v.flat[0]) for name, v in states_of(module).items()}
    assert found == {"@body/W": -0.25, "@body/b": -0.25, "@head/W": -0.5, "@head/b": 0.0}


def test_gradients_of_all_groups_are_clipped_together():
    module, other = network(), network()
    solver, single = S.Sgd(), S.Sgd()
    solver.set_parameters(module)
    single.set_parameters(other)
    solver.add_group(module[1], lr=0.1)
    backward(module, solver.zero_grad)
    backward(other, single.zero_grad)
    assert solver.clip_grad_by_global_norm(0.1) == pytest.approx(single.clip_grad_by_global_norm(0.1))
    for each in (solver, single):
        each.scale_grad(0.5)
        each.clip_grad_by_norm(0.02)
        assert not each.check_inf_or_nan_grad()
    for v, w in zip(module.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(v.g, w.g, rtol=1e-5)
    module[1].W.g = np.inf
    assert solver.check_inf_grad() and not solver.check_nan_grad()


def test_groups_are_saved_and_loaded_together(tmp_path):
    """The states of a solver and its groups are saved in one file."""

    def trained(seed):
        """Returns a module and its solver, with a group, after `seed + 1` steps."""
        module, solver = network(seed), S.Adam(alpha=0.1)
        solver.set_parameters(module)
        solver.add_group(module[1], alpha=0.2)
        for _ in range(seed + 1):
            backward(module, solver.zero_grad)
            solver.update()
        return module, solver

    module, solver = trained(2)
    again, other = trained(0)
    solver.save_states(tmp_path / "states.safetensors")
    other.load_states(tmp_path / "states.safetensors")
    nn.save_checkpoint(tmp_path / "c", parameters=module.state_dict(), solvers={"s": solver}, values=3)
    assert nn.load_checkpoint(tmp_path / "c", parameters=again.state_dict(), solvers={"s": other}) == 3
    for m, s in ((module, solver), (again, other)):
        backward(m, s.zero_grad)
        s.update()
    for name, value in states_of(module).items():
        np.testing.assert_array_equal(value, states_of(again)[name])
    states = solver.get_states()
    states["@head/W"].pstate = {}
    before = {key: state.t for key, state in other.get_states().items()}
    states["@body/W"].t = 99
    with pytest.raises(nn.Error):
        other.set_states(states)
    assert {key: state.t for key, state in other.get_states().items()} == before


def test_parameters_are_set_again_and_removed():
    """Setting parameters again keeps groups or ends them, as the arguments say."""
    module, solver = network(), S.Momentum()
    solver.set_parameters(module)
    group = solver.add_group(module[1], lr=0.1)
    solver.set_parameters(module, reset=False, retain_state=True)
    assert list(group.get_parameters()) == ["@head/W", "@head/b"]
    solver.remove_parameters(["@head/W", "@body/b"])
    assert sorted(solver.get_parameters()) == ["@body/W", "@head/b"]
    solver.set_parameters(module)
    assert solver.groups == [] and len(solver.get_parameters()) == 4
    solver.add_group(module[1])
    solver.clear_parameters()
    assert solver.groups == [] and solver.get_parameters() == {}


def test_hooks_are_called_for_each_parameter():
    """Update hooks are called around each parameter, groups included."""
    module, solver, seen = network(), S.Sgd(), []
    solver.set_parameters(module)
    solver.add_group(module[1], lr=0.1)
    solver.update(update_pre_hook=lambda: seen.append("before"), update_post_hook=lambda: seen.append("after"))
    assert len(seen) in (0, 8)
    backward(module, solver.zero_grad)
    seen.clear()
    solver.update(update_pre_hook=lambda: seen.append("before"), update_post_hook=lambda: seen.append("after"))
    assert seen == ["before", "after"] * 4


def test_ways_of_pytorch_are_explained():
    """PyTorch's way to construct and call solvers raises errors with the right way."""
    with pytest.raises(TypeError, match="Adam: expected numbers as arguments, got generator: set_parameters"):
        S.Adam(network().parameters())
    with pytest.raises(TypeError, match="got Sequential: set_parameters"):
        S.Sgd(network())
    with pytest.raises(AttributeError, match=r"'Adam' object has no attribute 'step'; write solver\.update\(\)"):
        S.Adam().step()
    with pytest.raises(AttributeError, match=r"'Adam' object has no attribute 'nothing'$"):
        _ = S.Adam().nothing
    for make, told in (
        (lambda: S.AdamW(weight_decay=0.01), "`wd` is PyTorch's weight_decay times the learning rate"),
        (lambda: S.Adam(weight_decay=0.01), "call weight_decay(rate) of the solver"),
        (lambda: S.Adam(betas=(0.9, 0.99)), "did you mean 'beta1' and 'beta2'?"),
        (lambda: S.Sgd(lr=0.1, momentum=0.9), "Momentum and Nesterov are solvers of their own"),
    ):
        with pytest.raises(TypeError) as raised:
            make()
        assert told in str(raised.value)


@pytest.mark.parametrize("name", ["lr", "alpha", "learning_rate", "wd", "weight_decay"])
def test_settings_without_effect_are_refused(name):
    """Setting an attribute such as the learning rate on a solver raises an error."""
    module, solver = network(), S.AdamW(alpha=0.1)
    solver.set_parameters(module)
    for each in (solver, solver.add_group(module[1], alpha=0.2), solver):
        with pytest.raises(AttributeError, match="set_learning_rate"):
            setattr(each, name, 0.5)

    class Own(S.AdamW):
        """A solver of a program, which may have any attribute."""

    own = Own()
    setattr(own, name, 0.5)
    assert getattr(own, name) == 0.5


def test_groups_of_solvers_with_wd_refuse_the_other_decay():
    """`add_group` of `AdamW` and `SgdW` takes `wd` and refuses `weight_decay`."""
    for solver in (S.AdamW(alpha=0.1, wd=0.01), S.SgdW(lr=0.1, wd=0.01)):
        module = network()
        solver.set_parameters(module)
        with pytest.raises(TypeError, match="add_group: expected `wd`, got an argument 'weight_decay'"):
            solver.add_group(module[1], weight_decay=0.0)
        assert solver.groups == []


def test_a_frozen_module_is_named_as_frozen():
    module, solver = network().requires_grad_(False), S.Adam()
    with pytest.raises(nn.ParameterError, match=r"got Sequential with all of them frozen; call requires_grad_\(\)"):
        solver.set_parameters(module)
    with pytest.raises(nn.ParameterError, match="expected a module that has parameters"):
        solver.set_parameters(nn.Sequential())


@pytest.mark.parametrize("method", ["update", "weight_decay"])
@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize("how", ["shape", "cleared"])
def test_all_groups_change_or_none(method, broken, how):
    """A gradient or shape that one group refuses leaves the parameters and gradients of the others as they are."""
    variables = {name: nn.Variable.from_numpy_array(np.ones(2, np.float32), need_grad=True) for name in "abc"}
    solver = S.Momentum(0.1)
    solver.set_parameters(variables)
    solver.add_group({"b": variables["b"]}, lr=0.01, weight_decay=0.5)
    solver.add_group({"c": variables["c"]}, lr=0.02)
    for v in variables.values():
        v.g = 1
    one = variables["abc"[broken]]
    one.reset_shape((3,), True) if how == "shape" else one.grad.clear()
    with pytest.raises((nn.ShapeError, nn.ClearedError)):
        solver.update() if method == "update" else solver.weight_decay(0.5)
    for v in variables.values():
        if v is not one:
            assert (v.d.tolist(), v.g.tolist()) == ([1, 1], [1, 1])
    assert [state.t for state in solver.get_states().values()] == [0, 0, 0]


def test_all_parameters_may_be_in_groups():
    """A solver without parameters of its own updates the parameters of its groups."""
    a, b = (nn.Variable.from_numpy_array(np.ones(2, np.float32), need_grad=True) for _ in range(2))
    solver = S.Sgd(0.1)
    solver.set_parameters({"a": a, "b": b})
    solver.add_group({"a": a}, lr=0.25)
    solver.add_group({"b": b}, lr=0.5)
    a.g = b.g = 1
    solver.update()
    assert (a.d.tolist(), b.d.tolist()) == ([0.75, 0.75], [0.5, 0.5])

"""Failed allocations: the failing call changes nothing, and later calls find everything as before."""

from contextlib import contextmanager

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor import _core, autodiff

MANY = 1 << 40
"""More allocations than a test makes: all that follow fail."""


@contextmanager
def shortage(first=0, count=MANY):
    """Makes `count` allocations fail, from the one with number `first` on. Yields a list that gets the number made."""
    made: list[int] = []
    _core.fail_allocations(first, count)
    try:
        yield made
    finally:
        made.append(_core.fail_allocations())


N = 3000
"""Elements of an array."""
OLD = np.arange(N, dtype=np.float32)
"""Values before a write."""
NEW = np.arange(N, dtype=np.float64)[::-1].copy()
"""Values to write, of another element type."""


def leaf_with_gradient():
    """Returns a variable whose values and gradient are `OLD`."""
    x = nn.Variable.from_numpy_array(OLD.copy(), need_grad=True)
    x.g = OLD
    return x


WRITES = {
    "d": lambda x: setattr(x, "d", NEW),
    "g": lambda x: setattr(x, "g", NEW),
    "data": lambda x: setattr(x.data, "data", NEW),
    "from another shape": lambda x: setattr(x, "d", NEW[:1]),
    "copy_from": lambda x: x.data.copy_from(nn.NdArray.from_numpy_array(NEW), use_current_context=False),
    "cast": lambda x: x.data.cast(np.float64),
    "cast in a context": lambda x: x.data.cast(np.int64, nn.Context()),
    "get_data to write": lambda x: x.data.get_data("w", np.float64),
    "get_data": lambda x: x.data.get_data("rw", np.uint64),
    "data_ptr": lambda x: x.data.data_ptr(np.float64, write_only=True),
}
"""Writes of another element type to a variable. A failed write must change nothing."""


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_failed_write_of_another_type_changes_nothing(write):
    for lazily in (False, True):
        x = leaf_with_gradient()
        expected = OLD
        if lazily:
            x.data.fill(3)
            x.grad.fill(3)
            expected = np.full(N, 3, np.float32)
        y = F.sum(x)
        if not lazily:
            y.forward()
        with shortage(1 if write is WRITES["copy_from"] else 0), pytest.raises(MemoryError):
            write(x)
        others = [nn.NdArray.from_numpy_array(np.full(N, 7, np.float32)) for _ in range(20)]
        y.forward()
        assert y.item() == expected.sum(dtype=np.float64)
        assert x.d.dtype == x.g.dtype == np.float32
        assert np.array_equal(x.d, expected) and np.array_equal(x.g, expected)
        x.data.get_data("rw")[:] = 5
        assert all((other.data == 7).all() for other in others)
        write(x)


def test_a_failed_gradient_of_another_type_leaves_the_old_one():
    x = nn.Variable.from_numpy_array(OLD.astype(np.float64), need_grad=True)
    x.g = NEW.astype(np.int16)
    y = F.sum(F.sin(x))
    y.forward()
    failed = 0
    while True:
        x.g = np.full(N, 2, np.int16)
        with shortage(failed):
            try:
                y.backward()
            except MemoryError:
                failed += 1
            else:
                break
        assert x.data.dtype == np.float64 and np.isfinite(x.g.astype(np.float64)).all()
    assert failed > 0
    assert np.allclose(x.g, 2 + np.cos(OLD), atol=1e-2)


def test_a_part_is_filled_or_raises():
    """A fill of a part either succeeds or raises MemoryError."""
    whole = nn.NdArray((4, N))
    part = whole.narrow(0, 1, 2)
    with shortage():
        for fill in (lambda: part.fill(5.0), part.zero, lambda: setattr(part, "data", 5.0)):
            with pytest.raises(MemoryError):
                fill()
    part.fill(5.0)
    assert whole.data[:, 0].tolist() == [0, 5, 5, 0]


PARAMETERS = {
    "float32": (np.float32, np.float32),
    "gradients of another type": (np.float32, np.int32),
    "whole numbers": (np.int64, np.float64),
    "float16": (np.float16, np.float32),
    "float64": (np.float64, np.float16),
}
"""Pairs of element types: of the parameters, and of their gradients."""


def solver_with(name, dtypes):
    """Returns a solver with parameters and gradients of these types."""
    solver = getattr(S, name)()
    parameters = {}
    for i in range(4):
        w = nn.Variable((50 + i,), need_grad=True)
        w.d = (np.arange(50 + i) * 3).astype(dtypes[0])
        w.g = (np.arange(50 + i) - 20).astype(dtypes[1])
        parameters[str(i)] = w
    solver.set_parameters(parameters)
    return solver, parameters


CALLS = {
    "update": lambda s: s.update(),
    "weight_decay": lambda s: s.weight_decay(0.5),
    "clip_grad_by_norm": lambda s: s.clip_grad_by_norm(0.5),
    "clip_grad_by_global_norm": lambda s: s.clip_grad_by_global_norm(0.5),
    "scale_grad": lambda s: s.scale_grad(0.5),
}
"""Methods of a solver that change parameters or gradients."""


def everything(solver, parameters):
    """Returns bits and types of everything that a solver changes: parameters, gradients and states."""
    arrays = [a.get_data("r") for w in parameters.values() for a in (w.data, w.grad)]
    states = solver.get_states().values()
    values = [a.data.get_data("r").tolist() for state in states for a in state.pstate.values()]
    return [state.t for state in states], values, [(a.dtype, a.tobytes()) for a in arrays]


@pytest.mark.parametrize("dtypes", PARAMETERS.values(), ids=PARAMETERS)
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("name", ["Adam", "Momentum", "AdamW", "Lamb"])
def test_a_solver_without_memory_changes_nothing(name, call, dtypes):
    """A method of a solver that runs out of memory leaves everything unchanged."""
    solver, parameters = solver_with(name, dtypes)
    CALLS[call](solver)
    expected = everything(solver, parameters)
    failed = 0
    while True:
        solver, parameters = solver_with(name, dtypes)
        before = everything(*solver_with(name, dtypes))
        with shortage(failed):
            try:
                CALLS[call](solver)
            except MemoryError:
                failed += 1
            else:
                break
        assert everything(solver, parameters) == before
        CALLS[call](solver)
        assert everything(solver, parameters) == expected
    assert everything(solver, parameters) == expected


X = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
"""A batch of images."""
T = np.random.default_rng(1).integers(0, 5, (4, 1))
"""The labels of the batch."""


class Training:
    """A new network and solver, with nothing allocated yet."""

    def __init__(self, at_once):
        """Makes the network and its solver, for eager or static runs."""
        nn.clear_parameters()
        nn.seed(3)
        self.at_once = at_once
        self.x = nn.Variable.from_numpy_array(X.astype(np.float64), need_grad=True)
        self.t = nn.Variable.from_numpy_array(T)
        self.loss = None if at_once else self.net()
        if at_once:
            with nn.auto_forward(False):
                self.net()
        self.parameters = nn.get_parameters()
        self.solver = S.Adam(0.01)
        self.solver.set_parameters(self.parameters)

    def net(self):
        """Builds the loss."""
        rng = np.random.RandomState(5)
        h = PF.convolution(self.x, 8, (3, 3), pad=(1, 1), name="c", rng=rng)
        h = F.relu(PF.batch_normalization(h, name="b"))
        h = F.max_pooling(h, (2, 2))
        h = F.sin(PF.affine(h, 16, name="a", rng=rng)) * 2 + 1
        return F.mean(F.softmax_cross_entropy(PF.affine(h, 5, name="o", rng=rng), self.t))

    def forward(self):
        """Runs forward, eagerly or in the static graph."""
        if self.at_once:
            with nn.auto_forward():
                self.loss = self.net()
        else:
            self.loss.forward(clear_no_need_grad=True)

    def backward(self):
        """Runs backward."""
        self.solver.zero_grad()
        self.x.grad.zero()
        self.loss.backward(clear_buffer=True)

    def differentiate(self):
        """Differentiates by `autodiff`."""
        self.solver.zero_grad()
        self.x.grad.zero()
        autodiff.backward(self.loss)

    def update(self):
        """Updates the parameters."""
        self.solver.update()

    def found(self):
        """Returns loss, parameters and solver states as bytes."""
        arrays = [w.data for w in self.parameters.values()]
        arrays += [a.data for state in self.solver.get_states().values() for a in state.pstate.values()]
        return [self.loss.item(), *(a.get_data("r").tobytes() for a in arrays)]


STEPS = {
    "static": (False, ["forward", "backward", "update"]),
    "dynamic": (True, ["forward", "backward", "update"]),
    "autodiff": (False, ["forward", "differentiate", "update"]),
    "autodiff of dynamic code": (True, ["forward", "differentiate", "update"]),
}
"""By name: True if functions run as they are built, and the phases of a training step."""


@pytest.mark.parametrize("count", [1, MANY], ids=["one", "all that follow"])
@pytest.mark.parametrize(("at_once", "phases"), STEPS.values(), ids=STEPS)
def test_each_allocation_of_a_training_step_may_fail(at_once, phases, count):
    def step(training):
        """Runs the phases of a training step."""
        for phase in phases:
            getattr(training, phase)()

    reference = Training(at_once)
    step(reference)
    expected = reference.found()
    first, failed = 0, 0
    while True:
        training = Training(at_once)
        before = [w.data.get_data("r").copy() for w in training.parameters.values()]
        try:
            with shortage(first, count) as made:
                step(training)
        except MemoryError:
            failed += 1
        else:
            assert training.found() == expected
            if made[0] <= first or count == MANY:
                break
            first += 1
            continue
        after = [w.data.get_data("r") for w in training.parameters.values()]
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True)), first
        assert {state.t for state in training.solver.get_states().values()} == {0}
        step(training)
        assert training.found() == expected, first
        first += 1
    assert failed > 20


@pytest.mark.parametrize("kind", ["safetensors", "h5", "protobuf"])
@pytest.mark.parametrize("what", ["parameters", "states"])
def test_each_allocation_of_a_save_and_of_a_load_may_fail(what, kind, tmp_path):
    training = Training(at_once=False)
    for phase in STEPS["static"][1]:
        getattr(training, phase)()
    training.solver.zero_grad()
    path, other = str(tmp_path / f"kept.{kind}"), str(tmp_path / f"new.{kind}")
    if what == "parameters":
        save, load = nn.save_parameters, nn.load_parameters
    else:
        save, load = training.solver.save_states, training.solver.load_states
    save(path)
    kept = training.found()

    def change():
        """Changes the types and values of parameters and states."""
        for w in training.parameters.values():
            w.d = w.d.astype(np.float16)
        for state in training.solver.get_states().values():
            for a in state.pstate.values():
                a.d = a.d.astype(np.float64) + 1

    for loads, call in ((False, lambda: save(other)), (True, lambda: load(path))):
        failed = 0
        while True:
            change()
            before = training.found()
            with shortage(failed):
                try:
                    call()
                except MemoryError:
                    failed += 1
                else:
                    break
            assert training.found() == before
        assert failed > 0 or not loads
        load(path)
    change()
    load(path)
    after = training.found()
    changed = (
        slice(1, 1 + len(training.parameters)) if what == "parameters" else slice(1 + len(training.parameters), None)
    )
    assert after[changed] == kept[changed] and after != before


def test_a_warm_static_step_of_small_layers_allocates_nothing():
    x, t = nn.Variable((8, 16)), nn.Variable((8, 4))
    h = x
    for i in range(3):
        h = F.tanh(PF.affine(h, 16, name=f"hidden{i}"))
    loss = F.mean(F.squared_error(PF.affine(h, 4, name="out"), t))
    solver = S.Adam()
    solver.set_parameters(nn.get_parameters())

    def step():
        """Runs a training step."""
        x.d, t.d = 0.5, 1.0
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()

    step()
    step()
    with shortage(MANY) as made:
        step()
    assert made == [0]

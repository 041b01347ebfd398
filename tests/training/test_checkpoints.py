"""Checkpoints: a run that goes on has the bits of one that was not interrupted, and a refused file changes nothing."""

import inspect
import json

import numpy as np
import pytest
from support import TABLE

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.solvers as S
from kinnor import random
from kinnor.data.data_iterator import data_iterator_simple
from kinnor.files import parameter_file
from kinnor.learning_rate_scheduler import CosineScheduler
from kinnor.training import Callback, EarlyStopping

RNG = np.random.RandomState(0)
X, Y = RNG.randn(53, 6).astype(np.float32), RNG.randint(0, 3, (53, 1))
TYPES = ("float32", "float64", "float16", "int32", "uint8")


class Interrupted(Exception):
    """Ends a run in the middle of an epoch."""


class Breaks(Callback):
    """Raises after a step."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, run):
        """Ends the run."""
        if run.step == self.step:
            raise Interrupted


def check_resumed(run, checkpoint):
    """Asserts that two epochs and then two more give the arrays and losses of four epochs, to the bit."""
    arrays, losses = run(4)
    run(2, checkpoint=checkpoint)
    again, losses_again = run(4, checkpoint=checkpoint)
    assert losses_again == losses
    for one, other in zip(again, arrays, strict=True):
        np.testing.assert_array_equal(one, other)


def trained(seed, epochs, solver, *, grouped=False, breaks=None, iterates=False, **arguments):
    """Trains a network with dropout. Returns its arrays, and the values of the epochs without their times."""
    nn.seed(seed)
    module = L.Sequential(L.Linear(6, 8), L.BatchNorm1d(8), L.ReLU(), L.Dropout(0.3), L.Linear(8, 3))
    if grouped:
        own = module.get_parameters()
        solver.set_parameters(own)
        solver.add_group(dict(list(own.items())[:2]), **{next(iter(solver.info)): 0.011})
    callbacks = [EarlyStopping("loss", patience=2)] + ([Breaks(breaks)] if breaks else [])
    rng = np.random.RandomState(5)
    with data_iterator_simple(lambda i: (X[i], Y[i]), 53, 8, shuffle=True, rng=rng) as batches:
        data = batches if iterates else (X, Y)
        history = nn.fit(
            module, data, "cross_entropy", solver=solver, epochs=epochs, batch_size=8, callbacks=callbacks,
            verbose=False, **arguments,
        )  # fmt: skip
    arrays = {name: v.d.copy() for name, v in module.state_dict().items()}
    return arrays, [{name: value for name, value in row.items() if name != "seconds"} for row in history]


@pytest.mark.parametrize("kind", ["float", "double", "half", "bfloat16"])
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"grouped": True},
        {"schedule": CosineScheduler(0.05, 20)},
        {"iterates": True, "accumulate": 2, "clip_norm": 0.1, "weight_decay": 0.1},
    ],
)
@pytest.mark.parametrize("solver", ["Adam", "AMSBound", "Momentum"])
def test_a_run_that_goes_on_has_the_bits_of_one_run(tmp_path, kind, arguments, solver):
    """The rate, 0.03, is no number of single precision, and statistics of a context have its type."""
    with nn.context_scope(nn.Context([f"cpu:{kind}"])):

        def run(seed, epochs, **more):
            """Trains with a new solver."""
            return trained(seed, epochs, getattr(S, solver)(0.03), **arguments, **more)

        arrays, rows = run(1, 4)
        run(1, 2, checkpoint=tmp_path / "whole")
        with pytest.raises(Interrupted):
            run(1, 4, checkpoint=tmp_path / "broken", breaks=9)
        for name in ("whole", "broken"):
            again, rows_again = run(99, 4, checkpoint=tmp_path / name)
            assert rows_again == rows
            for key in arrays:
                np.testing.assert_array_equal(again[key], arrays[key], err_msg=key)


SEEDED = [
    name for name in TABLE if "seed" in inspect.signature(getattr(F, name)).parameters and not name.startswith("inq_")
]
"""Functions of the table that take a seed of their own."""


def seeded(name):
    """Returns inputs and arguments of a function with which two runs draw different numbers."""
    for row in TABLE[name]:
        inputs = [None if x is None else nn.Variable.from_numpy_array(x) for x in row.inputs]
        args = {**row.args, **({"dropout": 0.5} if name == "scaled_dot_product_attention" else {})}
        y = getattr(F, name)(*inputs, **{**args, "seed": 7})
        y = y[0] if isinstance(y, tuple) else y
        y.forward()
        before = y.d.copy()
        y.forward()
        if (y.d != before).any():
            return inputs, args
    raise AssertionError(f"no row of {name} draws")


@pytest.mark.parametrize("name", SEEDED)
def test_functions_with_a_seed_go_on_after_the_numbers_they_have_drawn(tmp_path, name):
    """Each function with `seed=` continues its own sequence in a graph that is built anew."""
    inputs, args = seeded(name)

    def built():
        """Returns the first output of the function for two seeds, and a graph of both."""
        found = [getattr(F, name)(*inputs, **{**args, "seed": seed}) for seed in (7, 8)]
        ys = [y[0] if isinstance(y, tuple) else y for y in found]
        return ys, F.sink(*ys)

    def run(ys, graph):
        """Runs the graph once. Returns the values."""
        for y in ys:
            y.persistent = True
        graph.forward()
        return [y.d.copy() for y in ys]

    first = built()
    numbers = [run(*first) for _ in range(3)]
    nn.save_checkpoint(tmp_path / "c", parameters={}, graphs={"g": first[1]})
    numbers += [run(*first) for _ in range(2)]
    again = built()
    nn.load_checkpoint(tmp_path / "c", parameters={}, graphs={"g": again[1]})
    for expected in numbers[3:]:
        for got, y in zip(run(*again), expected, strict=True):
            np.testing.assert_array_equal(got, y)
    np.testing.assert_array_equal(run(*built()), numbers[0])


INCREMENTAL = {
    "inq_affine": (F.inq_affine, (4, 6), (6, 5)),
    "inq_convolution": (F.inq_convolution, (2, 3, 5, 5), (4, 3, 3, 3)),
}
"""Functions that count their runs, with the shapes of an input and a weight."""


@pytest.mark.parametrize("algorithm", ["largest_abs", "random"])
@pytest.mark.parametrize("seed", [-1, 7])
@pytest.mark.parametrize("context", ["float", "double", "half", "bfloat16"])
@pytest.mark.parametrize("name", INCREMENTAL)
def test_functions_that_count_their_runs_go_on_counting(tmp_path, name, context, seed, algorithm):
    """A resumed training fixes the same weights in the same runs, though a solver has moved the fixed ones."""
    function, of_x, of_w = INCREMENTAL[name]
    rng = np.random.RandomState(3)
    x, start = rng.randn(*of_x), rng.randn(*of_w)

    def built():
        """Returns the parameters, a solver, and the loss."""
        w, fixed = (nn.Variable.from_numpy_array(a, need_grad=True) for a in (start, np.zeros(of_w)))
        fixed.need_grad = False
        y = function(
            nn.Variable.from_numpy_array(x), w, fixed, inq_iterations=(1, 3, 5), num_bits=3,
            selection_algorithm=algorithm, seed=seed,
        )  # fmt: skip
        solver = S.Sgd(0.2)
        solver.set_parameters({"w": w})
        return {"w": w, "fixed": fixed}, solver, F.mean(y**2)

    def run(parameters, solver, loss):
        """Makes one step. Returns the loss and the arrays."""
        loss.forward()
        solver.zero_grad()
        loss.backward()
        solver.update()
        return [loss.d.copy(), *(v.d.copy() for v in parameters.values())]

    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        nn.seed(5)
        first = built()
        steps = []
        for step in range(8):
            parameters, solver, loss = first
            nn.save_checkpoint(tmp_path / f"{step}", parameters=parameters, solvers={"s": solver}, graphs={"g": loss})
            steps.append(run(*first))
        assert [int((each[2] == 1).sum()) for each in steps[::2]] == sorted(int((e[2] == 1).sum()) for e in steps[::2])
        for done in range(8):
            nn.seed(99)
            again = built()
            run(*again)
            parameters, solver, loss = again
            nn.load_checkpoint(tmp_path / f"{done}", parameters=parameters, solvers={"s": solver}, graphs={"g": loss})
            for expected in steps[done:]:
                for got, array in zip(run(*again), expected, strict=True):
                    np.testing.assert_array_equal(got, array)


def test_progress_that_is_of_no_such_function_is_refused_and_nothing_changes(tmp_path):
    def built(n):
        """Returns a graph with a count of its runs."""
        xs = [nn.Variable.from_numpy_array(np.ones(s)) for s in ((2, n), (n, 2))]
        return F.inq_affine(*xs, nn.Variable.from_numpy_array(np.zeros((n, 2))), inq_iterations=(1,))

    y = built(3)
    assert y.parent.progress == b""
    y.forward()
    before = y.parent.progress
    for wrong in (b"1", before[:-1], before[:8] + b"\3" + before[9:]):
        with pytest.raises(nn.GraphError, match="expected the progress of a function like INQAffine, got other bytes"):
            y.parent.progress = wrong
    nn.save_checkpoint(tmp_path / "c", parameters={}, graphs={"g": y})
    for wrong in ([], [["INQAffine", 0]], [["INQAffine", 0, "1"]], [["INQAffine", 0, "AAAA"]], [["Affine", 0, ""]]):
        changed(tmp_path / "c", lambda about, wrong=wrong: about["processes"][0]["graphs"].update(g=wrong))
        with pytest.raises(nn.ParameterError, match=r"positions of graph 'g', whose functions .* are \['INQAffine'\]"):
            nn.load_checkpoint(tmp_path / "c", parameters={}, graphs={"g": y})
    assert y.parent.progress == before
    assert F.relu(y).parent.progress is None
    with pytest.raises(nn.GraphError, match="like ReLU"):
        F.relu(y).parent.progress = b""


def test_fit_goes_on_counting_runs(tmp_path):
    """A resumed training of layers that are quantized step by step has the bits of one run."""

    def run(epochs, **more):
        """Trains a network. Returns its parameters and losses."""
        nn.seed(5)
        rng = np.random.RandomState(2)
        w, fixed = (nn.Variable.from_numpy_array(a, need_grad=True) for a in (rng.randn(6, 3), np.zeros((6, 3))))
        fixed.need_grad = False

        def model(x, training=True):
            """Returns the scores. Weights are fixed in training only."""
            return F.inq_affine(x, w, fixed, inq_iterations=(3, 8, 19)) if training else F.affine(x, w)

        history = nn.fit(
            model, (X, Y), "cross_entropy", solver=S.Sgd(0.1), epochs=epochs, batch_size=8, verbose=False,
            parameters={"w": w, "fixed": fixed}, **more,
        )  # fmt: skip
        return [w.d.copy(), fixed.d.copy()], history.series("loss")

    check_resumed(run, tmp_path / "c")


def test_positions_of_another_graph_are_refused_and_nothing_changes(tmp_path):
    x = nn.Variable((2, 3))
    y = F.dropout(x, seed=3)
    y.forward()
    nn.save_checkpoint(tmp_path / "c", parameters={"x": x}, graphs={"g": y})
    other = F.rand(shape=(2, 3), seed=3)
    other.forward()
    position = other.parent.random_position
    assert position > 0
    with pytest.raises(nn.ParameterError, match=r"positions of graph 'g', whose functions .* are \['Rand'\]"):
        nn.load_checkpoint(tmp_path / "c", parameters={"x": x}, graphs={"g": other})
    with pytest.raises(nn.ParameterError, match=r"the position of graph 'h', got none"):
        nn.load_checkpoint(tmp_path / "c", parameters={"x": x}, graphs={"h": y})
    with pytest.raises(nn.CallError, match="expected `graphs` to be outputs of graphs by name, got Variable"):
        nn.save_checkpoint(tmp_path / "d", parameters={"x": x}, graphs=y)
    assert other.parent.random_position == position
    assert F.relu(x).parent.random_position is None
    with pytest.raises(nn.GraphError, match="expected a function that draws random numbers, got ReLU"):
        F.relu(x).parent.random_position = 4


@pytest.mark.parametrize("rows", [53, 48])
def test_fit_goes_on_with_functions_that_have_a_seed(tmp_path, rows):
    """A resumed training has the bits of one run, also for the graph of the last, shorter batch of an epoch."""
    data = X[:rows], Y[:rows]

    def run(epochs, **more):
        """Trains a network with seeds of its own. Returns its parameters and losses."""
        nn.seed(5)
        first, last = L.Linear(6, 8), L.Linear(8, 3)

        def model(x, training=True):
            """Returns the scores; with noise and dropout in training."""
            h = F.tanh(first(F.add2(x, F.randn(0.0, 0.1, x.shape, seed=3)) if training else x))
            return last(F.dropout(h, 0.4, seed=7) if training else h)

        parameters = {f"{i}{name}": v for i, of in enumerate((first, last)) for name, v in of.state_dict().items()}
        history = nn.fit(
            model, data, "cross_entropy", solver=S.Adam(0.03), epochs=epochs, batch_size=8, verbose=False,
            parameters=parameters, validation=data, **more,
        )  # fmt: skip
        return [v.d.copy() for v in parameters.values()], history.series("loss")

    check_resumed(run, tmp_path / "c")


@pytest.mark.parametrize("written", TYPES)
@pytest.mark.parametrize("held", TYPES)
def test_arrays_take_the_values_and_the_type_of_the_file(tmp_path, written, held):
    """Values that the array's own type does not have are neither cut off nor infinite."""
    most = {"float16": 6e4, "uint8": 200}.get(written, 1e9)
    v = nn.Variable.from_numpy_array(np.array([1.7, 3.3, most / 2, most]).astype(written))
    nn.save_checkpoint(tmp_path / "c", parameters={"v": v})
    other = nn.Variable.from_numpy_array(np.zeros(4, held))
    nn.load_checkpoint(tmp_path / "c", parameters={"v": other})
    assert other.d.dtype == written
    np.testing.assert_array_equal(other.d, v.d)


def changed(path, change):
    """Changes the JSON part of a checkpoint."""
    entries = parameter_file.read_safetensors(path)
    about = json.loads(next(each.values for each in entries if each.name == "about").tobytes())
    change(about)
    text = np.frombuffer(json.dumps(about).encode(), np.uint8)
    parameter_file.write_safetensors(
        path, [each._replace(values=text) if each.name == "about" else each for each in entries]
    )


def iterators(about):
    """Returns the positions in a checkpoint."""
    return about["processes"][0]["iterators"]


@pytest.mark.parametrize(
    "change",
    [
        lambda about: iterators(about)["b"].update(epoch="x"),
        lambda about: iterators(about)["b"].clear(),
        lambda about: about["processes"][0]["random"].update(functions=[-1, 0]),
        lambda about: about["processes"][0]["random"].update(functions=["x", 0]),
        lambda about: about["processes"][0]["random"]["parameters"].pop(),
        lambda about: about["processes"][0]["random"].clear(),
    ],
)
def test_a_refused_checkpoint_changes_nothing(tmp_path, change):
    """Parameters, states, generators and iterators stay as they are if any part of the file is refused."""
    v = nn.Variable.from_numpy_array(np.ones(3, np.float32), need_grad=True)
    solver = S.Adam()
    solver.set_parameters({"v": v})
    path = tmp_path / "c"

    def step():
        """Makes an update, and draws random numbers."""
        v.g = 1
        solver.update()
        random.prng.rand()
        with nn.auto_forward():
            F.rand(shape=(2,))

    with (
        data_iterator_simple(lambda i: (i,), 8, 2) as a,
        data_iterator_simple(lambda i: (i,), 8, 2) as b,
    ):
        held = {"parameters": {"v": v}, "solvers": {"s": solver}, "iterators": {"a": a, "b": b}}
        step()
        nn.save_checkpoint(path, **held)
        changed(path, change)
        step()
        a.next(), b.next()
        before = v.d.copy(), solver.get_states()["v"].t, [each.state() for each in (a, b)]
        drawn = nn._core.random_state(), random.prng.get_state()[2]
        with pytest.raises(nn.ParameterError, match="load_checkpoint"):
            nn.load_checkpoint(path, **held)
        np.testing.assert_array_equal(v.d, before[0])
        assert (solver.get_states()["v"].t, [each.state() for each in (a, b)]) == before[1:]
        assert (nn._core.random_state(), random.prng.get_state()[2]) == drawn
        assert [each.next()[0].tolist() for each in (a, b)] == [[2, 3], [2, 3]]


@pytest.mark.parametrize("values", [None, 3, {"step": 3}])
def test_fit_refuses_checkpoints_of_other_programs(tmp_path, values):
    """Before it changes anything."""
    module, solver = L.Linear(6, 3), S.Adam()
    module(nn.Variable((8, 6)))
    solver.set_parameters(module)
    nn.save_checkpoint(tmp_path / "c", parameters=module.state_dict(), solvers={"solver": solver}, values=values)
    module.state_dict()["W"].d = 5
    with pytest.raises(nn.ParameterError, match="expected a checkpoint that fit has written"):
        nn.fit(module, (X, Y), "cross_entropy", batch_size=8, checkpoint=tmp_path / "c", verbose=False)
    assert (module.state_dict()["W"].d == 5).all()


def test_values_may_be_numbers_of_numpy(tmp_path):
    """A callback of fit may log them. A value that JSON cannot hold is refused, and the file stays."""
    path = tmp_path / "c"
    values = {"a": np.float32(0.5), "b": [np.int64(3), np.bool_(True)], "c": float("nan")}
    nn.save_checkpoint(path, parameters={}, values=values)
    found = nn.load_checkpoint(path, parameters={})
    assert found["a"] == 0.5 and found["b"] == [3, True] and found["c"] != found["c"]
    before = path.read_bytes()
    for refused in (nn.Variable((1,)), np.zeros(2), np.complex64(1j), {1}):
        with pytest.raises(TypeError, match="expected `values` that JSON can hold"):
            nn.save_checkpoint(path, parameters={}, values=refused)
    assert path.read_bytes() == before
    logs = {"on_epoch_end": lambda run: run.logs.update(mine=np.float32(1.5))}
    module = L.Linear(6, 3)
    history = nn.fit(
        module, (X, Y), "cross_entropy", epochs=1, callbacks=logs.values(), checkpoint=tmp_path / "f", verbose=False
    )
    again = nn.fit(module, (X, Y), "cross_entropy", epochs=1, checkpoint=tmp_path / "f", verbose=False)
    assert again.series("mine") == history.series("mine") == [1.5]

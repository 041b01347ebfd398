"""Inspection of graphs and runs with NNabla's names: text, times, NaN."""

import csv
import io
import time

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.utils.function_profile import FunctionProfile, profile
from kinnor.utils.inspection import NanInfError, NanInfTracer, TimeProfiler, pprint
from kinnor.utils.profiler import GraphProfiler, GraphProfilerCsvWriter, convert_time_scale

KINDS = ["Convolution", "BatchNormalization", "ReLU", "Affine", "PowScalar", "Mean"]
"""Types of the functions of `loss`, in order of execution."""


@pytest.fixture
def loss():
    """Returns the loss of a small network."""
    nn.clear_parameters()
    x = nn.Variable((2, 1, 6, 6))
    x.d = np.random.RandomState(0).randn(*x.shape)
    with nn.parameter_scope("c1"):
        h = F.relu(PF.batch_normalization(PF.convolution(x, 3, (3, 3))))
    with nn.parameter_scope("f"):
        return F.mean(PF.affine(h, 4) ** 2)


def test_a_graph_as_text(loss, capsys):
    """`pprint` prints the functions of a graph and their shapes as NNabla does."""
    printer = pprint(loss, printer=True)
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if not line.startswith("\t")] == [
        "c1/conv/Convolution(Convolution)",
        "c1/bn/BatchNormalization(BatchNormalization)",
        "ReLU(ReLU)",
        "f/affine/Affine(Affine)",
        "PowScalar(PowScalar)",
        "Mean(Mean)",
    ]
    # The output of NNabla 1.39.
    assert "\tInputs: [(2, 1, 6, 6), (3, 1, 3, 3), (3,)]" in lines
    assert "\tBackward Inputs: [True, True, True, False, False]" in lines
    assert "\tArgs: ['axes=[0, 1]', 'keep_dims=False']" in lines
    assert printer.functions[2] == {"name": "ReLU(ReLU)", "inputs": [(2, 3, 4, 4)], "outputs": [(2, 3, 4, 4)]}


def test_statistics_of_a_graph(loss, capsys):
    """`pprint` prints statistics of values and gradients on request."""
    printer = pprint(loss, forward=True, backward=True, summary=True, hidden=True, printer=True)
    text = capsys.readouterr().out
    x, out = printer.functions[0]["inputs"][0], printer.functions[-1]["outputs"][0]
    assert f"\t\tStd: [{float(np.std(x.d))}, " in text
    assert f"\t\tMax: [{float(out.d)}]" in text
    assert f"\t\tAve: [{0.125}]" in text
    assert text.count("\tOutput Grads:") == len(KINDS)


def test_times_of_functions(loss, tmp_path, capsys):
    """`TimeProfiler` measures functions by hooks within its scopes."""
    profiler = TimeProfiler("cpu", "0")
    hooks = lambda: {"function_pre_hook": profiler.pre_hook, "function_post_hook": profiler.post_hook}  # noqa: E731
    for _ in range(3):
        with profiler.scope("forward"):
            loss.forward(**hooks())
        with profiler.scope("backward") as same:
            loss.backward(**hooks())
        assert same is profiler
        profiler.calc_elapsed_time(["forward", "backward", "summary"])
    loss.forward(**hooks())  # Calls outside of a scope are not counted.
    profiler.calc_elapsed_time()
    found = profiler.get_all_results()
    assert [f.info.type_name for f in found["forward"]] == KINDS
    assert [f.info.type_name for f in found["backward"]] == KINDS[::-1]
    assert all(len(times) == 3 and min(times) > 0 for scope in found.values() for times in scope.values())
    assert found["summary"]["forward"][1] > sum(times[1] for times in found["forward"].values())
    profiler()
    assert "### backward ###\nMean: " in capsys.readouterr().out
    profiler.to_csv(tmp_path / "out")
    with (tmp_path / "out/profile_summary.csv").open() as file:
        assert [(row["scope"], row["num"]) for row in csv.DictReader(file)] == [("forward", "2"), ("backward", "2")]
    with (tmp_path / "out/profile_detail.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["scope"] for row in rows] == [f"{kind}_0" for kind in KINDS]
    mean = np.mean(next(iter(found["forward"].values()))[1:]) * 1e3
    assert float(rows[0]["time_forward"]) == pytest.approx(mean)


def test_times_leave_out_hooks_and_runs_without_them(loss):
    """Measured times exclude pauses in hooks and runs without the profiler's hooks."""
    profiler = TimeProfiler()

    def slow(hook):
        """Wraps a hook with pauses, which must not count."""

        def call(f):
            """Calls the hook with a pause before and after it."""
            time.sleep(0.005)
            hook(f)
            time.sleep(0.005)

        return call

    with profiler.scope("forward"):
        loss.forward()
        loss.forward(function_pre_hook=slow(profiler.pre_hook), function_post_hook=slow(profiler.post_hook))
        with profiler.scope("backward"):
            loss.backward(function_pre_hook=profiler.pre_hook, function_post_hook=profiler.post_hook)
        loss.forward(function_pre_hook=profiler.pre_hook, function_post_hook=profiler.post_hook)
        profiler.call_pre_hook("forward", "a part")
        time.sleep(0.005)
        profiler.call_post_hook("forward", "a part")
    profiler.calc_elapsed_time()
    found = profiler.get_all_results()
    part = found["forward"].pop("a part")[0]
    assert [f.info.type_name for f in found["forward"]] == KINDS
    assert [f.info.type_name for f in found["backward"]] == KINDS[::-1]
    spent = sum(times[0] for times in found["forward"].values())
    slept = len(KINDS) * 0.02
    assert part >= 0.005
    assert found["summary"]["forward"][0] - spent > slept + part


def test_only_one_profile_is_taken_at_a_time(loss):
    profiler = TimeProfiler()
    with nn.profile(), pytest.raises(TypeError, match="no other profile"), profiler.scope("forward"):
        pass
    with profiler.scope("forward"):
        loss.forward(function_pre_hook=profiler.pre_hook, function_post_hook=profiler.post_hook)
    profiler.calc_elapsed_time()
    assert list(map(len, profiler.get_all_results()["forward"].values())) == [1] * len(KINDS)


def test_the_first_function_with_nan_is_found():
    x = nn.Variable.from_numpy_array(np.array([-1.0, 0, 1], np.float32), need_grad=True)
    y = F.log(x) * 2
    tracer = NanInfTracer()
    with (
        pytest.raises(NanInfError, match=r"forward: .* got nan and inf in output 0 of Log .*\[\(3,\)\]"),
        tracer.trace(),
    ):
        y.forward(function_post_hook=tracer.forward_post_hook)
    tracer.check()  # An error that was raised is not raised again.
    only = NanInfTracer(trace_nan=False, need_details=False)
    with pytest.raises(ValueError, match="got inf in output 0 of Log"), only.trace():
        y.forward(function_post_hook=only.post_hook)
    x.d = [0, 1, 2]
    root = F.sum(x**0.5)
    with tracer.trace():
        root.forward(function_post_hook=tracer.forward_post_hook)
    with pytest.raises(NanInfError, match=r"backward: .* the gradient of input 0 of PowScalar"), tracer.trace():
        root.backward(function_post_hook=tracer.backward_post_hook)
    finite = F.sum(x * 2)
    with NanInfTracer().trace():
        finite.forward(function_post_hook=tracer.forward_post_hook)
        finite.backward(function_post_hook=tracer.backward_post_hook)


def test_a_profile_of_a_graph(loss, capsys):
    """`GraphProfiler` measures each function, and its writers print the results."""
    solver = S.Sgd()
    solver.set_parameters(nn.get_parameters())
    before = nn.get_parameters()["f/affine/b"].d.copy()
    profiler = GraphProfiler(loss, device_id="0", ext_name="cpu", solver=solver, n_run=3, time_scale="u")
    with pytest.raises(nn.ArgumentError, match="that has run"):
        GraphProfilerCsvWriter(profiler).write()
    profiler.run()
    result = profiler.get_result()
    for side in ("forward", "backward"):
        assert [stat.function_name for stat in result[side]] == KINDS
        assert [stat.parameter_scope for stat in result[side]] == ["c1/conv", "c1/bn", None, "f/affine", None, None]
        assert all(stat.n_run == 3 and float(stat.mean_time) > 0 for stat in result[side])
        assert float(result[f"{side}_all"]) > 0
    assert result["n_run_training"] == 3
    assert not np.array_equal(nn.get_parameters()["f/affine/b"].d, before)
    profiler.print_result()
    assert "all forward: " in capsys.readouterr().out
    file = io.StringIO()
    GraphProfilerCsvWriter(profiler, file).write()
    rows = list(csv.reader(io.StringIO(file.getvalue())))
    assert rows[3] == ["time scale", "u"]
    at = next(i for i, row in enumerate(rows) if row[:1] == ["parameter_scope"])
    assert rows[at + 6][:4] == ["", "Mean", "[(2, 4)]", "axes: [0, 1], keep_dims: False"]
    assert [row[0] for row in rows if len(row) == 2][-2:] == ["training(forward + backward + update)", "training_n_run"]


def test_times_of_a_profiled_graph_come_from_the_engine(loss, monkeypatch):
    profiler = GraphProfiler(loss, n_run=4, time_scale="n")
    profiler.time_profiling_forward()
    profiler.time_profiling_backward()

    def told():  # Replaces the engine's records: functions, backward flag, nanoseconds since start and end, memory.
        """Replaces the engine's records: functions, backward flag, nanoseconds since start and end, memory."""
        return [([f], False, 900 + 100 * n, 800, 0) for n, f in enumerate(profiler._functions)]

    monkeypatch.setattr(nn._core, "take_timings", told)
    profiler.time_profiling_forward()
    assert [float(stat.mean_time) for stat in profiler.result["forward"]] == [100, 200, 300, 400, 500, 600]
    short = GraphProfiler(loss, n_run=4, max_measure_execution_time=450e-9)
    short.time_profiling_forward()
    assert [stat.n_run for stat in short.result["forward"]] == [4, 3, 2, 2, 1, 1]
    monkeypatch.undo()
    with nn.profile() as p, pytest.raises(nn.CallError, match="expected no other profile"):
        profiler.run()
    added = GraphProfiler(loss, n_run=1, backward_accum=True)
    added.run()
    assert [stat.function_name for stat in added.result["backward"]] == KINDS
    assert p.seconds > 0


def test_unprofilable_objects_are_refused():
    """`GraphProfiler` refuses leaves and unknown units, and skips backward without gradients."""
    with pytest.raises(TypeError, match="GraphProfiler: expected a variable that a function computes"):
        GraphProfiler(nn.Variable((2,)), "0", "cpu")
    with pytest.raises(nn.ArgumentError, match="got 's'"):
        convert_time_scale(1, "s")
    constant = GraphProfiler(F.sum(nn.Variable((2,))), "0", "cpu", n_run=1)
    constant.run()
    assert constant.get_result()["backward"] == []
    assert "backward_all" not in constant.get_result()


def test_watched_python_functions(capsys):
    """The decorator `profile` prints the profile of a Python function every few calls."""

    @profile(print_freq=2, condition=lambda n: n > 0)
    def total(n):
        """Returns the sum of the numbers below n."""
        return sum(range(n))

    assert [total(n) for n in (3, 0, 4)] == [3, 0, 6]
    out = capsys.readouterr().out
    assert "total: 2 calls" in out
    assert "cumtime" in out
    assert isinstance(total.profiler, FunctionProfile)
    assert total.__name__ == "total"
    total.profiler.print_stats()
    assert ": 0 calls" in capsys.readouterr().out

    @profile
    def fails():
        """A function that raises."""
        raise KeyError("x")

    with pytest.raises(KeyError):
        fails()
    assert not FunctionProfile.profiling
    fails.profiler.reset_stats()

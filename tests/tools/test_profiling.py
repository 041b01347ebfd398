"""Profiles: measured spans, source lines, costs computed from shapes, and written files."""

import copy
import json
import re
import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor import _core, autodiff
from kinnor.profiling.record import costs
from kinnor.utils.data_iterator import data_iterator_simple


def of(profile, phase):
    """Returns the rows of one phase by name."""
    return {row.name: row for row in profile.rows() if row.phase == phase}


def step(y, solver):
    """Runs a training step."""
    solver.zero_grad()
    y.forward()
    y.backward()
    solver.update()


def test_times_add_up_to_the_block():
    """The rows of a profile count each call, and their times sum to the block."""
    y = F.mean(F.relu(PF.affine(nn.Variable((8, 3)), 4)))
    solver = S.Sgd(0.1)
    solver.set_parameters(nn.get_parameters())
    data = data_iterator_simple(lambda i: (np.float32(i),), 4, 2)
    with nn.profile(alone=True) as p:
        for _ in range(3):
            data.next()
            step(y, solver)
    data.close()
    assert {name: row.calls for name, row in of(p, "forward").items()} == {"Affine": 3, "ReLU": 3, "Mean": 3}
    assert {name: row.calls for name, row in of(p, "backward").items()} == {"Affine": 3, "ReLU": 3, "Mean": 3}
    assert {name: row.calls for name, row in of(p, "update").items()} == {"Sgd.zero_grad": 3, "Sgd.update": 3}
    assert [row.calls for row in of(p, "data").values()] == [3]
    assert all(row.seconds >= 0 for row in p.rows())
    assert sum(r.seconds for r in p.rows() if r.thread == threading.current_thread().name) == pytest.approx(p.seconds)
    assert of(p, "forward")["Affine"].peak > 0


def test_a_row_names_the_line_that_built_a_function_or_made_a_call():
    x = nn.Variable((2, 3), need_grad=True)
    before = F.tanh(x)
    with nn.profile() as p:
        inside = F.exp(before)
        total = x + inside
        total.forward()
    sites = {row.name: row.site for row in p.rows() if row.phase == "forward"}
    first = test_a_row_names_the_line_that_built_a_function_or_made_a_call.__code__.co_firstlineno
    lines = {name: int(re.search(r":(\d+), in", site)[1]) - first for name, site in sites.items()}
    assert lines == {"Exp": 4, "Add2": 5, "Tanh": 6}
    assert all(__file__ in site or "test_profiling" in site for site in sites.values())
    assert any(row.site == sites["Exp"] and row.calls == 2 for row in p.rows("line"))


def test_lines_that_built_functions_before_the_block():
    """Rows name source lines recorded before, or say how to record them."""
    note = "build the graph in the block or within autodiff.detect_anomaly()"
    x = nn.Variable((2, 3), need_grad=True)
    with autodiff.detect_anomaly():
        y = F.sum(PF.affine(F.tanh(x), 4))
    with nn.profile() as p:
        y.forward()
        y.backward()
    first = test_lines_that_built_functions_before_the_block.__code__.co_firstlineno
    sites = {row.site for row in p.rows() if row.phase in ("forward", "backward")}
    assert {int(re.search(r"test_profiling.py:(\d+), in", site)[1]) - first for site in sites} == {5}
    assert note not in repr(p)
    other = F.exp(y)
    with nn.profile() as p:
        other.forward()
    assert note in repr(p) and note in p.table("line") and note in p._repr_html_() and note in p.html()
    assert note not in p.table("name")
    lines = {row.name: int(row.site.rpartition(":")[2].split(",")[0]) - first for row in p.rows() if row.site}
    assert lines["Exp"] == 15 and lines["Tanh"] == 5


def test_fused_functions_are_one_row():
    """A fused pass is one row of the profile, named after its functions."""
    y = F.sum(F.tanh(F.exp(F.sin(nn.Variable((64, 65), need_grad=True)))))
    for _ in range(3):  # from the second run on, functions of a graph are fused
        y.forward(clear_no_need_grad=True)
        y.backward(clear_buffer=True)
    before = nn.plan_report(y, instructions=True)
    with nn.profile() as p:
        for _ in range(2):
            y.forward(clear_no_need_grad=True)
            y.backward(clear_buffer=True)
    forward, backward = of(p, "forward"), of(p, "backward")
    assert {name: row.calls for name, row in forward.items()} == {"Sin + Exp + Tanh": 2, "Sum": 2}
    assert sum(row.calls * len(row.name.split(" + ")) for row in backward.values()) == 2 * 4
    row = forward["Sin + Exp + Tanh"]
    assert row.flop == 2 * 3 * 64 * 65 and row.shapes == "(64, 65) -> (64, 65)"
    assert nn.plan_report(y, instructions=True) == before
    with nn.profile(alone=True) as p:
        y.forward()
    assert sorted(of(p, "forward")) == ["Exp", "Sin", "Sum", "Tanh"]


def test_the_peak_of_a_function_includes_memory_freed_since():
    x = nn.Variable((1 << 18,), need_grad=True)
    small = F.sum(x)
    y = F.sum(F.flip(F.tile(x, 8)))  # `flip` cannot overwrite its input
    with nn.profile() as p:
        small.forward()
        y.forward(clear_buffer=True)
        small.forward()
    rows = of(p, "forward")
    assert rows["Flip"].peak - rows["Sum"].peak >= 0 and rows["Flip"].peak >= 2 * 8 * 4 << 18
    assert min(r.peak for r in p.rows() if r.name == "Sum" and r.shapes.startswith("(262144,)")) < 8 * 4 << 18


def test_functions_that_run_as_they_are_built_are_forward():
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32), need_grad=True)
    with nn.auto_forward(), nn.profile() as p:
        F.sum(F.tanh(x)).backward()
        F.exp(x.data)
    assert {"Tanh", "Sum", "exp"} <= set(of(p, "forward"))
    assert {"Tanh", "Sum"} == set(of(p, "backward"))


@pytest.mark.parametrize(
    ("build", "flop"),
    [
        (lambda x: PF.affine(x, 7), 2 * 4 * 7 * 2 * 6 * 6),
        (lambda x: PF.convolution(x, 5, (3, 3)), 2 * 4 * 5 * 4 * 4 * 2 * 9),
        (lambda x: PF.convolution(x, 4, (3, 3), group=2), 2 * 4 * 4 * 4 * 4 * 9),
        (lambda x: F.batch_matmul(x, x, transpose_a=True), 2 * 4 * 2 * 6 * 6 * 6),
        (F.relu, 4 * 2 * 36),
        (lambda x: F.reshape(x, (8, 36)), 0),
    ],
)
def test_operations_follow_from_shapes(build, flop):
    """The counted floating-point operations and bytes of a function follow from its shapes."""
    x = nn.Variable((4, 2, 6, 6), need_grad=True)
    forward, backward = costs(build(x).parent)
    assert forward.flop == flop
    factors = 1 if build is F.relu or not flop else 2
    assert backward.flop == factors * flop
    assert backward.bytes > forward.bytes


def test_a_trace_has_complete_events_that_nest(tmp_path):
    y = F.mean(F.relu(nn.Variable((8, 3), need_grad=True)))
    with nn.profile() as p:
        y.forward()
        y.backward()
    p.save(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "C"}
    whole = [e for e in events if e["ph"] == "X"]
    assert all(e["ts"] >= 0 and e["dur"] >= 0 and {"name", "cat", "pid", "tid", "args"} <= set(e) for e in whole)
    run = next(e for e in whole if e["name"] == "forward")
    within = [e["name"] for e in whole if run["ts"] <= e["ts"] and e["ts"] + e["dur"] <= run["ts"] + run["dur"]]
    assert within == ["forward", "ReLU", "Mean"]


FIELDS = {"X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
          "C": {"name", "ph", "ts", "pid", "tid", "args"},
          "M": {"name", "ph", "pid", "tid", "args"}}  # fmt: skip
"""The fields of each kind of event in a trace."""


def ns(microseconds):
    """Converts microseconds to whole nanoseconds, as viewers do."""
    assert isinstance(microseconds, (int, float)) and not isinstance(microseconds, bool) and microseconds >= 0
    return round(microseconds * 1000)


def check_trace(trace):
    """Asserts valid Chrome trace events: fields, types, thread names, and nested spans within a thread."""
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    opened, last = {}, {}
    for event in events:
        assert event.keys() == FIELDS[event["ph"]] and isinstance(event["name"], str) and event["name"]
        assert all(isinstance(event[key], int) and event[key] > 0 for key in ("pid", "tid"))
        if event["ph"] == "M":
            assert event["name"] in ("thread_name", "process_name") and isinstance(event["args"]["name"], str)
        elif event["ph"] == "C":
            assert event["args"] and all(isinstance(value, (int, float)) for value in event["args"].values())
            ns(event["ts"])
        else:
            start, tid = ns(event["ts"]), event["tid"]
            end = start + ns(event["dur"])
            assert start >= last.get(tid, 0), "expected the spans of a thread in the order in which they began"
            around = [until for until in opened.get(tid, []) if until > start]
            assert all(end <= until for until in around), "expected spans of a thread to nest or to follow each other"
            opened[tid], last[tid] = [*around, end], start
    named = [event["tid"] for event in events if event["name"] == "thread_name"]
    assert len(named) == len(set(named)) and {event["tid"] for event in events} == set(named)
    assert [event["name"] for event in events].count("process_name") == 1 and len({e["pid"] for e in events}) == 1


def test_a_trace_keeps_to_the_format(tmp_path):
    """The exported trace has the fields that trace viewers require."""
    y = F.mean(F.relu(PF.affine(nn.Variable((8, 3)), 4)))
    solver = S.Sgd(0.1)
    solver.set_parameters(nn.get_parameters())
    data = data_iterator_simple(lambda i: (np.float32(i),), 4, 2)

    def run():
        """Runs a small graph several times."""
        for _ in range(5):
            z = F.sum(F.tanh(nn.Variable((5, 5), need_grad=True)))
            z.forward()
            z.backward()

    with nn.profile() as p:
        other = threading.Thread(target=run, name='a "thread"')
        other.start()
        for _ in range(5):
            data.next()
            step(y, solver)
            y.forward(clear_no_need_grad=True)
            y.backward(clear_buffer=True)
        with nn.auto_forward():
            F.sum(F.exp(nn.Variable((4, 4), need_grad=True))).backward()
        other.join()
    data.close()
    p.save(tmp_path / "t.json")
    trace = json.loads((tmp_path / "t.json").read_text("utf-8"))
    check_trace(trace)
    assert {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"} >= {'a "thread"'}
    spans = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    n = next(n for n, e in enumerate(spans) if e["cat"] == "run")
    span, within = spans[n : n + 2]
    half = within["ts"] + within["dur"] / 2 - span["ts"]
    broken = [{"dur": half}, {"ts": -1.0}, {"tid": 0}, {"pid": "1"}, {"name": ""}, {"extra": 1}]
    for change in broken:
        wrong = [event | change if event is span else event for event in trace["traceEvents"]]
        with pytest.raises(AssertionError):
            check_trace(trace | {"traceEvents": wrong})


def test_nothing_begins_before_the_call_that_ran_it(monkeypatch):
    """Spans stay nested if the clock of records is late."""
    y = F.relu(nn.Variable((2, 2)))
    own = _core.take_timings

    def late():  # delays the records by a second, as if the thread had waited during the query
        return [(functions, *rest[:1], began + 10**9, ended, peak) for functions, *rest, began, ended, peak in own()]

    monkeypatch.setattr(_core, "take_timings", late)
    with nn.profile() as p:
        y.forward()
    check_trace(p.trace())


def test_a_page_holds_the_times_and_loads_nothing(tmp_path):
    y = F.mean(F.relu(nn.Variable((8, 3), need_grad=True)))
    with nn.profile() as p:
        y.forward()
    p.save(tmp_path / "t.html")
    page = (tmp_path / "t.html").read_text()
    assert not re.findall(r"https?://|src=|@import", page) and page.count("</script>") == 2
    content = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)[1])
    (thread,) = content["tree"]["of"]
    (run,) = thread["of"]
    assert sorted(n["name"] for n in run["of"]) == ["Mean", "ReLU"]
    assert run["ns"] >= sum(n["ns"] for n in run["of"])
    p.save(tmp_path / "t.csv")
    assert (
        (tmp_path / "t.csv")
        .read_text()
        .startswith("thread,phase,name,layer,site,shapes,calls,seconds,flop,bytes,peak\n")
    )
    with pytest.raises(nn.ArgumentError, match=r"expected a path that ends in .json, .html or .csv, got 't.txt'"):
        p.save("t.txt")
    with pytest.raises(nn.ArgumentError, match="expected `by` to be one of"):
        p.rows("colour")
    assert "ReLU" in p._repr_html_() and "ReLU" in repr(p) and "ms in all" in p.table("name")


class Net(nn.Module):
    """A layer, two layers in a list, and a scope of its own around a parametric function."""

    def __init__(self):
        self.hidden, self.blocks = L.Linear(3, 4), [L.Linear(4, 4), L.Linear(4, 4)]

    def call(self, x):
        h = F.relu(self.hidden(x))
        for block in self.blocks:
            h = F.tanh(block(h))
        with nn.parameter_scope("end"):
            return F.mean(PF.affine(h, 2))


LAYERS = {
    "Affine": {"Net/hidden", "Net/blocks.0", "Net/blocks.1", "Net/end/affine"},
    "ReLU": {"Net"},
    "Tanh": {"Net"},
    "Mean": {"Net/end"},
}
"""The layers of the functions of `Net`."""


@pytest.mark.parametrize("built", ["before", "within", "dynamic", "copied"])
def test_rows_name_the_layers(built):
    """Rows name the layer of each function, whenever the graph was built."""
    net, x = Net(), nn.Variable((2, 3))
    if built == "copied":
        net = copy.deepcopy(net)
    x.d = 1
    before = net(x) if built == "before" else None
    with nn.profile(alone=True) as p, nn.auto_forward(built == "dynamic"):
        for _ in range(2):
            y = net(x) if before is None else before
            if built != "dynamic":
                y.forward()
                y.backward()
    del net  # Its layers were looked up when the runs ended.
    for phase in ["forward"] if built == "dynamic" else ["forward", "backward"]:
        found = {}
        for row in p.rows():
            if row.phase == phase:
                found.setdefault(row.name, set()).add(row.layer)
        assert found == LAYERS
    calls = {row.layer: row.calls for row in p.rows("layer") if row.phase == "forward"}
    assert calls == {"Net": 6, "Net/hidden": 2, "Net/blocks.0": 2, "Net/blocks.1": 2, "Net/end/affine": 2, "Net/end": 2}
    assert " layer " in repr(p).splitlines()[0] and "Net/blocks.1" in p.table("layer") and "Net/hidden" in p.html()


def test_fused_functions_have_the_layer_of_the_first():
    """The layer of a fused pass is the layer of its first function."""
    with nn.parameter_scope("first"):
        scale = PF.get_parameter_or_create("scale", (4, 3))
    y = F.sum(F.tanh(F.exp(F.sin(scale))))
    for _ in range(3):  # from the second run on, functions of a graph are fused
        y.forward(clear_no_need_grad=True)
    with nn.profile() as p:
        y.forward(clear_no_need_grad=True)
    fused = next(row for row in p.rows() if row.phase == "forward" and " + " in row.name)
    assert (fused.name, fused.layer) == ("Sin + Exp + Tanh", "first")


def test_functions_without_parameters_have_no_column_of_layers():
    y = F.relu(nn.Variable((2, 3), need_grad=True))
    with nn.profile() as p:
        y.forward()
    assert " layer " not in repr(p) and {row.layer for row in p.rows()} == {""}


def test_threads_have_rows_of_their_own():
    """Functions that run on another thread have rows with its name."""

    def run():
        """Runs one function."""
        F.relu(nn.Variable((2, 2))).forward()

    with nn.profile() as p:
        other = threading.Thread(target=run, name="other")
        other.start()
        other.join()
    assert {(r.thread, r.phase) for r in p.rows() if r.name == "ReLU" and r.phase != "build"} == {("other", "forward")}
    assert "other" in {row.thread for row in p.rows("thread")}


def test_nothing_stays_behind_even_after_an_error():
    """After the block, all wrapped methods are restored."""
    owners = (nn.Variable, _core.Solver, _core, F, _core.functions)
    before = [dict(vars(owner)) for owner in owners]
    y = F.relu(nn.Variable((2, 2)))

    def stop(f):
        """A hook that raises."""
        raise StopIteration

    with pytest.raises(KeyError), nn.profile() as p:
        with pytest.raises(StopIteration):
            y.forward(function_pre_hook=stop)
        y.forward()
        with pytest.raises(nn.Error, match="expected no other profile"), nn.profile():
            pass
        raise KeyError
    n = len(p.rows())
    y.forward()
    assert len(p.rows()) == n and [row.calls for row in of(p, "forward").values()] == [1]
    assert [dict(vars(owner)) for owner in owners] == before


def test_a_function_is_not_confused_with_a_freed_one():
    x = nn.Variable((2,), need_grad=True)
    with nn.profile() as p:
        for i in range(40):
            y = (F.tanh, F.sin, F.exp)[i % 3](x)
            (g,) = nn.grad([y], [x])  # has no source line, and reuses addresses of freed functions
            g.forward()
            del y, g
    calls = {row.name: row.calls for row in p.rows("name") if row.phase == "forward"}
    assert (calls["Tanh"], calls["Cos"], calls["Exp"]) == (14, 13, 13)

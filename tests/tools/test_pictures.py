"""Pictures of graphs: contents, output formats, and errors."""

import json
import re
import stat

import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor.pictures import dot
from kinnor.pictures.graph import collect

SCRIPT = re.compile(r'<script id="data" type="application/json">(.*?)</script>', re.DOTALL)
"""The data in the page of a picture."""


@pytest.fixture
def network():
    """Returns the output of a small network with scopes."""
    nn.clear_parameters()
    h = nn.Variable((8, 3, 12, 12))
    with nn.parameter_scope("first"):
        h = F.relu(PF.convolution(h, 4, (3, 3)))
    with nn.parameter_scope("branch"):
        h = h + PF.convolution(h, 4, (3, 3), pad=(1, 1))
    with nn.parameter_scope("last"):
        y = PF.affine(h, 10)
    yield y
    nn.clear_parameters()


def content(picture):
    """Returns the data in the page of a picture."""
    return json.loads(SCRIPT.search(picture.html())[1])


def test_functions_are_listed_after_their_inputs_by_scope(network):
    graph = collect(network)
    assert [node.kind for node in graph.nodes] == ["Input", "Convolution", "ReLU", "Convolution", "Add2", "Affine"]
    assert [node.inputs for node in graph.nodes] == [[], [0], [1], [2], [2, 3], [4]]
    assert [node.scope for node in graph.nodes] == [(), ("first",), ("first",), ("branch",), (), ("last",)]
    assert graph.nodes[1].parameters == ["first/conv/W (4, 3, 3, 3)", "first/conv/b (4,)"]
    assert graph.nodes[1].weights == 4 * (4 * 27 + 4) and graph.nodes[5].gives == ["(8, 10)"]
    assert graph.nodes[2].memory == 4 * 8 * 4 * 10 * 10 and graph.outputs == [5]


def test_modules_are_scopes():
    """The drawn scope of a function is the path of its module."""
    import kinnor.layers as L

    class Net(nn.Module):
        """One layer, and two in a list."""

        def __init__(self):
            self.first, self.rest = L.Linear(3, 4), [L.Linear(4, 4), L.Linear(4, 2)]

        def call(self, x):
            return F.mean(self.rest[1](self.rest[0](F.relu(self.first(x)))))

    net = Net()
    nodes = nn.show(net(nn.Variable((2, 3)))).graph.nodes
    assert [(node.kind, "/".join((*node.scope, node.label))) for node in nodes if node.kind != "Input"] == [
        ("Affine", "Net/first"), ("ReLU", "Net/"), ("Affine", "Net/rest.0"), ("Affine", "Net/rest.1"),
        ("Mean", "Net/"),
    ]  # fmt: skip
    assert [node.parameters for node in nodes if node.kind == "Affine"][1][0].startswith("Net/rest.0/W")


def test_parameters_may_be_given_by_name(network):
    """The scope of a function follows from the given names of its parameters."""
    own = {f"net/{path}": v for path, v in nn.get_parameters().items()}
    assert [node.scope for node in collect(network, own).nodes][1:3] == [("net", "first"), ("net", "first")]


def test_a_page_holds_the_graph_and_loads_nothing(network, tmp_path):
    path = tmp_path / "graph.html"
    picture = nn.show(network, path, title="a <b> & </script>")
    page = path.read_text("utf-8")
    assert page == picture.html()
    assert set(re.findall(r"https?://[^\s\"']+", page)) <= {"http://www.w3.org/2000/svg"}
    assert page.count("</script>") == 2 and "__" not in re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    found = content(picture)
    assert len(found["nodes"]) == 6 and found["title"] == "a <b> & </script>" and found["outputs"] == [5]


def test_times_are_in_the_picture(network):
    """`show` with `times` stores the time of each function in the page."""
    times = {}
    network.visit(lambda f: times.setdefault(f, 0.25 if f.name == "Affine" else 0.0))
    assert [n[-1] for n in content(nn.show(network, times=times))["nodes"]] == [0, 0, 0, 0, 0, 250_000]


def test_a_terminal_gets_a_table_and_a_notebook_a_page(network, monkeypatch):
    monkeypatch.setattr(dot, "is_there", lambda: False)
    picture = nn.show(network)
    lines = repr(picture).splitlines()
    assert lines[0].split() == ["#", "function", "scope", "gives", "memory", "parameters"] and len(lines) == 8
    assert lines[-1].startswith("5 functions: 2 Convolution")
    bundle = picture._repr_mimebundle_()
    assert bundle["text/plain"] == repr(picture) and bundle["text/html"].startswith("<iframe")


def test_graphviz_draws_small_graphs(network, tmp_path, monkeypatch):
    """With `dot`, `show` writes an SVG, and a failure of `dot` is an error."""
    program = tmp_path / "dot"
    program.write_text('#!/bin/sh\necho "<svg>"; cat; echo "</svg>"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    picture = nn.show(network, tmp_path / "graph.svg")
    text = (tmp_path / "graph.svg").read_text()
    assert text.startswith("<svg>") and text.count("->") == 6 and text.count("subgraph") == 3
    assert picture.format == "svg" and "image/svg+xml" in picture._repr_mimebundle_()
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(OSError, match="show: expected `dot` to draw the graph"):
        picture.svg()


def test_a_long_chain_is_walked_without_recursion():
    y = nn.Variable((2,))
    for _ in range(5_000):
        y = y + 1.0
    picture = nn.show(y)
    assert len(picture.graph.nodes) == 5_001 and picture.format == "html"
    assert repr(picture).splitlines()[-2] == "... and 4,941 more"


def test_two_roots_share_a_trunk(network):
    """A graph of several outputs lists shared functions once."""
    graph = collect([F.sum(network), F.exp(network)])
    assert [node.kind for node in graph.nodes][-2:] == ["Sum", "Exp"] and graph.outputs == [6, 7]


def test_objects_without_a_graph_are_refused(network, tmp_path, monkeypatch):
    """`show` refuses leaves, other objects and other file types."""
    with pytest.raises(TypeError, match="show: expected a Variable"):
        nn.show(3)
    with pytest.raises(nn.GraphError, match="show: expected a variable that a function computes"):
        nn.show(nn.Variable((2,)))
    with pytest.raises(ValueError, match=r"ends in \.svg or \.html"):
        nn.show(network, tmp_path / "graph.png")
    monkeypatch.setattr(dot, "is_there", lambda: False)
    with pytest.raises(nn.UnsupportedError, match="graphviz"):
        nn.show(network, tmp_path / "graph.svg")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_is_a_picture_beside_its_text(tmp_path):
    x = nn.Variable((256, 256), need_grad=True)
    loss = F.mean(F.tanh(F.tanh(x)))
    report = nn.plan_report(loss)
    assert repr(report) == str(report) and report.count("\n") > 3
    assert isinstance(report, str) and report.splitlines()[1].split()[:2] == ["1", "Tanh"]
    report.save(tmp_path / "plan.html")
    page = (tmp_path / "plan.html").read_text("utf-8")
    assert page.count("<g>") == 3 and "2 Tanh: 256.00 KiB kept" in page and "<line" not in page
    assert not re.findall(r"https?://|<script|src=", page) and 'class="plan"' in report._repr_html_()
    assert "<line" in nn.plan_report(loss, 2**22)._repr_html_()
    with pytest.raises(nn.ArgumentError, match=r"plan_report: expected a path that ends in .html, got 'plan.png'"):
        report.save("plan.png")


def test_the_picture_of_a_plan_shows_the_backward_run_of_a_profile():
    x = nn.Variable((256, 256), need_grad=True)
    loss = F.mean(F.tanh(F.affine(x, nn.Variable((256, 256), need_grad=True))))
    with nn.profile(alone=True) as p:
        for _ in range(2):
            loss.forward(clear_no_need_grad=True)
            loss.backward(clear_buffer=True)
    report = nn.plan_report(loss, profile=p)
    page = report._repr_html_()
    measured = re.findall(r"<title>\d+ (\w+) (forward|backward): ", page)
    order = ["Affine", "Tanh", "Mean"]
    assert measured == [(name, "forward") for name in order] + [(name, "backward") for name in order[::-1]]
    assert [moment.phase for moment in p.memory()] == (["forward"] * 3 + ["backward"] * 3) * 2
    last = p.memory()[6:]
    worst = max(last, key=lambda moment: moment.peak)
    expected = f"{worst.peak / 2**20:.2f} MiB at most as it ran, in {worst.name} {worst.phase}"
    assert expected in report.splitlines() and page.count("<svg") == 2
    heights = re.findall(r'<rect class="(?:live|backward)" [^>]*height="([\d.]+)"', page)[-6:]
    assert [float(height) for height in heights] == pytest.approx([100 * m.peak / worst.peak for m in last], abs=1e-3)
    assert page.count("<line") == 0 and nn.plan_report(loss, 2**22, profile=p)._repr_html_().count("<line") == 2
    with nn.profile() as nothing:
        pass
    with pytest.raises(nn.ArgumentError, match="got one without functions"):
        nn.plan_report(loss, profile=nothing)
    with pytest.raises(nn.CallError, match="expected `profile` to be a Profile, got str"):
        nn.plan_report(loss, profile="p")

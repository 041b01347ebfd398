"""Type checkers accept typed programs that use the package, and report their mistakes. Editors complete its names."""

import ast
import inspect
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import get_args

import jedi
import pytest
import typed_program

from kinnor.training import losses

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def check(path, cache):
    """Runs mypy in its strict mode on a file. Returns its exit status and its output."""
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(cache), str(path)]
    done = subprocess.run(
        mypy,
        env={**os.environ, "MYPYPATH": f"{ROOT / 'python'}{os.pathsep}{HERE}"},
        capture_output=True,
        text=True,
        cwd=path.parent,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_program_with_annotations_is_accepted(tmp_path):
    status, said = check(HERE / "typed_program.py", tmp_path)
    assert status == 0, said


def found_by_pyright(text, folder):
    """Returns the errors of pyright in its strict mode."""
    program = folder / "program.py"
    program.write_text(text)
    settings = {
        "typeCheckingMode": "strict",
        "extraPaths": [str(ROOT / "python"), str(HERE)],
        "include": ["program.py"],
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "-p", str(folder), "--outputjson"]
    env = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # It asks no server for newer versions.
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
    found = json.loads(done.stdout)
    assert found["summary"]["filesAnalyzed"] == 1
    return [each for each in found["generalDiagnostics"] if each["severity"] == "error"]


if find_spec("pyright") and shutil.which("node"):  # Node.js is not installed with the package.

    def test_a_program_with_annotations_is_accepted_by_pyright(tmp_path):
        assert found_by_pyright((HERE / "typed_program.py").read_text(), tmp_path) == []

    def test_mistakes_are_reported_by_pyright(tmp_path):
        errors = found_by_pyright(HEAD + "\n".join(MISTAKES) + "\n", tmp_path)
        found = {each["range"]["start"]["line"] - HEAD.count("\n") for each in errors}
        assert found == set(range(len(MISTAKES)))


def test_the_program_runs(tmp_path, capsys):
    typed_program.main(tmp_path)
    assert "Adam.update" in capsys.readouterr().out


MISTAKES = {
    "nn.Variabel((1,))": 'Module has no attribute "Variabel"; maybe "Variable"',
    "S.Adam(lr=1e-3)": 'Unexpected keyword argument "lr" for "Adam"',
    "S.Adam().learning_rate(3)": 'Too many arguments for "learning_rate"',
    'F.relu("x")': 'Value of type variable "T" of "relu" cannot be "str"',
    "nn.load_parameters('x').matchd": '"Loaded" has no attribute "matchd"',
    "L.Linear('3', 2)": 'Argument 1 to "Linear" has incompatible type "str"',
    "L.Linear(3, 2)('x')": 'Argument 1 has incompatible type "str"; expected "Variable"',
    "L.LSTM(3, 2)(nn.Variable((1, 2, 3)), 5)": 'Argument 2 has incompatible type "int"; expected "tuple[Variable, ',
    "L.Conv2d(3, 2, 3)(nn.Variable((1, 3, 8, 8))).nothing": '"Variable" has no attribute "nothing"',
    "Net(8)('x')": 'Argument 1 to "__call__" of "Module" has incompatible type "str"; expected "Variable"',
    "Net(8)(nn.Variable((1, 3))).nothing": '"Variable" has no attribute "nothing"',
    "nn.fit(print, [], 'crossentropy')": 'Argument 3 to "fit" has incompatible type "Literal[\'crossentropy\']"',
    "nn.fit(print, [], 'mse', metrics=['acc'])": "List item 0 has incompatible type \"Literal['acc']\"",
}
"""Lines with a mistake, and the message of the type checker for each."""


HEAD = """\
import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
import kinnor.layers as L
from typed_program import Net
"""
"""The first lines of short programs."""


def test_mistakes_are_reported(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(HEAD + "\n".join(MISTAKES) + "\n")
    status, said = check(program, tmp_path)
    assert status == 1
    for line, told in enumerate(MISTAKES.values(), HEAD.count("\n") + 1):
        assert f"program.py:{line}: error: {told}" in said


@pytest.mark.parametrize("name", ["Adam", "Lion", "SolverState", "Solver"])
def test_the_stub_of_solvers_has_their_docstrings(name):
    import kinnor.solvers as S

    first = getattr(S, name).__doc__.splitlines()[0]
    assert first in (ROOT / "python/kinnor/solvers.pyi").read_text()


def test_names_of_losses_and_metrics_are_those_of_the_types():
    assert get_args(losses.LossName) == tuple(losses.LOSSES)
    assert get_args(losses.MetricName) == tuple(losses.METRICS)


def script(program):
    """Returns a program as an editor sees it."""
    project = jedi.Project(HERE, added_sys_path=[str(ROOT / "python")], environment_path=sys.prefix)
    return jedi.Script(HEAD + program, project=project)


@pytest.mark.parametrize(
    ("program", "names"),
    [
        ("solver = S.Adam()\nsolver.", {"set_parameters", "update", "zero_grad", "add_group", "weight_decay"}),
        ("S.", {"Adam", "AdamW", "Sgd", "Momentum"}),
        ("x = nn.Variable((2, 3))\nx.", {"d", "g", "forward", "backward", "reshape", "need_grad"}),
        ("F.relu(nn.Variable((2,))).", {"d", "backward"}),
        ("layer = L.Linear(3, 2)\nlayer.", {"W", "b", "parameters", "eval", "save_parameters"}),
        ("L.Linear(3, 2)(nn.Variable((1, 3))).", {"d", "backward"}),
        ("L.LSTM(3, 2)(nn.Variable((1, 2, 3)))[0].", {"d", "backward"}),
        ("Net(8)(nn.Variable((1, 3))).", {"d", "backward"}),
        ("nn.", {"Module", "fit", "profile", "load", "functions"}),
        ("nn.fit(print, []).", {"series"}),
        ("nn.load('net.nnp').", {"inputs", "get_parameters", "save"}),
    ],
)
def test_editors_complete_names(program, names):
    assert names <= {each.name for each in script(program).complete()}


@pytest.mark.parametrize(
    ("program", "signature"),
    [
        ("S.Adam(", "Adam(alpha: float=0.001, beta1: float=0.9, beta2: float=0.999, eps: float=1e-08)"),
        ("solver = S.Adam()\nsolver.set_learning_rate(", "set_learning_rate(learning_rate: float) -> None"),
        ("F.softmax(", "softmax(x: T, axis: int | None=None, "),
        ("L.Linear(", "Linear(in_features: int, out_features: int, bias: bool=True, "),
        ("layer = L.Linear(3, 2)\nlayer(", "Linear(x: Variable) -> Variable"),
        ("L.MultiHeadAttention(4, 2)(", "MultiHeadAttention(query: Variable, key: Variable | None=None, "),
        ("nn.fit(", "fit(model: Module | Callable[..., Any], data: Any, loss: "),
    ],
)
def test_editors_show_signatures(program, signature):
    (found,) = script(program).get_signatures()
    assert found.to_string().startswith(signature)


def test_all_layers_show_the_arguments_of_a_call():
    for path in (ROOT / "python/kinnor/layers").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any(getattr(part, "name", "") == "call" for part in node.body):
                assert "__call__ = call" in ast.unparse(node), node.name


def documented(stub, owner, path=""):
    """Yields the names in a stub that have a docstring there, with it and with the first paragraph of the real one."""
    for node in stub.body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found = getattr(owner, node.name)
            if text := ast.get_docstring(node):
                yield path + node.name, text.split(), (inspect.getdoc(found) or "").split("\n\n")[0].split()
            if isinstance(node, ast.ClassDef):
                yield from documented(node, found, f"{path}{node.name}.")


def test_the_stub_of_the_core_has_its_docstrings():
    from kinnor import _core

    stub = ast.parse((ROOT / "python/kinnor/_core.pyi").read_text())
    found = list(documented(stub, _core))
    assert len(found) > 250
    assert [(name, text) for name, text, expected in found if text != expected] == []

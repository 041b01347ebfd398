"""Type checkers accept typed programs that use the package, and report their mistakes."""

import ast
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typed_program

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def check(path, cache):
    """Runs mypy in its strict mode on a file. Returns its exit status and its output."""
    mypy = [sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull, "--cache-dir", str(cache), str(path)]
    done = subprocess.run(
        mypy, env={**os.environ, "MYPYPATH": str(ROOT / "python")}, capture_output=True, text=True, cwd=path.parent
    )
    return done.returncode, done.stdout + done.stderr


def test_a_program_with_annotations_is_accepted(tmp_path):
    status, said = check(HERE / "typed_program.py", tmp_path)
    assert status == 0, said


def test_the_program_runs(tmp_path, capsys):
    typed_program.main(tmp_path)
    assert "Adam.update" in capsys.readouterr().out


MISTAKES = {
    "nn.Variabel((1,))": 'Module has no attribute "Variabel"; maybe "Variable"',
    "S.Adam(lr=1e-3)": 'Unexpected keyword argument "lr" for "Adam"',
    "S.Adam().learning_rate(3)": 'Too many arguments for "learning_rate"',
    'F.relu("x")': 'Value of type variable "T" of "relu" cannot be "str"',
    "nn.load_parameters('x').matchd": '"Loaded" has no attribute "matchd"',
}
"""Lines with a mistake, and the message of the type checker for each."""


def test_mistakes_are_reported(tmp_path):
    program = tmp_path / "program.py"
    head = "import kinnor as nn\nimport kinnor.functions as F\nimport kinnor.solvers as S\n"
    program.write_text(head + "\n".join(MISTAKES) + "\n")
    status, said = check(program, tmp_path)
    assert status == 1
    for line, told in enumerate(MISTAKES.values(), 4):
        assert f"program.py:{line}: error: {told}" in said


@pytest.mark.parametrize("name", ["Adam", "Lion", "SolverState", "Solver"])
def test_the_stub_of_solvers_has_their_docstrings(name):
    import kinnor.solvers as S

    first = getattr(S, name).__doc__.splitlines()[0]
    assert first in (ROOT / "python/kinnor/solvers.pyi").read_text()


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

"""Every registered operation has rows in the table, the signature that it declares, and full documentation."""

import inspect
import re

import pytest
from support import TABLE

import kinnor as nn
import kinnor.functions as F
from kinnor import _core

DECLARED = _core.declarations()
"""The declarations of all operations: name, type, inputs, arguments and docstring."""
each = pytest.mark.parametrize("declared", DECLARED, ids=[d[0] for d in DECLARED])
"""Runs a test for each declared operation."""

GIVEN_BY_LISTS = {"sink"}
"""Operations without meaningful outputs. `test_sink_runs_its_branches` tests them."""


@each
def test_has_rows(declared):
    """Each declared function has rows in the table of operations, which give all its arguments and inputs."""
    name, _, inputs, args, _ = declared
    assert name in TABLE or name in GIVEN_BY_LISTS, f"{name}: add a row to tests/operations/cases/"
    if name in TABLE:
        used = set().union(*(row.args for row in TABLE[name]))
        missing = {a[0] for a in args} - used - {"inplace"}
        assert not missing, f"{name}: no row in tests/operations/cases/ gives {missing}"
        optional = [i for i, (_, kind) in enumerate(inputs) if kind == "optional"]
        given = {i for row in TABLE[name] for i, x in enumerate(row.inputs) if x is not None}
        assert set(optional) <= given, f"{name}: a row must give every optional input"


def test_rows_are_of_functions():
    """Every row of the table of operations names a public function."""
    assert set(TABLE) <= set(F.__all__)


@each
def test_signatures_match_declarations(declared):
    """The Python signature of each operation has its declared inputs, arguments and defaults."""
    name, _, inputs, args, _ = declared
    parameters = dict(inspect.signature(getattr(_core.functions, name)).parameters)
    for common in ("n_outputs", "outputs"):
        assert common in parameters
    own = [p for p in parameters if p not in ("n_outputs", "outputs") or p in {a[0] for a in args}]
    assert own == [i[0] for i in inputs] + [a[0] for a in args]
    for given, kind in inputs:
        p = parameters[given]
        assert (p.kind is p.VAR_POSITIONAL) == (kind == "list")
        assert (p.default is None) == (kind == "optional")
    for given, _, _, default in args:
        if default is not None:
            shown, stated = parameters[given].default, eval(default)
            assert (tuple(shown) if isinstance(shown, list) else shown) == stated
            assert type(stated) is tuple or type(shown) is type(stated)
    assert getattr(_core.functions, name).__name__ == name


@each
def test_documentation_is_whole(declared):
    """Each docstring has a summary sentence, `Returns`, and an entry for every argument."""
    name, _, inputs, args, doc = declared
    summary, *_ = doc.split("\n\n")
    assert summary.endswith((".", "`", ".:")), f"{name}: the first sentence must end"
    assert "\nReturns:\n" in doc, name
    documented = doc.split("\nArgs:\n")[1].split("\n\n")[0] if "\nArgs:\n" in doc else ""
    named = re.findall(r"^    (\w+): \S", documented, re.M)
    assert named == [i[0] for i in inputs] + [a[0] for a in args], name
    assert inspect.getdoc(getattr(_core.functions, name)).startswith(summary)


def test_argument_names_of_info():
    """`info.args` holds the given arguments and the defaults."""
    x = nn.Variable((2, 3))
    assert F.sum(x, 1).parent.info.args == {"axes": [1], "keep_dims": False}
    for _, type_name, inputs, args, _ in DECLARED:
        assert re.fullmatch(r"[A-Z]\w*", type_name)
        assert len({n for n, *_ in inputs} | {a[0] for a in args}) == len(inputs) + len(args)
        assert len({a[1] for a in args}) == len(args)


def test_sink_runs_its_branches():
    """`sink` runs its inputs forward and backward, with or without initial gradients of one."""
    x = nn.Variable.from_numpy_array([1.0, 2.0], need_grad=True)
    a, b = x * 2, x * 3
    end = F.sink(a, b)
    x.grad.zero()
    end.forward()
    end.backward()
    assert x.g.tolist() == [5.0, 5.0]
    a.g, b.g = 10.0, 1.0
    kept = F.sink(a, b, one_input_grad=False)
    x.grad.zero()
    kept.forward()
    kept.backward()
    assert x.g.tolist() == [23.0, 23.0]

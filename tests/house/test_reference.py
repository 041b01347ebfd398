"""The reference of the site: every public name is on a page, and every function has a description."""

import importlib.util
import sys
from pathlib import Path
from xml.etree import ElementTree

import griffe
import numpy as np
import pytest
from support import TABLE, call

import kinnor as nn
import kinnor.functions as F
from kinnor import _core

ROOT = Path(__file__).parents[2]


def site(name, monkeypatch):
    """Imports a module of `tools/site` anew."""
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/site/{name}.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # dataclasses look up their module there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def reference(monkeypatch):
    """Returns the module that lists the pages."""
    return site("reference", monkeypatch)


def test_every_public_name_is_on_a_page(reference):
    assert reference.missing() == []
    assert len(reference.public()) > 700


def test_missing_names_are_found(reference):
    """A public name that no page of the reference lists is reported."""
    del reference.SUBJECTS["Solvers"], reference.FAMILIES["Signals"]
    missing = set(reference.missing())
    assert {"solvers.Adam", "learning_rate_scheduler.StepScheduler", "functions.stft"} <= missing
    assert not {"monitor.Monitor", "functions.relu"} & missing


def test_each_name_is_shown_once_and_exists(reference):
    names = [name for page in reference.pages() for name in page.names]
    assert len(names) == len(set(names))
    assert all(reference.at(name) is not None for name in names)
    assert {name.removeprefix("functions.") for name in names if name.startswith("functions.")} == set(F.__all__)


def test_aliases_are_shown_under_the_name_of_the_object(reference):
    """Aliases such as `Affine` are listed under the main name."""
    (layers,) = (page for page in reference.pages() if page.title == "Layers")
    names = [name.removeprefix("layers.") for name in layers.names]
    assert {"Linear", "Swish", "MultiHeadAttention"} <= set(names)
    assert not {"Affine", "SiLU", "MultiheadAttention"} & set(names)
    assert [reference.aliases(f"layers.{name}") for name in ("Linear", "Swish", "ReLU")] == [["Affine"], ["SiLU"], []]
    assert names == sorted(names, key=str.lower)


def test_pages_have_names_of_their_own(reference):
    """No two pages of the reference have the same path, and no page is empty."""
    paths = [page.path for page in reference.pages()]
    assert len(paths) == len(set(paths))
    assert all(page.names for page in reference.pages())


@pytest.fixture(scope="module")
def documented():
    """Returns the package as the site reads it, and the module that completes it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools/site")
        import docstrings

        extensions = griffe.load_extensions(ROOT / "tools/site/docstrings.py")
        yield griffe.load("kinnor", search_paths=[ROOT / "python"], extensions=extensions), docstrings
        for name in ("docstrings", "facts", "reference", "words"):
            patch.delitem(sys.modules, name)


def test_every_public_member_is_on_the_page_of_its_class(documented):
    package, docstrings = documented
    assert docstrings.lost(package) == []
    members = docstrings.reference.members_of_classes()
    assert sum(map(len, members.values())) > 500
    assert {"update", "zero_grad", "set_parameters", "get_states"} <= members["solvers.Solver"].keys()
    assert {"forward", "backward", "d", "g"} <= members["Variable"].keys()


def test_docstrings_of_the_core_have_sections(documented):
    """The docstrings of the core are parsed into lists of arguments and errors."""
    package, _ = documented
    for path in ("solvers.Solver.update", "Variable.backward", "NdArray.cast"):
        kinds = [section.kind.value for section in package[path].docstring.parsed]
        assert kinds[:2] == ["text", "parameters"], path


def test_missing_members_are_found(documented):
    """A method that the documented class lacks is reported."""
    package, docstrings = documented
    solver = package["solvers.Solver"]
    taken = solver.members.pop("update")
    assert docstrings.lost(package) == ["solvers.Solver.update"]
    solver.members["update"] = taken


def test_solvers_lead_to_their_methods(documented):
    """The page of each solver links to the base class with the methods."""
    package, _ = documented
    assert "[`Solver`][kinnor.solvers.Solver]" in package["solvers.Adam"].docstring.value


DECLARED = {name: (inputs, args) for name, _, inputs, args, _ in _core.declarations()}


def test_formulas_match_computed_gradients(monkeypatch):
    """Gradient formulas on the site equal computed gradients."""
    facts = site("facts", monkeypatch)
    assert facts.ELEMENTWISE.keys() | facts.FACTS.keys() <= set(F.__all__)
    for name, formulas in facts.ELEMENTWISE.items():
        compared = sum(compare(row, (formulas,) if isinstance(formulas, str) else formulas) for row in TABLE[name])
        assert compared > 0, name


def test_every_function_has_a_gradient_and_a_cost(monkeypatch, reference):
    facts = site("facts", monkeypatch)
    for page in reference.pages()[: len(reference.FAMILIES)]:
        for name in (path.rpartition(".")[2] for path in page.names):
            inputs = [given for given, _ in DECLARED.get(name, ([], []))[0]]
            assert facts.gradient(name, inputs).endswith("."), f"{name}: expected a line on its gradient"
            assert facts.cost(name, page.title).endswith("."), f"{name}: expected a line on its cost"
    assert set(F.__all__) >= facts.CONSTANT
    assert not facts.CONSTANT & facts.ELEMENTWISE.keys()
    assert not any(facts.FACTS.get(name, ("",))[0] for name in facts.CONSTANT | facts.ELEMENTWISE.keys())


def test_documented_zero_gradients_are_zero(monkeypatch):
    """Functions listed with a zero gradient have one."""
    for name in site("facts", monkeypatch).CONSTANT & TABLE.keys():
        for row in TABLE[name]:
            kinds = [kind for _, kind in DECLARED[name][0]]
            with nn.auto_forward():
                xs = [
                    None if x is None else nn.Variable.from_numpy_array(x, need_grad=kind == "float")
                    for x, kind in zip(row.inputs, kinds, strict=False)
                ]
                call(row, xs)[0].backward()
            assert not any(np.any(x.g) for x in xs if x is not None and x.need_grad), name


def value(formula, known):
    """Evaluates a documented formula, such as `gy * a where a = 1 - y`. `known` holds the values of inputs and
    arguments.
    """
    first, *bound = formula.split(" where ")
    for each in reversed(bound):
        name, _, expression = each.partition(" = ")
        known = known | {name: eval(expression, known)}
    return eval(first, known)


def compare(row, formulas):
    """Compares the gradients of a row with their formulas. Returns the number of elements compared."""
    inputs, args = DECLARED[row.name]
    known = {name: eval(default) for name, _, _, default in args if default is not None} | row.args
    with nn.context_scope(nn.Context(["cpu:double"])), nn.auto_forward():
        xs = [nn.Variable.from_numpy_array(x, need_grad=i in row.wanted) for i, x in enumerate(row.inputs)]
        y = getattr(F, row.name)(*xs, **row.args)
        gy = np.random.RandomState(0).normal(size=y.shape)
        y.backward(nn.NdArray.from_numpy_array(gy))
    known |= {given: x for (given, _), x in zip(inputs, row.inputs, strict=True)} | {"y": y.d, "gy": gy, "np": np}
    compared = 0
    for i, formula in enumerate(formulas):
        if i in row.wanted:
            expected = np.broadcast_to(value(formula, known), y.shape)
            shape = row.inputs[i].shape
            expected = expected.sum(axis=tuple(range(y.ndim - len(shape))))
            axes = tuple(a for a, n in enumerate(shape) if n == 1 != expected.shape[a])
            np.testing.assert_allclose(
                xs[i].g, expected.sum(axis=axes, keepdims=True), rtol=1e-5, atol=1e-7, err_msg=row.name
            )
            compared += expected.size
    return compared


def test_pictures_are_well_formed_and_of_functions(monkeypatch):
    """The drawn pictures are valid SVG, and belong to existing functions."""
    drawn = site("pictures", monkeypatch).all_pictures()
    assert {"relu", "convolution", "max_pooling"} <= drawn.keys() <= set(F.__all__)
    for text in drawn.values():
        assert ElementTree.fromstring(text).get("viewBox")
        assert "nan" not in text

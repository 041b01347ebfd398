"""Every function, layer, parametric function and solver has an example, and shows the values that it computes."""

import doctest
import inspect

import pytest

import kinnor.functions as F
import kinnor.layers as L
import kinnor.parametric_functions as PF
import kinnor.solvers as S

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NAMES = [(module, name) for module in (F, L, PF, S) for name in module.__all__]
"""All public functions and classes whose docstrings have examples, as pairs of module and name."""


def examples(documented):
    """Returns the examples in the docstring of an object."""
    return doctest.DocTestParser().get_examples(inspect.getdoc(documented) or "")


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[f"{module.__name__}.{name}" for module, name in NAMES])
def test_has_an_example_that_runs(module, name):
    """Each public function has a docstring example that uses it and prints the shown value."""
    documented = getattr(module, name)
    found = examples(documented)
    assert found, f"{name}: add an example to its docstring"
    names = {name, documented.__name__}  # of an alias and of its target
    text = "".join(example.source + example.want for example in found)
    assert any(each in text for each in names), f"{name}: the example does not use it"
    assert any(example.want for example in found), f"{name}: the example shows no value"
    report = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(doctest.DocTest(found, {}, name, None, None, inspect.getdoc(documented)), out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_examples_are_copied_whole():
    """An example imports all that it uses, and shows no line of a fence."""
    for module, name in NAMES:
        text = inspect.getdoc(getattr(module, name))
        assert "```" not in text, name
        first = examples(getattr(module, name))[0].source
        assert first.startswith(("import ", "from ")), f"{name}: expected imports in the first line, got {first!r}"

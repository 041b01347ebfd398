"""A griffe extension: adds docstrings of the core, which its stub lacks, and headings for examples."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).parent))
import facts
import reference

MADE = {"solvers": "solvers.py"}
"""Modules whose classes are created at import, and their files."""

BY_NEW = ("autodiff.graph.GradientEdge", "nnp.tracing.ProtoVariable")
"""Other classes without an `__init__` that takes their arguments."""


class Docstrings(griffe.Extension):
    """Completes the docstrings that were read from the files of the package."""

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Runs when all files have been read."""
        if pkg.name != "kinnor":
            return
        stub = Path(str(pkg.filepath)).parent / "functions.pyi"
        functions = griffe.visit("functions", filepath=stub, code=stub.read_text(), parent=pkg)
        overloaded(functions, pkg["functions"])
        overloaded(pkg["_core"], pkg["_core"])
        core = importlib.import_module("kinnor._core")
        fill(pkg["_core"], core)
        for name, file in MADE.items():
            inspected = griffe.inspect(name, filepath=Path(str(pkg.filepath)).parent / file, parent=pkg)
            for each in importlib.import_module(f"kinnor.{name}").__all__:
                if each not in pkg[name].members:
                    pkg[name].set_member(each, inspected[each])
        walk(pkg)
        for name in (*(f"solvers.{name}" for name in importlib.import_module("kinnor.solvers").__all__), *BY_NEW):
            module, _, last = name.rpartition(".")
            constructed(pkg[name], getattr(importlib.import_module(f"kinnor.{module}"), last))
        inputs = {name: [given for given, _ in taken] for name, _, taken, _, _ in core.declarations()}
        for page in reference.pages()[: len(reference.FAMILIES)]:
            for name in (path.rpartition(".")[2] for path in page.names):
                function = pkg["functions"][name]
                parts = [
                    ("Gradient", facts.gradient(name, inputs.get(name, []))),
                    ("Cost", facts.cost(name, page.title)),
                ]
                text = "".join(f"\n\n{title}:\n    {said}" for title, said in parts if said)
                if text and function.docstring:
                    function.docstring = griffe.Docstring(function.docstring.value + text, parent=function)


def overloaded(stub: griffe.Module | griffe.Class, into: griffe.Module | griffe.Class) -> None:
    """Turns functions that a stub lists as overloads only into functions. The last overload is the widest."""
    for name, forms in stub.overloads.items():
        if forms and name not in into.members:
            function = forms[-1]
            function.docstring = next((form.docstring for form in forms if form.docstring), None)
            function.overloads = forms
            into.set_member(name, function)
    for member in list(stub.members.values()):
        if isinstance(member, griffe.Class):
            overloaded(member, member)


def constructed(shown: griffe.Class, real: type) -> None:
    """Gives a class the arguments of its constructor."""
    arguments = [
        griffe.Parameter(
            name,
            annotation=None if given.annotation is given.empty else str(given.annotation),
            kind=griffe.ParameterKind(given.kind.description),
            default=None if given.default is given.empty else repr(given.default),
        )
        for name, given in inspect.signature(real).parameters.items()
    ]
    shown.set_member("__init__", griffe.Function("__init__", parameters=griffe.Parameters(*arguments)))


def fill(stub: griffe.Object, real: Any) -> None:
    """Copies docstrings from the extension module to the objects of its stub."""
    for name, member in stub.members.items():
        if member.is_alias or not hasattr(real, name):
            continue
        found = inspect.getattr_static(real, name)
        text = inspect.getdoc(found if not callable(found) else getattr(real, name))
        if text and not (member.is_class is False and text == inspect.getdoc(type(found))):
            member.docstring = griffe.Docstring(text, parent=member)
        if member.is_class:
            fill(member, found)


def walk(module: griffe.Object) -> None:
    """Marks the examples in all docstrings below a module."""
    for member in module.members.values():
        if member.is_alias:
            continue
        if member.docstring:
            member.docstring.value = with_examples(member.docstring.value)
        if member.is_module or member.is_class:
            walk(member)
    if module.docstring:
        module.docstring.value = with_examples(module.docstring.value)


def with_examples(text: str) -> str:
    """Adds a heading to the examples of a docstring, which are indented sessions after an empty line."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("    >>> ") and not inside and (not lines or not lines[-1].strip()):
            lines.append("Examples:")
            inside = True
        elif line.strip() and not line.startswith("    "):
            inside = False
        lines.append(line)
    return "\n".join(lines)

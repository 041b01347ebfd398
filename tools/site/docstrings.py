"""A griffe extension: adds docstrings of the core, which its stub lacks, and headings for examples."""

from __future__ import annotations

import copy
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
        for name in ("functions", "_core"):
            stub = Path(str(pkg.filepath)).parent / f"{name}.pyi"
            overloaded(griffe.visit(name, filepath=stub, code=stub.read_text(), parent=pkg), pkg[name])
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
        for name, wanted in reference.members_of_classes().items():
            complete(pkg, name, wanted)
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
                    function.docstring = described(function, function.docstring.value + text)
        if unseen := lost(pkg):
            raise SystemExit(f"tools/site/docstrings.py: expected every member on the page of its class, not {unseen}")


def overloaded(stub: griffe.Module | griffe.Class, into: griffe.Module | griffe.Class) -> None:
    """Turns functions that a stub lists as overloads only into functions. The last overload is the widest."""
    for name, forms in stub.overloads.items():
        if forms and name not in into.members:
            function = forms[-1]
            function.docstring = next((form.docstring for form in forms if form.docstring), None)
            function.overloads = forms
            into.set_member(name, function)
    for name, member in stub.members.items():
        if isinstance(member, griffe.Class) and name in into.members:
            overloaded(member, resolved(into.members[name]))


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
    if shown.docstring:  # sections of a class do not include what its constructor returns
        shown.docstring.value = shown.docstring.value.replace("\nReturns:\n    The solver.", "")


def complete(pkg: griffe.Module, name: str, wanted: dict[str, type]) -> None:
    """Gives a class the documented members that it inherits from classes without a page, and names its base."""
    shown, real = resolved(pkg[name]), reference.at(name)
    for member, owner in wanted.items():
        if member not in shown.members:
            source = resolved(pkg[f"{owner.__module__}.{owner.__name__}".removeprefix("kinnor.")])
            shown.set_member(member, copy.copy(source.members[member]))
        if not shown.members[member].docstring:
            text = inspect.getdoc(getattr(real, member))
            shown.members[member].docstring = described(shown.members[member], text or "")
    listed = {id(reference.at(other)): other for other in reference.members_of_classes()}
    base = next((listed[id(other)] for other in real.__mro__[1:] if id(other) in listed), None)
    if base and shown.docstring:
        text = f"Inherits:\n    The members of [`{base.rpartition('.')[2]}`][kinnor.{base}]."
        shown.docstring = described(shown, f"{shown.docstring.value}\n\n{text}")


def lost(pkg: griffe.Module) -> list[str]:
    """Returns the members that no page shows, because they are not in their class or have no docstring."""
    return [
        f"{name}.{member}"
        for name, wanted in reference.members_of_classes().items()
        for member in wanted
        if not getattr(resolved(pkg[name]).members.get(member), "docstring", None)
    ]


def described(parent: griffe.Object, text: str) -> griffe.Docstring:
    """Returns a docstring that is read like the docstrings of files: see the options in `mkdocs.yml`."""
    options = {"returns_multiple_items": False, "warn_missing_types": False}
    return griffe.Docstring(text, parent=parent, parser="google", parser_options=options)


def resolved(found: griffe.Object | griffe.Alias) -> griffe.Object | griffe.Alias:
    """Returns the object that an alias stands for. Classes of the core are aliases in its stub."""
    try:
        return found.final_target if isinstance(found, griffe.Alias) else found
    except griffe.AliasResolutionError:  # of another package, or of a stub that was read alone
        return found


def fill(stub: griffe.Object, real: Any) -> None:
    """Copies docstrings from the extension module to the objects of its stub."""
    for name, member in stub.members.items():
        member = resolved(member)
        if member.is_alias or name.startswith("_") or not hasattr(real, name):
            continue
        found = inspect.getattr_static(real, name)
        text = inspect.getdoc(found if not callable(found) else getattr(real, name))
        if text and not (member.is_class is False and text == inspect.getdoc(type(found))):
            member.docstring = described(member, text)
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

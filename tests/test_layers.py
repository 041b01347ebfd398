"""Imports point one way: between the parts of the crate, and between the folders of the graph."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each may import from those that stand before it, and from itself.
GRAPH = ["settings", "arena", "handles", "step", "memory", "build", "plan", "run", "autodiff", "report"]
# What each part of the crate may import, beside itself and `error`.
CRATE = {
    "array": set(),
    "kernels": {"array"},
    "ops": {"array", "kernels"},
    "graph": {"array", "kernels", "ops"},
    "solvers": {"array", "kernels", "ops", "graph"},
}


def imports(path, prefix):
    """The paths below `prefix` that the code of a file names, with their lines: `crate::graph::arena` and the like."""
    text = re.sub(r"(?s)\n#\[cfg\(test\)\]\nmod tests \{.*", "", path.read_text())
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        code = line.split("//")[0]
        found += [(number, name) for name in re.findall(rf"\b{prefix}::(\w+)", code)]
        for group in re.findall(rf"\b{prefix}::\{{([^}}]*)", code):
            found += [(number, name) for name in re.findall(r"(?:^|,)\s*(\w+)", group)]
    return found


def files(folder):
    return [path for path in sorted((ROOT / folder).rglob("*.rs")) if path.stem not in {"tests", "testing"}]


def test_parts_of_the_crate_import_downwards():
    broken = []
    for part, allowed in CRATE.items():
        for path in files(f"src/{part}"):
            for line, name in imports(path, "crate"):
                if name in {*CRATE, "python"} - allowed - {part}:
                    broken.append(f"{path.relative_to(ROOT)}:{line}: {part} must not import {name}")
    assert not broken, "\n".join(broken)


def test_folders_of_the_graph_import_downwards():
    broken = []
    for path in files("src/graph"):
        own = path.relative_to(ROOT / "src/graph").parts[0].removesuffix(".rs")
        if own == "mod":
            continue
        assert own in GRAPH, f"{path.relative_to(ROOT)}: expected it in one of the folders {GRAPH}"
        for line, name in imports(path, "crate::graph"):
            if name in GRAPH and GRAPH.index(name) > GRAPH.index(own):
                broken.append(f"{path.relative_to(ROOT)}:{line}: {own} is below {name} and must not import it")
    assert not broken, "\n".join(broken)


def test_the_graph_has_no_files_outside_of_its_layers():
    assert {path.name for path in (ROOT / "src/graph").glob("*.rs")} == {"mod.rs", "report.rs"}


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/add_an_operation.md", "CONTRIBUTING.md"])
def test_pages_name_files_that_exist(page):
    for path in re.findall(r"`((?:src|python|tests|benches|examples|docs|tools)/[\w./]*)`", (ROOT / page).read_text()):
        assert (ROOT / path).exists(), path


def test_the_architecture_page_is_short():
    assert (ROOT / "docs/architecture.md").read_text().count("\n") <= 300


def test_words_of_the_architecture_page_are_types():
    text = (ROOT / "docs/architecture.md").read_text()
    table = text.split("## Words")[1].split("##")[0]
    code = "\n".join(path.read_text() for path in files("src"))
    for name in set(re.findall(r"`([A-Z]\w+)(?:<T>)?`", table)) - {"Arc"}:
        assert re.search(rf"\b(?:struct|enum|trait|type) {name}\b", code), name

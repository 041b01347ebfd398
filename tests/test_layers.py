"""Imports have one direction: between the parts of the crate, and between the folders of the graph."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each part may import from the parts listed before it, and from itself.
GRAPH = ["settings", "arena", "handles", "step", "memory", "build", "plan", "run", "autodiff", "report"]
# Allowed imports of each part of the crate, besides itself.
CRATE = {
    "environment": set(),
    "array": {"environment", "Error", "Result"},
    "kernels": {"array", "environment"},  # for error types that say why a kernel ended; nothing about operations
    "error": {"array", "environment", "kernels"},
    "ops": {"array", "kernels", "error", "Error", "Result"},
    "graph": {"array", "environment", "kernels", "ops", "error", "Error", "Result"},
    "solvers": {"array", "kernels", "ops", "graph", "error", "Error", "Result"},
}
# Families of kernels: each may import from the families listed before it.
KERNELS = [
    *["elementary", "number", "simd", "dual", "variates", "stop", "threads", "scratch", "epilogue", "map", "rounding"],
    *[
        "channels",
        "broadcast",
        "strided",
        "rows",
        "regrid",
        "resample",
        "scan",
        "order",
        "reduce",
        "pooling",
        "random",
        "softmax",
    ],
    *["normalization", "update", "sampling", "spread", "spectrum", "suppression", "gemm", "convolution", "integer"],
    *["triangular", "attention", "recurrent"],
]
# Exceptions: number kernels use registers of numbers, and loops on threads can be stopped.
KERNELS_IN_PAIRS = {("number", "simd"), ("stop", "threads")}
# Re-exports of `kernels`, each with its family.
RE_EXPORTED = {
    **dict.fromkeys(["Float", "Number", "PerFloat"], "number"),
    **dict.fromkeys(["Activation", "Epilogue", "RowFunctions", "Tail"], "epilogue"),
    "Dual": "dual",
}


def imports(path, prefix):
    """Returns the paths below `prefix` that a file names, with line numbers, such as `crate::graph::arena`."""
    text = re.sub(r"(?s)\n#\[cfg\(test\)\]\nmod tests \{.*", "", path.read_text())
    text = re.sub(r"//.*", "", text)
    found = []
    for match in re.finditer(rf"\b{prefix}::(?=(\w+)|(\{{))", text):
        line = text.count("\n", 0, match.start()) + 1
        if match[1]:
            found.append((line, match[1]))
            continue
        depth, name = 0, ""
        for sign in text[match.end() :]:  # a group in braces: its own names, without nested groups
            depth += (sign == "{") - (sign == "}")
            if (sign in "{,}" and depth <= 1) or depth == 0:
                found += [(line, name.strip().split("::")[0])] if name.strip() else []
                name = ""
            elif depth == 1:
                name += sign
            if depth == 0:
                break
    return found


def files(folder):
    """Returns the source files of a folder, without tests."""
    return [path for path in sorted((ROOT / folder).rglob("*.rs")) if path.stem not in {"tests", "testing"}]


def test_parts_of_the_crate_import_downwards():
    broken = []
    for part, allowed in CRATE.items():
        for path in files(f"src/{part}") or [ROOT / f"src/{part}.rs"]:
            for line, name in imports(path, "crate"):
                if name not in allowed | {part}:
                    broken.append(f"{path.relative_to(ROOT)}:{line}: {part} must not import {name}")
    assert not broken, "\n".join(broken)


def test_families_of_kernels_import_downwards():
    broken = []
    for path in files("src/kernels"):
        within = path.relative_to(ROOT / "src/kernels").parts
        own = within[0].removesuffix(".rs")
        if own == "mod":
            continue
        assert own in KERNELS, f"{path.relative_to(ROOT)}: expected one of the families {KERNELS}"
        found = imports(path, "crate::kernels") + (imports(path, "super") if len(within) == 1 else [])
        for line, name in found:
            name = RE_EXPORTED.get(name, name)
            is_above = name in KERNELS and KERNELS.index(name) > KERNELS.index(own)
            if is_above and tuple(sorted([own, name])) not in KERNELS_IN_PAIRS:
                broken.append(f"{path.relative_to(ROOT)}:{line}: {own} is below {name} and must not import it")
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


def test_run_code_does_not_name_eviction():
    for folder in ["run", "autodiff"]:
        for path in files(f"src/graph/{folder}"):
            assert "memory::eviction" not in path.read_text(), f"{path.relative_to(ROOT)}: expected `evictor` alone"


def test_the_graph_has_no_files_outside_of_its_layers():
    assert {path.name for path in (ROOT / "src/graph").glob("*.rs")} == {"mod.rs", "report.rs"}


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/add_an_operation.md", "CONTRIBUTING.md"])
def test_pages_name_files_that_exist(page):
    for path in re.findall(r"`((?:src|python|tests|benches|examples|docs|tools)/[\w./]*)`", (ROOT / page).read_text()):
        assert (ROOT / path).exists(), path


def test_the_architecture_page_is_short():
    assert (ROOT / "docs/architecture.md").read_text().count("\n") <= 300


def test_type_names_on_the_architecture_page_exist():
    text = (ROOT / "docs/architecture.md").read_text()
    table = text.split("## Words")[1].split("##")[0]
    code = "\n".join(path.read_text() for path in files("src"))
    for name in set(re.findall(r"`([A-Z]\w+)(?:<T>)?`", table)) - {"Arc"}:
        assert re.search(rf"\b(?:struct|enum|trait|type) {name}\b", code), name


# Types with the same name in two files, with the reason.
SAME_MEANING = {
    "Function": "the engine's, and Python's face of it",
    "Kernels": "a table for each family of kernels",
    "NdArray": "the engine's, and Python's face of it",
    "Notes": "the engine's, and Python's face of it",
    "Shape": "of an array, and NNabla's function that gives it",
    "Solver": "the engine's, and Python's face of it",
    "Variable": "the engine's, and Python's face of it",
}


def types():
    """Returns the names of all types of the crate, operations included, each with the files that declare it."""
    found = {}
    for path in files("src"):
        text = re.sub(r"(?s)\n#\[cfg\(test\)\]\nmod tests \{.*", "", path.read_text())
        text = re.sub(r"//.*", "", text)
        text = re.sub(r"\b(?:pub(?:\([^)]*\))?|unsafe) ", "", text)
        names = re.findall(r"(?m)^[ \t]*(?:struct|enum|trait|union) ([A-Z]\w*)", text)
        names += re.findall(r"(?m)^type ([A-Z]\w*)", text)
        names += re.findall(r"(?m)^    ([A-Z]\w*) = [a-z]\w*\(", text)  # declared by the `op!` macro
        for name in names:
            found.setdefault(name, []).append(str(path.relative_to(ROOT)))
    return found


def test_type_names_are_unique():
    shared = {name: where for name, where in types().items() if len(where) > 1}
    unexplained = {name: where for name, where in shared.items() if name not in SAME_MEANING}
    assert not unexplained, "types that share a name without sharing a meaning: rename them"
    assert set(SAME_MEANING) <= set(shared), "an explanation of what is not there"


PACKAGE = ROOT / "python/kinnor"


def modules():
    """Returns the modules of the package by name."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def loaded(name, path, known):
    """Returns the imports of a module at load time, not in functions or for type checking only."""
    package = name.split(".") if path.stem == "__init__" else name.split(".")[:-1]
    found, todo = set(), list(ast.parse(path.read_text()).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.FunctionDef):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            todo += node.orelse
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= {one if one in known or one == "kinnor._core" else base for one in inner}
        else:
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]
    return found & set(known) - {name}


def test_modules_of_the_package_have_no_import_cycles():
    known = modules()
    left = {name: loaded(name, path, known) for name, path in known.items()}
    assert "kinnor.autodiff" in left["kinnor"], "finds imports"
    while ends := [name for name, imported in left.items() if not imported & set(left)]:
        for name in ends:
            del left[name]
    assert not left, f"modules that import each other, or what does: {sorted(left)}"

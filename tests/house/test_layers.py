"""Imports have one direction: between the parts of the crate, and between the folders of the graph."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each part may import from the parts listed before it, and from itself. A file belongs to the longest part it is in.
GRAPH = [
    *["settings", "arena", "lifetime/rules", "lifetime/liveness", "handles", "step", "lifetime/clear_record"],
    *["budget/eager", "lifetime", "construct", "plan", "budget/static", "run", "autodiff", "report"],
]
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
    *[
        "elementary",
        "number",
        "stored",
        "simd",
        "dual",
        "variates",
        "stop",
        "threads",
        "scratch",
        "amx",
        "scaled",
        "epilogue",
        "map",
        "rounding",
    ],
    "sixteen_bits",
    *[
        "index",
        "channel_sums",
        "broadcast",
        "strided",
        "row_copies",
        "regrid",
        "resample",
        "scan",
        "order",
        "reduce",
        "pooling",
        "random",
        "softmax",
    ],
    *[
        "normalization",
        "update",
        "sampling",
        "broadcast_blocks",
        "spectrum",
        "suppression",
        "gemm",
        "convolution",
        "integer",
    ],
    *["triangular", "attention", "recurrent"],
]
# Exceptions: numbers and stored elements use registers, which are of numbers, and loops on threads can be stopped.
KERNELS_IN_PAIRS = {("number", "simd"), ("simd", "stored"), ("stop", "threads")}
# Re-exports of `kernels`, each with its family.
RE_EXPORTED = {
    **dict.fromkeys(["Float", "Number", "PerFloat"], "number"),
    **dict.fromkeys(["Activation", "Epilogue", "RowFunctions", "Tail"], "epilogue"),
    "Dual": "dual",
}


def use_tree(text, prefix=()):
    """Yields the paths in a `use` declaration, each with the name that it binds."""
    depth, part, parts = 0, "", []
    for sign in text + ",":
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += sign
    for part in filter(None, parts):
        head, brace, inner = part.partition("{")
        if brace:
            names = tuple(name.strip() for name in head.split("::") if name.strip())
            yield from use_tree(inner.rstrip().removesuffix("}"), (*prefix, *names))
            continue
        path, _, name = part.partition(" as ")
        path = (*prefix, *(name.strip() for name in path.split("::")))
        path = path[:-1] if path[-1] == "self" else path
        yield path, name.strip() or "".join(path[-1:])


def paths(path, prefix):
    """Returns the paths below `prefix` that a file names, with line numbers, such as `arena::Ix`."""
    text = re.sub(r"(?s)\n#\[cfg\(test\)\]\nmod tests \{.*", "", path.read_text())
    text = re.sub(r"//.*", "", text)
    found = []
    for match in re.finditer(rf"\b{prefix}::(?=[\w{{])", text):
        line = text.count("\n", 0, match.start()) + 1
        tree = re.match(r"(?:r#)?[\w:#]*", text[match.end() :])[0]
        if text[match.end() + len(tree)] == "{":
            depth, end = 0, match.end() + len(tree)
            while depth or end == match.end() + len(tree):
                depth += (text[end] == "{") - (text[end] == "}")
                end += 1
            tree = text[match.end() : end]
        found += [(line, "::".join(names).replace("r#", "")) for names, _ in use_tree(tree)]
    return found


def imports(path, prefix):
    """As `paths`, but with only the first name of each path."""
    return [(line, found.split("::")[0]) for line, found in paths(path, prefix)]


def files(folder):
    """Returns the source files of a folder, without tests."""
    return [path for path in sorted((ROOT / folder).rglob("*.rs")) if path.stem not in {"tests", "testing"}]


def test_parts_of_the_crate_import_downwards():
    """No part of the crate imports from a part above it."""
    broken = []
    for part, allowed in CRATE.items():
        for path in files(f"src/{part}") or [ROOT / f"src/{part}.rs"]:
            for line, name in imports(path, "crate"):
                if name not in allowed | {part}:
                    broken.append(f"{path.relative_to(ROOT)}:{line}: {part} must not import {name}")
    assert not broken, "\n".join(broken)


def test_families_of_kernels_import_downwards():
    """No family of kernels imports from a family above it."""
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


def part_of_the_graph(place):
    """Returns the part that a file or a path of imports is in, if any."""
    inside = [part for part in GRAPH if f"{place}/".startswith(f"{part}/")]
    return max(inside, key=len, default=None)


def test_folders_of_the_graph_import_downwards():
    """No folder of `src/graph` imports from a folder above it."""
    broken = []
    for path in files("src/graph"):
        place = str(path.relative_to(ROOT / "src/graph").with_suffix(""))
        if path.name == "mod.rs" and place in ("mod", "budget/mod"):
            continue
        own = part_of_the_graph(place)
        assert own, f"{path.relative_to(ROOT)}: expected it in one of {GRAPH}"
        for line, found in paths(path, "crate::graph"):
            name = part_of_the_graph(found.replace("::", "/"))
            if name and GRAPH.index(name) > GRAPH.index(own):
                broken.append(f"{path.relative_to(ROOT)}:{line}: {own} is below {name} and must not import it")
    assert not broken, "\n".join(broken)


def test_the_check_of_layers_sees_nested_imports():
    found = [("::".join(path), name) for path, name in use_tree("a::{b, c::{d, e as f}, self}")]
    assert found == [("a::b", "b"), ("a::c::d", "d"), ("a::c::e", "f"), ("a", "a")]
    found = paths(ROOT / "src/graph/construct/connect.rs", "crate::graph")
    assert any(name.startswith("budget::eager::") for _, name in found)


def test_only_the_arena_indexes_its_slots():
    """Code outside of `src/graph/arena` uses queries, not slots by number."""
    broken = []
    for path in sorted((ROOT / "src/graph").rglob("*.rs")):
        if path.is_relative_to(ROOT / "src/graph/arena"):
            continue
        for n, line in enumerate(path.read_text().splitlines(), 1):
            if re.search(r"\.(functions|variables|tensors)\[", line):
                broken.append(f"{path.relative_to(ROOT)}:{n}: expected a query or a verb of the arena")
    assert not broken, "\n".join(broken)


def test_fields_of_slots_are_private_to_the_arena():
    text = (ROOT / "src/graph/arena/slots.rs").read_text()
    assert "pub(super) parent: Ix" in text, "finds fields"
    assert not re.findall(r"pub\(crate\) \w+:", text)
    for name in ["variables", "tensors", "functions"]:
        assert re.search(rf"(?m)^    {name}: Slab<", (ROOT / "src/graph/arena/mod.rs").read_text()), name


class CrateImports:
    """The imports between the files of a crate. A module is a tuple of names; `()` is the root."""

    def __init__(self, root):
        """Reads the imports of every source file below the folder `root`."""
        self.text, self.paths, self.bound, self.globs = {}, {}, {}, {}
        for path in sorted(root.rglob("*.rs")):
            if path.stem in {"tests", "testing"}:
                continue
            parts = path.relative_to(root).with_suffix("").parts
            module = parts[:-1] if parts[-1] in {"mod", "lib"} else parts
            text = re.sub(r"(?s)\n#\[cfg\(test\)\]\nmod tests \{.*", "", path.read_text())
            text = re.sub(r'"(?:\\.|[^"\\])*"', '""', re.sub(r"//.*", "", text))
            used = [leaf for tree in re.findall(r"\buse ([^;]+);", text) for leaf in use_tree(tree)]
            self.text[module] = text
            self.bound[module] = {name: path for path, name in used if name not in {"*", "_"}}
            self.globs[module] = [path[:-1] for path, _ in used if path[-1] == "*"]
            rest = re.sub(r"\buse [^;]+;", "", text)
            inline = re.findall(r"(?<![\w:$])(\w+(?:::\w+)+)", rest) + re.findall(r"\$(crate(?:::\w+)+)", rest)
            self.paths[module] = [path for path, _ in used] + [tuple(path.split("::")) for path in inline]

    def defines(self, module, name):
        """True if the module defines or imports this name."""
        kinds = "struct|enum|trait|fn|type|const|static|union|macro_rules!"
        return re.search(rf"\b(?:{kinds}) {name}\b", self.text[module]) or name in self.bound[module]

    def resolve(self, module, path, seen=()):
        """Returns the module that defines what a path names, and whether it is that module itself; None for
        other crates."""
        if (module, path) in seen:
            return None
        seen = (*seen, (module, path))
        here, rest = module, list(path)
        if rest[0] == "crate":
            here, rest = (), rest[1:]
        elif rest[0] in {"self", "super"}:
            while rest and rest[0] in {"self", "super"}:
                here = here[:-1] if rest[0] == "super" else here
                rest = rest[1:]
        elif (*here, rest[0]) not in self.text and rest[0] not in self.bound[here]:
            return None
        while rest:
            if (*here, rest[0]) in self.text:
                here, rest = (*here, rest[0]), rest[1:]
                continue
            if to := self.bound[here].get(rest[0]):
                if to[0] not in {"crate", "self", "super"} and (*here, to[0]) not in self.text:
                    return None
                return self.resolve(here, (*to, *rest[1:]), seen)
            for glob in self.globs[here]:
                found = self.resolve(here, glob, seen)
                if found and found[1] and found[0] != here and self.defines(found[0], rest[0]):
                    return self.resolve(found[0], tuple(rest), seen) or (found[0], False)
            return here, False
        return here, True

    def edges(self):
        """Returns for each module the modules whose items it imports, except the modules that contain it."""
        found = {}
        for module, paths in self.paths.items():
            to = set()
            for path in paths:
                is_glob = path[-1] == "*"
                resolved = self.resolve(module, path[:-1] if is_glob else path)
                if resolved and (is_glob or not resolved[1]):
                    to.add(resolved[0])
            found[module] = {other for other in to if other != module[: len(other)]}
        return found


def circles(edges):
    """Returns the groups of nodes that reach each other: the strongly connected components."""
    order, lowest, stack, found = {}, {}, [], []
    for start in edges:
        todo = [] if start in order else [(start, iter(edges[start]))]
        if todo:
            order[start] = lowest[start] = len(order)
            stack.append(start)
        while todo:
            node, others = todo[-1]
            for other in others:
                if other not in order:
                    order[other] = lowest[other] = len(order)
                    stack.append(other)
                    todo.append((other, iter(edges[other])))
                    break
                if other in stack:
                    lowest[node] = min(lowest[node], order[other])
            else:
                todo.pop()
                if todo:
                    lowest[todo[-1][0]] = min(lowest[todo[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    at = stack.index(node)
                    found.append(sorted(stack[at:]))
                    del stack[at:]
    return [group for group in found if len(group) > 1]


def test_circles_are_found():
    """`circles` finds the strongly connected components of more than one node."""
    assert circles({1: [2], 2: [3], 3: [1, 4], 4: [5], 5: [], 6: [6, 5]}) == [[1, 2, 3]]


def test_no_more_than_four_files_of_the_crate_import_each_other():
    edges = CrateImports(ROOT / "src").edges()
    assert ("kernels", "gemm", "tile") in edges["kernels", "gemm", "chunk"], "finds imports"
    assert ("array", "shape") in edges["error",], "finds imports through re-exports"
    large = [["::".join(module) for module in group] for group in circles(edges) if len(group) > 4]
    assert not large, f"files that import each other: {large}"


def test_run_code_does_not_name_eviction():
    """The folders `run` and `autodiff` know evictors by their trait only."""
    for folder in ["run", "autodiff"]:
        for path in files(f"src/graph/{folder}"):
            named = [name for _, name in paths(path, "crate::graph") if name.startswith("budget::eager")]
            others = [name for name in named if not name.startswith("budget::eager::evictor")]
            assert not others, f"{path.relative_to(ROOT)}: expected `evictor` alone, got {others}"


def test_the_graph_has_no_files_outside_of_its_layers():
    assert {path.name for path in (ROOT / "src/graph").glob("*.rs")} == {"mod.rs", "report.rs"}


PAGES = ["CONTRIBUTING.md", *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "docs/maintainers").glob("*.md")))]
"""Pages for maintainers."""


@pytest.mark.parametrize("page", PAGES)
def test_pages_name_files_that_exist(page):
    """Paths on the pages for maintainers exist."""
    for path in re.findall(r"`((?:src|python|tests|benches|examples|docs|tools)/[\w./]*)`", (ROOT / page).read_text()):
        assert (ROOT / path).exists(), path


def test_the_architecture_page_is_short():
    """The architecture page has at most 300 lines."""
    assert (ROOT / "docs/maintainers/architecture.md").read_text().count("\n") <= 300


def test_type_names_on_the_architecture_page_exist():
    text = (ROOT / "docs/maintainers/architecture.md").read_text()
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
    """Types share a name only if a listed reason explains it."""
    shared = {name: where for name, where in types().items() if len(where) > 1}
    unexplained = {name: where for name, where in shared.items() if name not in SAME_MEANING}
    assert not unexplained, "types that share a name without sharing a meaning: rename them"
    assert set(SAME_MEANING) <= set(shared), "an explanation of what is not there"

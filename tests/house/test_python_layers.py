"""Imports of the Python package have one direction. Imports inside of functions count; those for types alone do not."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "python/kinnor"

# Folders and single modules. Each may import from those listed before it, and from itself.
ORDER = [
    # Words and checks
    *["compat.missing", "compat.foreign_names", "_suggest", "_check", "_graph_pool"],
    *["config", "logger", "compat.names"],
    # State of the process
    *["display", "_foreign_attributes", "random", "modes", "context", "placement", "grad_mode", "hooks", "system"],
    # Arrays and functions
    *["dlpack", "initializer", "function", "_python_functions", "functions", "autodiff", "symbolic"],
    # Files and data
    *["files", "datasets", "data"],
    # Training
    *[
        "parameter",
        "_python_functions.graph",
        "parametric_functions",
        "core",
        "layers",
        "parameter_groups",
        "solvers",
        "learning_rate_scheduler",
    ],
    # Networks
    *[
        "nnp",
        "rewrite",
        "model",
        "onnx.read",
        "onnx.run",
        "onnx.write",
        "onnx",
        "distributed",
        "checkpoint",
        "training",
    ],
    # Watching
    *["profiling", "tensorboard", "monitor", "pictures", "report"],
    # Commands, names of other libraries, and the package itself
    *["launch", "cli", "compat", "__init__", "__main__", "compat.nnabla", "compat.onnxruntime"],
]

# Rules that the order does not say: these folders do not import those, which are listed before them.
NEVER = {
    "autodiff": {"symbolic"},
    "files": {"data", "nnp", "parameter"},
    "functions": {"parameter"},
    "onnx.read": {"model"},
    "parameter": {"autodiff", "functions"},
    "rewrite": {"compat", "model", "onnx"},
}


def modules():
    """Returns the modules of the package by name, with `__init__` for the package itself."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


MODULES = modules()
"""Paths of the modules, by name below `kinnor`."""


def for_types(node):
    """True if a statement only runs while types are checked."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def imports(name):
    """Returns the modules of the package that a module imports, also inside of its functions."""
    path, found = MODULES[name], set()
    package = ["kinnor", *([] if name == "__init__" else name.split("."))]
    if path.stem != "__init__":
        package.pop()
    todo = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        todo += node.orelse if for_types(node) else ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            inner = {f"{base}.{alias.name}" for alias in node.names} - {"kinnor._core"}
            found |= {each if each.removeprefix("kinnor.") in MODULES else base for each in inner}
    if "kinnor" in found:
        found.add("kinnor.__init__")
    return {each.removeprefix("kinnor.") for each in found if each.startswith("kinnor.")} & MODULES.keys() - {name}


IMPORTS = {name: imports(name) for name in MODULES}
"""Names of the modules that each module imports."""


def layer(name):
    """Returns the folder or module of `ORDER` that a module belongs to."""
    above = name
    while above not in ORDER:
        above = above.rpartition(".")[0]
        if not above:
            pytest.fail(f"{name} is not in ORDER: put its folder where it may import what it needs")
    return above


def test_imports_are_found():
    """The list of imports includes imports inside functions, and excludes imports for types."""
    assert {"modes", "parameter", "compat.names"} <= IMPORTS["__init__"], "in the module, and in a function"
    assert "files.network_file" in IMPORTS["parameter"], "in a function"
    assert "initializer" not in IMPORTS["parameter"], "for types alone"


def test_order_names_what_exists():
    """The list of layers has no duplicates and names existing modules."""
    assert len(ORDER) == len(set(ORDER))
    assert set(ORDER) <= MODULES.keys()
    assert NEVER.keys() <= set(ORDER)


@pytest.mark.parametrize("name", sorted(MODULES))
def test_imports_go_downwards(name):
    """No module of the package imports from a layer above its own."""
    rank = ORDER.index(layer(name))
    upwards = sorted(each for each in IMPORTS[name] if ORDER.index(layer(each)) > rank)
    assert not upwards, f"{name} is in {layer(name)}, which is below what it imports"


@pytest.mark.parametrize("folder", NEVER)
def test_folders_stay_apart(folder):
    """No module of a folder imports from the folders that `NEVER` lists for it."""
    for name in MODULES:
        if layer(name) == folder:
            assert NEVER[folder].isdisjoint(layer(each) for each in IMPORTS[name]), name


def test_native_code_imports_nothing_of_nnabla():
    """Only the tables of names connect native modules with `compat`."""
    tables = {"compat.names", "compat.missing", "compat.foreign_names"}
    for name, imported in IMPORTS.items():
        if not name.startswith("compat"):
            taken = {each for each in imported if each.startswith("compat")}
            assert taken <= tables, name


def test_no_module_imports_itself_by_others():
    """Modules do not import each other in a cycle."""
    left = dict(IMPORTS)
    while ends := [name for name, imported in left.items() if not imported & left.keys()]:
        for name in ends:
            del left[name]
    assert not left, f"modules that import each other, or import such modules: {sorted(left)}"

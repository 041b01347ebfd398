"""Promises of CONTRIBUTING and README about the source tree, and the cost of importing the package."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import kinnor

ROOT = Path(__file__).parents[2]
MANIFEST = (ROOT / "Cargo.toml").read_text()
"""The text of `Cargo.toml`."""
SOURCES = [path for path in (*ROOT.glob("src/**/*.rs"), *ROOT.glob("python/**/*.py")) if path.stem != "tests"]
"""All source files in Rust and Python, without tests."""


def test_each_dependency_is_justified():
    """CONTRIBUTING mentions every dependency of the crate."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    tables = re.findall(r"^\[[\w.()'-]*dependencies\]\n((?:.+\n)+)", MANIFEST, re.MULTILINE)
    names = re.findall(r"^([\w-]+) =", "".join(tables), re.MULTILINE)
    assert {"half", "libc", "criterion"} <= set(names)
    for name in names:
        assert f"`{name}`" in text, f"{name} is not in CONTRIBUTING.md"


def test_python_is_named_in_one_place_only():
    named = [path for path in ROOT.glob("src/**/*.rs") if re.search(r"\bpyo3\b", path.read_text())]
    assert {path.parent.name for path in named} <= {"python"}


# Numbers of `unsafe` blocks outside of kernels and tests. To add a block, remove another one.
UNSAFE = {"array": 34, "graph": 16, "ops": 19, "python": 12, "solvers": 3}


@pytest.mark.parametrize("part", UNSAFE)
def test_unsafe_blocks_do_not_grow(part):
    """Each part of the crate has the recorded number of `unsafe` blocks."""
    found = 0
    for path in ROOT.glob(f"src/{part}/**/*.rs"):
        if path.stem not in {"tests", "testing"}:
            text = re.sub(r"(?s)\n#\[cfg\(test\)\]\nmod tests \{.*", "", path.read_text())
            found += len(re.findall(r"\bunsafe\s*\{", re.sub(r"//.*", "", text)))
    assert found == UNSAFE[part], f"{part}: expected {UNSAFE[part]} unsafe blocks, got {found}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_module_has_a_documentation_line(path):
    """Every source file begins with a doc comment or docstring."""
    assert path.read_text().startswith(("//! ", '"""')), "expected the first line to say what the module is"


def test_names_in_the_readme_exist():
    """Paths that README mentions exist."""
    for path in re.findall(r"`((?:src|python|tests|benches|examples)/[\w/]*)`", (ROOT / "README.md").read_text()):
        assert (ROOT / path).exists(), path


def test_the_tests_have_the_folders_of_the_sources_and_no_files_that_a_program_left():
    """`tests/` has at most 14 entries."""
    entries = [path.name for path in (ROOT / "tests").iterdir() if path.name != "__pycache__"]
    assert all(re.fullmatch(r"[a-z_]+|(?:conftest|support)\.py", name) for name in entries), sorted(entries)
    assert len(entries) <= 14


def test_versions_agree():
    """The Python package and `Cargo.toml` have the same version."""
    assert f'version = "{kinnor.__version__}"' in MANIFEST


def imported(modules):
    """The names of the modules that an import loads after NumPy. It must print nothing."""
    program = f"import sys, numpy; old = set(sys.modules); import {modules}; print(*sorted(set(sys.modules) - old))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_importing_the_package_loads_few_modules():
    """All others are loaded on first use. Each of them would make the import longer."""
    own = {
        "_check",
        "_core",
        "_foreign_attributes",
        "context",
        "display",
        "modes",
        "parameter",
        "parameter.tree",
        "system",
    }
    assert imported("kinnor") <= {"__future__", "kinnor", *(f"kinnor.{name}" for name in own)}


def test_import_is_silent_and_cheap():
    """Importing the package prints nothing and loads no optional package."""
    modules = imported("kinnor, kinnor.functions, kinnor.parametric_functions, kinnor.solvers")
    loaded = {name.partition(".")[0] for name in modules}
    assert loaded.isdisjoint({"concurrent", "h5py", "logging", "matplotlib", "ml_dtypes", "onnx", "tqdm"})

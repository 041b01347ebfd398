"""Release archives: the source distribution and the crate have every file that a build needs, and no others."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STUBS = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("python/**/*.pyi")} - {"python/kinnor/_core.pyi"}
"""Files that the build makes and that the packages have."""
TRACKED = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
"""Files under version control."""


def run(*command, cwd=ROOT):
    """Runs a command that must succeed. Returns its output."""
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Returns the folder of the unpacked source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    run(Path(sys.executable).with_name("maturin"), "sdist", "--out", folder)
    (packed,) = folder.glob("*.tar.gz")
    assert packed.stat().st_size < 3e6
    with tarfile.open(packed) as files:
        # tarfile has filters since Python 3.11.4
        files.extractall(folder, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return folder / packed.name.removesuffix(".tar.gz")


def test_sources_have_every_file_of_the_build(sources):
    inside = {path.relative_to(sources).as_posix() for path in sources.rglob("*") if path.is_file()}
    needed = {name for name in TRACKED if name.startswith(("src/", "python/")) and (ROOT / name).exists()}
    assert len(needed) > 500
    assert needed <= inside
    assert {"Cargo.toml", "Cargo.lock", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= inside
    assert inside <= {*TRACKED, "PKG-INFO", *STUBS}, "expected nothing that is not under version control"
    assert not [name for name in inside if name.startswith(("tests/", "docs/", ".github/", ".ci/"))]
    assert {name for name in inside if name.startswith("tools/")} == {
        "tools/backend/kinnor_build.py",
        "tools/make-stubs",
    }


def test_cargo_knows_the_package_of_the_sources(sources):
    found = run("cargo", "metadata", "--offline", "--locked", "--no-deps", "--format-version=1", cwd=sources)
    assert '"name":"kinnor"' in found
    wanted = re.search(r'^requires = \["(maturin.*)"\]', (sources / "pyproject.toml").read_text(), re.MULTILINE)
    assert wanted, "expected a build that needs maturin alone"


def test_wheels_get_stubs_from_their_own_extension(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools/backend")
    import kinnor_build

    wheel, record = tmp_path / "kinnor-0.1.0-cp310-abi3-any.whl", "kinnor-0.1.0.dist-info/RECORD"
    names = [name.removeprefix("python/") for name in TRACKED if name.startswith("python/") and name not in STUBS]
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in [*names, "kinnor/_core.abi3.so"]:
            archive.write(ROOT / "python" / name, name)
        archive.writestr(record, "".join(f"{name},,\n" for name in archive.namelist()) + f"{record},,\n")
    kinnor_build.complete(wheel)
    with zipfile.ZipFile(wheel) as archive:
        listed = {line.split(",")[0]: line for line in archive.read(record).decode().splitlines()}
        assert sorted(listed) == sorted(archive.namelist())
        for name in STUBS:
            content = archive.read(name.removeprefix("python/"))
            assert content == (ROOT / name).read_bytes()
            assert listed[name.removeprefix("python/")] == kinnor_build.recorded(name.removeprefix("python/"), content)
    monkeypatch.delitem(sys.modules, "kinnor_build")


def test_the_crate_has_every_file_of_rust():
    listed = set(run("cargo", "package", "--list", "--allow-dirty", "--offline").splitlines())
    rust = {name for name in TRACKED if name.startswith("src/") and (ROOT / name).exists()}
    assert rust | {"Cargo.toml", "Cargo.lock", "README.md", "LICENSE"} <= listed
    assert not [name for name in listed if name.startswith(("python/", "tests/", "docs/"))]


def test_documented_commands_exist():
    """Every `make` target named on a page exists, and CI runs the targets that verify something."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    named = {
        target
        for page in pages
        for target in re.findall(r"(?:`|^    |&& )make ([a-z0-9-]+)", page.read_text(), re.MULTILINE)
    }
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {"demo", "test", "lint", "docs", "wheel", "sdist", "crate"} <= named <= targets
    assert os.access(ROOT / ".ci/run", os.X_OK)
    ran = set(re.findall(r"^make (\w+)", (ROOT / ".ci/run").read_text(), re.MULTILINE))
    assert {"test", "lint", "docs"} <= ran


def test_releases_call_the_same_commands():
    """The workflow of releases calls existing targets of the Makefile."""
    text = (ROOT / ".github/workflows/release.yml").read_text()
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    words = [word for line in re.findall(r"run: make (.*)", text) for word in line.split()]
    called = {word for word in words if re.fullmatch("[a-z-]+", word)}  # the others are variables
    assert called == {"wheel", "sdist", "crate", "free-threaded"}
    assert called <= targets
    assert 'MATURIN_PEP517_ARGS: "--locked"' in text and shutil.which("cargo")


def test_pushes_and_pull_requests_run_the_checks():
    text = (ROOT / ".github/workflows/ci.yml").read_text()
    assert "on: [push, pull_request]" in text
    assert "- run: .ci/run\n" in text

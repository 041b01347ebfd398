"""The site's reference: every public name has its place, and every function a page of its subject."""

import importlib.util
import sys
from pathlib import Path

import pytest

import kinnor.functions as F

ROOT = Path(__file__).parents[1]


@pytest.fixture
def reference(monkeypatch):
    """The module that lists the pages, fresh."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools/site/reference.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "reference", module)  # where a dataclass looks for its module
    spec.loader.exec_module(module)
    return module


def test_every_public_name_is_on_a_page(reference):
    assert reference.missing() == []
    assert len(reference.public()) > 700


def test_what_is_on_no_page_is_found(reference):
    del reference.SUBJECTS["Solvers"], reference.FAMILIES["Signals"]
    missing = set(reference.missing())
    assert {"solvers.Adam", "utils.learning_rate_scheduler.StepScheduler", "functions.stft"} <= missing
    assert not {"monitor.Monitor", "functions.relu"} & missing


def test_each_name_is_shown_once_and_exists(reference):
    names = [name for page in reference.pages() for name in page.names]
    assert len(names) == len(set(names))
    assert all(reference.at(name) is not None for name in names)
    assert {name.removeprefix("functions.") for name in names if name.startswith("functions.")} == set(F.__all__)


def test_pages_have_names_of_their_own(reference):
    paths = [page.path for page in reference.pages()]
    assert len(paths) == len(set(paths))
    assert all(page.names for page in reference.pages())

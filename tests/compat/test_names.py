"""NNabla's paths of modules below `kinnor`: each leads to one module, however it is imported."""

import importlib
import multiprocessing
import pickle
import sys

import pytest

import kinnor
from kinnor.compat import names


@pytest.mark.parametrize("path", names.MODULES)
def test_a_path_leads_to_the_module_of_its_row(path):
    """Importing a path of NNabla returns the native module in the table `MODULES`."""
    module = importlib.import_module(f"kinnor.{path}")
    assert module is importlib.import_module(names.MODULES[path])
    assert module.__name__ == module.__spec__.name == names.MODULES[path]
    parent, _, last = f"kinnor.{path}".rpartition(".")
    assert getattr(sys.modules[parent], last) is module


def test_first_names_of_the_table_are_served():
    """The importer serves exactly the first names of the table."""
    assert {path.partition(".")[0] for path in names.MODULES} == kinnor._Paths.SERVED


def test_modules_below_a_row_are_loaded_once():
    """A module below a path of the table is the same object as by its native path."""
    import kinnor.compat.models.imagenet.resnet as own
    import kinnor.models.imagenet.resnet as by_path

    assert by_path is own


def test_names_are_imported_from_packages():
    """NNabla's module paths can be imported with `from ... import`."""
    from kinnor.experimental.graph_converters import layers
    from kinnor.utils import image_utils, load
    from kinnor.utils.image_utils import imread

    assert load is importlib.import_module("kinnor.compat.utils.load")
    assert layers is importlib.import_module("kinnor.rewrite.patterns")
    assert image_utils.imread is imread


def test_a_patch_by_one_path_is_seen_by_the_others(monkeypatch):
    monkeypatch.setattr("kinnor.utils.load.load", print)
    assert importlib.import_module("kinnor.compat.utils.load").load is print


def test_pickles_of_any_path_are_read():
    """Pickles that name a class by NNabla's module path are loaded."""
    from kinnor.learning_rate_scheduler import CosineScheduler

    assert pickle.loads(b"\x80\x03ckinnor.utils.learning_rate_scheduler\nCosineScheduler\n.") is CosineScheduler
    assert pickle.loads(pickle.dumps(CosineScheduler)) is CosineScheduler


def test_workers_that_are_spawned_find_the_paths():
    by_path = "__import__('kinnor.utils.nnp_format').utils.nnp_format.nnp_version()"
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(eval, (by_path,)) == "0.1"


@pytest.mark.parametrize("path", ["utils.nowhere", "models.nowhere", "onnx.nowhere", "compat.utils.nowhere"])
def test_other_paths_are_not_found(path):
    """Paths that are not in the table raise ModuleNotFoundError."""
    with pytest.raises(ModuleNotFoundError, match=f"kinnor.{path}"):
        importlib.import_module(f"kinnor.{path}")

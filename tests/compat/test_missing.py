"""Missing names of NNabla: errors and the page of differences list exactly the missing ones."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from nnabla_names import names

import kinnor as nn
from kinnor._suggest import INSTEAD, absence, nearest
from kinnor.compat import missing

ROOT = Path(__file__).parents[2]


def test_the_list_is_up_to_date():
    """`tools/make-missing --check` finds the committed list of missing names unchanged."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools/make-missing", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_the_page_names_all_of_it():
    """The page of differences names each missing module and name of NNabla's."""
    page = (ROOT / missing.PAGE).read_text()
    told = set(re.findall(r"`([\w.]+)`", page[page.index("## Missing names") :]))
    assert set(missing.MODULES) <= told
    assert {name for known in missing.NAMES.values() for name in known} <= told


def test_all_listed_names_are_nnablas():
    """Every module listed as missing exists in NNabla."""
    known = names()
    assert len(known) > 100
    assert sum(map(len, known.values())) > 700
    for module, absent in missing.NAMES.items():
        assert absent, module
    assert {f"nnabla.{module}" for module in missing.MODULES} <= set(known)


def test_errors_distinguish_missing_names_from_typing_errors(monkeypatch):
    """The error says if NNabla has the missing name."""
    monkeypatch.setattr(missing, "NAMES", {"functions": ("teleport",), "": ("warp",)})
    monkeypatch.setattr(missing, "MODULES", ("utils.time_machine",))
    told = "has no attribute 'teleport': NNabla has it and Kinnor has not, see docs/differences.md"
    with pytest.raises(AttributeError, match=told):
        _ = nn.functions.teleport
    with pytest.raises(AttributeError, match="no attribute 'warp': NNabla has it"):
        _ = nn.warp
    assert "NNabla has it and Kinnor has not" in absence("nnabla.utils.time_machine")
    assert "NNabla has it and Kinnor has not" in absence("nnabla.utils.time_machine.past")
    assert absence("nnabla.utils.nowhere") == "module 'nnabla.utils' has no attribute 'nowhere'"


def test_errors_name_replacements_of_modules():
    """The error for a missing module names a replacement, if there is one."""
    assert "Kinnor runs on CPUs" in absence("nnabla.utils.nvml")
    cv2 = "nnabla.utils.image_utils.backend_events.cv2_backend.Cv2Backend"
    assert "Pillow and pypng are the backends" in absence(cv2)
    assert set(INSTEAD) <= set(missing.MODULES)


def test_the_nearest_name():
    """`nearest` finds the likely intended name for a misspelt one."""
    assert nearest("batchnormalization", ["batch_normalization", "batch_matmul"]) == "batch_normalization"
    assert nearest("Softmax", ["softmax", "log_softmax"]) == "softmax"
    assert nearest("zzzz", ["softmax"]) is None
    assert nearest("kernel_size", ["x", "kernel", "stride"]) == "kernel"
    assert nearest("_softmax", []) is None

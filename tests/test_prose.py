"""The checker of the project's English finds what it should, and nothing in code."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("prose", ROOT / "tools/prose.py")
prose = importlib.util.module_from_spec(_spec)
sys.modules["prose"] = prose
_spec.loader.exec_module(prose)

LONG = " ".join(["word"] * 26) + "."


def findings(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return prose.report_on(path)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rs", "/// Frees it by hand.\nfn f() {}\n"),
        ("a.rs", "fn f() {\n    // Nobody else has it.\n}\n"),
        ("a.py", 'def f():\n    """What the function keeps."""\n'),
        ("a.py", "x = 1  # given back later\n"),
        ("a.md", "The gradient, that of the input, is zero.\n"),
    ],
)
def test_private_phrases_are_found(tmp_path, name, text):
    report = findings(tmp_path, name, text)
    assert len(report.phrases) >= 1
    assert not report.long and not report.columns


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rs", "/// Frees the block.\nfn f() {}\n"),
        ("a.rs", 'const A: &str = "nobody knows";\n'),
        ("a.py", 'def f():\n    """Return the packed weight.\n\n    >>> at_once = 1\n    """\n'),
        ("a.md", "A sentence.\n\n```python\nx = whoever\n```\n\nSee `that of` and [a page](somebody.md).\n"),
    ],
)
def test_plain_text_and_code_are_not(tmp_path, name, text):
    assert findings(tmp_path, name, text).findings == []


def test_long_sentences_and_lines_are_found(tmp_path):
    report = findings(tmp_path, "a.rs", f"/// {LONG}\n// {'x' * 120}\nfn f() {{}}\n")
    assert len(report.long) == 1 and "26 words" in report.long[0]
    assert len(report.columns) == 2
    assert report.rates()["long sentences"] > prose.LIMITS["long sentences"]


def test_the_exit_status_says_whether_a_limit_is_passed(tmp_path, capsys):
    (tmp_path / "good.md").write_text("A sentence.\n")
    (tmp_path / "bad.md").write_text("Nobody knows.\n")
    assert prose.main([str(tmp_path / "good.md")]) == 0
    assert prose.main(["--list", str(tmp_path / "bad.md")]) == 1
    assert "name the actor" in capsys.readouterr().out


def test_long_commit_subjects_are_listed(tmp_path):
    def git(*arguments):
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "-m", "Fix the gradient of relu")
    git("commit", "--quiet", "--allow-empty", "-m", "x" * 73)
    assert [line.split(" ", 1)[1] for line in prose.subjects(tmp_path)] == ["x" * 73]

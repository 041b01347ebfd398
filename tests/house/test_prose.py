"""The checker of the project's English: findings in comments and pages, none in code, and its limits."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_spec = importlib.util.spec_from_file_location("prose", ROOT / "tools/prose.py")
prose = importlib.util.module_from_spec(_spec)
sys.modules["prose"] = prose
_spec.loader.exec_module(prose)

LONG = " ".join(["word"] * 26) + "."
"""A sentence with one word too many."""


def findings(tmp_path, name, text):
    """Returns the report on a file with this text."""
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
        ("a.py", 'def f():\n    """Return the sum.\n\n    >>> f()\n    room at once\n    """\n'),
        ("a.md", "A sentence.\n\n```python\nx = whoever\n```\n\nSee `that of` and [a page](somebody.md).\n"),
    ],
)
def test_plain_text_and_code_are_not(tmp_path, name, text):
    """Plain sentences and code give no findings."""
    assert findings(tmp_path, name, text).findings == []


def test_long_sentences_and_lines_are_found(tmp_path):
    """The checker reports long sentences and long lines."""
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


@pytest.fixture
def commit(tmp_path):
    """Returns a function that commits with a subject in a new repository. Keyword `tag` tags the commit."""

    def git(*arguments):
        """Runs git in the repository."""
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        subprocess.run(command, check=True, capture_output=True)

    def commit(subject, tag=None):
        """Makes an empty commit."""
        git("commit", "--quiet", "--allow-empty", "-m", subject)
        if tag:
            git("tag", tag)

    git("init", "--quiet")
    return commit


def listed(root):
    """Returns the long subjects of a repository without the commits' names."""
    return [line.split(" ", 1)[1] for line in prose.subjects(root)]


def test_long_commit_subjects_are_listed(tmp_path, commit):
    """A subject of 73 characters is listed, and one of 72 is not."""
    commit("Fix the gradient of relu")
    commit("x" * 72)
    commit("x" * 73)
    assert listed(tmp_path) == ["x" * 73]


def test_commits_before_the_last_tag_do_not_count(tmp_path, commit):
    commit("x" * 73, tag="v1")
    assert listed(tmp_path) == []
    commit("y" * 73)
    assert listed(tmp_path) == ["y" * 73]


def test_commits_before_the_last_fifty_do_not_count(tmp_path, commit, monkeypatch):
    assert prose.COMMITS == 50
    monkeypatch.setattr(prose, "COMMITS", 3)
    commit("x" * 73)
    for _ in range(2):
        commit("Fix the gradient of relu")
    assert listed(tmp_path) == ["x" * 73]
    commit("Fix the gradient of relu")
    assert listed(tmp_path) == []


def test_a_folder_without_a_repository_has_no_subjects(tmp_path):
    assert prose.subjects(tmp_path / "missing") == []


def test_the_project_is_checked_in_parts(tmp_path, monkeypatch, capsys):
    """Each part is checked against the limits separately."""
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "PARTS", ("src", "docs"))
    for part in prose.PARTS:
        (tmp_path / part).mkdir()
    (tmp_path / "docs/a.md").write_text("A sentence.\n" * 1000)
    (tmp_path / "src/a.rs").write_text("// A sentence.\n" * 240 + "// Nobody knows.\n")
    assert prose.main([]) == 1
    assert (
        "src: 4.1 phrases, 0.0 long sentences in 1,000 sentences, 0 long lines (limit passed)"
        in capsys.readouterr().out
    )
    (tmp_path / "src/a.rs").write_text("// A sentence.\n" * 250 + "// Nobody knows.\n")
    assert prose.main([]) == 0
    (tmp_path / "src/a.rs").write_text(f"// {'x' * 120}\n")
    assert prose.main([]) == 1

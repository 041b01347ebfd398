"""Every snippet of the documentation, run as a reader would: page by page, from top to bottom."""

import doctest
import re
from pathlib import Path

import pytest

import kinnor as nn

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def snippets(page):
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_do_what_they_say(page):
    found = snippets(page)
    assert {language for language, _ in found} <= {"pycon"}, "expected snippets as a session, which can be checked"
    text = "".join(code for _, code in found)
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report = []
    with nn.parameter_scope("", {}):
        runner.run(doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0), out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_all_pages_are_reachable():
    listed = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text()))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target

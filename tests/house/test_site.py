"""The site: search terms lead to pages, and the copy button takes programs."""

import doctest
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import markdown
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "maintainers"]
SETTINGS = (ROOT / "mkdocs.yml").read_text()
STYLE = (ROOT / "docs/programs.css").read_text()

SEARCHED = (
    *("learning rate", "early stopping", "DataLoader", "AdamW", "freeze", "weight decay", "regression", "batch size"),
    *("image folder", "jupyter", "debug", "nn.Module", "resume", "DLPack", "mypy", "GPU"),
    *("nn.Linear", "kinnor.layers", "nn.fit", "EarlyStopping", "callback", "add_param_group", "ReduceLROnPlateau"),
    *("state_dict", "model.eval", "requires_grad_", "ModuleList", "optimizer", "LayerNorm", "progress bar"),
)
"""Words that users of other frameworks search for."""


@pytest.fixture
def hooks(monkeypatch):
    """Returns the hooks that MkDocs calls."""
    monkeypatch.syspath_prepend(ROOT / "tools/site")
    import hooks

    yield hooks
    for name in ("hooks", "pictures", "reference", "shown"):
        monkeypatch.delitem(sys.modules, name)


def test_pages_that_the_library_draws_are_shown(hooks):
    """Each page that the library draws is embedded in one page of the site, and loads nothing."""
    drawn = hooks.shown.all_shown()
    inside = [name for page in PAGES for name in re.findall(r'<iframe src="../../shown/(\w+)\.html"', page.read_text())]
    assert sorted(inside) == sorted(drawn) == ["graph", "plan", "profile"]
    for name, text in drawn.items():
        assert not re.search(r"<(script|link|img)[^>]*(src|href)=", text), name
        assert len(text) < 50_000, name
        assert str(ROOT) not in text, f"{name}: the path of a file of this machine"


def words(text):
    """Returns the words of a text as the search splits them."""
    separator = re.search(r"separator: '(.*)'", SETTINGS)[1]
    return set(re.split(separator, text.lower()))


@pytest.mark.parametrize("searched", SEARCHED)
def test_search_finds_a_page_of_instructions(searched):
    """The search wants all words in one section of a page. Lists of differences and plans do not help a reader."""
    found = [
        page.name
        for page in PAGES
        if page.name not in {"differences.md", "roadmap.md"}
        and any(
            words(searched) <= words(section) for section in re.split(r"^#+ ", page.read_text(), flags=re.MULTILINE)
        )
    ]
    assert found, "expected a page with these words in one section"


def visible(element, hidden):
    """Returns the text of an element without children of the hidden classes."""
    parts = [element.text or ""]
    for child in element:
        parts += ["" if child.get("class") in hidden else visible(child, hidden), child.tail or ""]
    return "".join(parts)


def lines(text):
    """Returns the lines of a program that are not empty."""
    return [line for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_copied_sessions_are_programs(page, hooks):
    """The copy button takes the visible text of a block. The style hides prompts and output meanwhile."""
    hidden = set(re.findall(r"\[data-md-copying\] \.(\w+)", STYLE))
    assert hidden == {"gp", "output"}
    html = markdown.markdown(page.read_text(), extensions=["pymdownx.highlight", "pymdownx.superfences"])
    blocks = re.findall(r"(?<=<code>)<span class=\"gp\">&gt;.*?(?=</code>)", hooks.on_page_content(html), re.DOTALL)
    sessions = re.findall(r"^```pycon\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    for block, session in zip(blocks, sessions, strict=True):
        copied = visible(ElementTree.fromstring(f"<p>{block}</p>"), hidden)
        examples = doctest.DocTestParser().get_examples(session)
        assert lines(copied) == lines("".join(example.source for example in examples))

"""MkDocs hooks of `make docs`: add the reference, its lists and the pictures to the written pages.

MkDocs calls these functions by name, in this order.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

sys.path.insert(0, str(Path(__file__).parent))
import pictures
import reference
import shown

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page


PROMPT = '<span class="gp">'
"""The start of a line of a program in a session."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists the pages of the reference. Fails if a public name is on none of them."""
    if lost := reference.missing():
        raise SystemExit(f"tools/site/reference.py: expected a page for every public name, got none for {lost}")
    listed = next(each["Reference"] for each in config.nav if "Reference" in each)
    functions, others = reference.pages()[: len(reference.FAMILIES)], reference.pages()[len(reference.FAMILIES) :]
    listed[:0] = [{"Functions": ["functions.md", *(page.path for page in functions)]}, *(page.path for page in others)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Creates the pages of the reference, their pictures, and the pages that the library draws."""
    for page in reference.pages():
        files.append(File.generated(config, page.path, content=text(page)))
    for name, drawn in pictures.all_pictures().items():
        files.append(File.generated(config, f"reference/{name}.svg", content=drawn))
    for name, drawn in shown.all_shown().items():
        files.append(File.generated(config, f"shown/{name}.html", content=drawn))
    return files


def text(page: reference.Page) -> str:
    """Returns a page of the reference, which docstrings complete."""
    parts = [f"# {page.title}\n\n{page.about}\n"]
    for name in page.names:
        parts.append(f"::: kinnor.{name}\n")
        if others := reference.aliases(name):
            parts.append(f"*Other names of it: {', '.join(f'`{other}`' for other in others)}.*\n")
        last = name.rpartition(".")[2]
        if page.title in reference.FAMILIES and last in pictures.CURVES | pictures.WINDOWS:
            said = pictures.WINDOWS.get(last, "The function, and its derivative (dashed).")
            parts.append(f"![{last}]({last}.svg)\n\n*{said}*\n")
    return "\n".join(parts)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Adds the list of all functions to the page about functions."""
    if page.file.src_uri != "functions.md":
        return markdown
    links = {
        name.rpartition(".")[2]: (listed.title, f"[{name.rpartition('.')[2]}]({listed.path}#kinnor.{name})")
        for listed in reference.pages()[: len(reference.FAMILIES)]
        for name in listed.names
    }
    parts = [markdown]
    for title in ("All, from A to Z", *reference.FAMILIES):
        of_family = [name for name in sorted(links, key=str.lower) if title in (links[name][0], "All, from A to Z")]
        parts.append(f"\n## {title}\n\n{', '.join(links[name][1] for name in of_family)}\n")
    return "\n".join(parts)


def on_page_content(html: str, **_: object) -> str:
    """Marks the output of sessions, so that copying a program leaves it out (see `docs/programs.css`)."""
    return re.sub(rf"(?<=<code>)(?={PROMPT}).*?(?=</code>)", lambda session: marked(session[0]), html, flags=re.DOTALL)


def marked(session: str) -> str:
    """Returns the HTML of a session. Lines without a prompt are in elements of the class `output`."""
    lines = session.splitlines(keepends=True)
    return "".join(line if line.startswith(PROMPT) else f'<span class="output">{line}</span>' for line in lines)

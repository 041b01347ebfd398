#!/usr/bin/env python3
"""Checks the English of comments, docstrings, pages and commit subjects.

    tools/prose.py                    figures of each part of the project; exit status 1 if a limit is passed
    tools/prose.py --list PATH...     every finding in these files or folders

A finding is a sentence of more than 25 words or a phrase of a private language (`PHRASES`). So is a source line of more
than 120 columns, and a commit subject of more than 72 characters. Each part may have as many phrases and sentences in
1,000 sentences as `LIMITS` allows. No long line and no long subject is allowed. The subjects of the last 50 commits are
checked, or of the commits since the last tag if these are fewer.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import shutil
import subprocess
import sys
import tokenize
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
PARTS = (
    "src",
    "python",
    "tests",
    "examples",
    "benches",
    "tools",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
)
LIMITS = {"phrases": 4, "long sentences": 40}
"""Findings allowed in 1,000 sentences of each part."""
WORDS, COLUMNS, SUBJECT, COMMITS = 25, 120, 72, 50

PHRASES = {
    r"\b(?:who|what|which|where)ever\b": "name the actor or the thing",
    r"\b(?:some|no|any)body\b": "name the actor: caller, user, thread, another function",
    r"\b(?:is|are|was|were) told\b": "is notified, receives",
    r"\b(?:lies?|stands?) (?:in|on|beside|apart|there|where)\b": "is stored, is located",
    r"\bare laid out\b": "are packed, use the layout",
    r"\brooms?\b": "scratch buffer, capacity",
    r"\bgiven back\b": "freed, returned",
    r"\bgives? (?:it |them )?back\b": "frees, returns",
    r"\blets? go of\b": "releases, drops",
    r"\bmeets?\b": "broadcasts with, combines with",
    r"\bgoes? along\b": "is fused with",
    r"\bof (?:which|whom|whose)\b": "split the sentence",
    r"\bthat of\b": "repeat the noun",
    r"\bthose (?:of|that|which)\b": "repeat the noun",
    r"^(?:What|Who|Which) (?!is |are |to )": "start with a noun or a verb",
    r"^What is \w+ed\b": "name the thing",
    r"\bin the place of\b": "instead of",
    r"\bbefore its time\b": "early",
    r"\bhas (?:it|them) kept\b": "caches",
    r"\bby hand\b": "manually",
    r"\bat once\b": "eagerly, immediately",
    r"\bas (?:quick|quickly) as\b": "as fast as",
    r"\bso many\b": "name the number",
}
"""Patterns of private language, and what to write instead."""

EXAMPLE = re.compile(r"^\s*>>> .*(?:\n\s*\S.*)*", re.MULTILINE)
"""A doctest with its output, up to the next empty line."""
BLOCK = re.compile(r"\n\s*\n|\n\s*(?:[-*#>]|\d+\.)\s|\||:\n")


@dataclass
class Report:
    """Findings in some files, and the number of sentences that were read."""

    sentences: int = 0
    phrases: list[str] = field(default_factory=list)
    long: list[str] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """All findings, as lines to print."""
        return sorted(self.phrases + self.long + self.columns)

    def rates(self) -> dict[str, float]:
        """Findings in 1,000 sentences, by the names of `LIMITS`."""
        per = 1000 / max(1, self.sentences)
        return {"phrases": len(self.phrases) * per, "long sentences": len(self.long) * per}


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text. Code is left out; list items, table cells and headings end a sentence."""
    text = re.sub(r"```.*?```", " ", text, flags=re.DOTALL)
    text = re.sub(r"`[^`]*`", "code", text)
    text = re.sub(r"\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
    for block in BLOCK.split(text):
        for part in re.split(r"(?<=[.!?:;])\s+", " ".join(block.split())):
            if re.search(r"[A-Za-z]{2}", part):
                yield part.strip(" #|*->")


def rust(source: str) -> Iterator[tuple[int, str]]:
    """Comments of Rust, one block of lines each, with the line where it starts."""
    block: list[str] = []
    start = 0
    for n, line in enumerate([*source.splitlines(), ""], 1):
        comment = re.match(r"\s*//[/!]? ?(.*)", line)
        if comment:
            start = start if block else n
            block.append(comment[1])
        elif block:
            yield start, "\n".join(block)
            block = []


def python(source: str) -> Iterator[tuple[int, str]]:
    """Docstrings and comments of Python, with their lines."""
    for node in ast.walk(ast.parse(source)):
        for item in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            value = item.value if isinstance(item, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield item.lineno, EXAMPLE.sub("", value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(?:type:|noqa|!|ruff|fmt)", token.string):
            yield token.start[0], token.string.lstrip("# ")


def markdown(source: str) -> Iterator[tuple[int, str]]:
    """Paragraphs of Markdown without code, with their lines."""
    source = re.sub(r"```.*?```", lambda m: "\n" * m[0].count("\n"), source, flags=re.DOTALL)
    for paragraph in re.finditer(r"(?:[^\n]+\n?)+", source):
        yield source.count("\n", 0, paragraph.start()) + 1, paragraph[0]


READERS = {".rs": rust, ".py": python, ".md": markdown}


def check(path: Path, report: Report) -> None:
    """Adds the findings of a file to a report."""
    source = path.read_text()
    if path.suffix != ".md":
        for n, line in enumerate(source.splitlines(), 1):
            if len(line) > COLUMNS and "http" not in line:
                report.columns.append(f"{path}:{n}: line of {len(line)} columns")
    for start, text in READERS[path.suffix](source):
        for sentence in sentences(text):
            report.sentences += 1
            words = len(sentence.split())
            if words > WORDS:
                report.long.append(f"{path}:{start}: {words} words: {sentence}")
            for pattern, instead in PHRASES.items():
                found = re.search(pattern, sentence, re.IGNORECASE)
                if found:
                    report.phrases.append(f"{path}:{start}: `{found[0].strip()}`, write {instead}: {sentence}")


def files(path: Path) -> list[Path]:
    """The files of a part of the project that are checked."""
    found = [path] if path.is_file() else sorted(path.rglob("*"))
    return [f for f in found if f.suffix in READERS and f.is_file()]


def report_on(path: Path) -> Report:
    """The findings in a file or a folder."""
    report = Report()
    for each in files(path):
        check(each, report)
    return report


def subjects(root: Path) -> list[str]:
    """The long subjects among the commits since the last tag, at most 50. Empty outside of a git repository."""
    git = ["git", "-C", str(root)]
    if not shutil.which("git"):
        return []
    tag = subprocess.run([*git, "describe", "--tags", "--abbrev=0"], capture_output=True, text=True, check=False)
    since = [f"{tag.stdout.strip()}..HEAD"] if tag.returncode == 0 else ["HEAD"]
    log = [*git, "log", "--no-merges", f"--max-count={COMMITS}", "--format=%h %s", *since]
    lines = subprocess.run(log, capture_output=True, text=True, check=False).stdout.splitlines()
    return [line for line in lines if len(line.split(" ", 1)[1]) > SUBJECT]


def main(arguments: list[str] | None = None) -> int:
    """Prints figures or findings; returns 1 if a limit is passed."""
    parser = argparse.ArgumentParser(
        description="Checks the English of comments, docstrings, pages and commit subjects."
    )
    parser.add_argument("--list", action="store_true", help="print every finding")
    parser.add_argument("paths", nargs="*", type=Path, help="files or folders; by default every part of the project")
    given = parser.parse_args(arguments)
    paths = given.paths or [ROOT / part for part in PARTS]
    bad = False
    for path in paths:
        report = report_on(path)
        rates = report.rates()
        passed = [name for name, limit in LIMITS.items() if rates[name] > limit]
        bad |= bool(passed or report.columns)
        if given.list:
            print("\n".join(report.findings))
        figures = ", ".join(f"{rate:.1f} {name}" for name, rate in rates.items())
        mark = " (limit passed)" if passed or report.columns else ""
        print(f"{path.name}: {figures} in 1,000 sentences, {len(report.columns)} long lines{mark}")
    if not given.paths:
        long = subjects(ROOT)
        bad |= bool(long)
        print("\n".join([f"{len(long)} commit subjects of more than {SUBJECT} characters", *long]))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())

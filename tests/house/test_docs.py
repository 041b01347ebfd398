"""Runs every snippet of the documentation as a reader would, page by page."""

import doctest
import gc
import importlib.util
import json
import re
import runpy
import sys
import textwrap
from pathlib import Path
from statistics import geometric_mean

import pytest

import kinnor as nn
from kinnor_cli import main

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches.peers import published  # noqa: E402

EXTRAS = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
"""Names of the optional dependencies."""
PAGES = sorted((ROOT / "docs").rglob("*.md"))
"""All pages of the documentation."""
SITE = [page for page in PAGES if page.parent.name != "maintainers"]
"""All pages except those for maintainers."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


@pytest.fixture(scope="module")
def generated():
    """Returns the paths of the pages that the site adds."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "tools/site/reference.py")
    reference = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "reference", reference)  # dataclasses look up their module there
        spec.loader.exec_module(reference)
        drawn = {ROOT / f"docs/shown/{name}.html" for name in ("graph", "plan", "profile")}
        return {ROOT / "docs" / page.path for page in reference.pages()} | drawn


def snippets(page):
    """Returns the language and text of each code block of a page."""
    return re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_snippets_run_as_documented(page):
    """The Python sessions of each page print what the page shows."""
    found = snippets(page)
    assert {language for language, _ in found} <= {"pycon", "console"}, "expected sessions, which can be checked"
    text = "".join(code for language, code in found if language == "pycon")
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    report = []
    gc.collect()  # leftovers of other tests count in memory budgets
    with nn.parameter_scope("", {}):
        runner.run(doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0), out=report.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(report)


def test_commands_run_as_documented(tmp_path, monkeypatch, capsys):
    """The shell commands of all pages run."""
    lines = [
        line.removeprefix("$ ").split()
        for page in PAGES
        for language, code in snippets(page)
        if language == "console"
        for line in code.splitlines()
    ]
    assert len(lines) > 10
    monkeypatch.chdir(tmp_path)
    for program, *arguments in lines:
        if program == "kinnor":
            assert main(arguments) == 0, (arguments, capsys.readouterr().err)
        elif program == "pip":
            assert arguments[0] == "install"
            assert set(re.findall(r"\w+", arguments[1])) <= {"kinnor", *EXTRAS}
        else:
            assert program == "python"
            monkeypatch.setattr(sys, "argv", [str(ROOT / arguments[0]), *arguments[1:]])
            with nn.parameter_scope("", {}):
                runpy.run_path(sys.argv[0], run_name="__main__")
    assert re.search(r"epoch 10 of 10: cost \S+, valid_error 0.0[01]", capsys.readouterr().out)


def test_the_rust_tutorial_shows_compiled_code():
    """The code in the tutorial for Rust operations is part of the sources."""
    blocks = re.findall(
        r"(?:^(?:    .*)?\n)+", (ROOT / "docs/maintainers/own_operation_rust.md").read_text(), re.MULTILINE
    )
    shown = [textwrap.dedent(block).strip("\n") for block in blocks if block.strip()]
    assert len(shown) == 1
    assert shown[0] in (ROOT / "src/ops/pointwise/activation.rs").read_text()


RESULTS = ROOT / "benches/results"
"""The folder with measured figures."""


def table(text):
    """Returns the rows of a Markdown table: the first cell, and the others by their headings."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    (_, *heads), _, *rest = rows
    return {first: dict(zip(heads, cells, strict=True)) for first, *cells in rest}


def ranged(numbers, digits):
    """Returns the smallest and the largest number as a page quotes them."""
    return f"{min(numbers):.{digits}f} to {max(numbers):.{digits}f}"


def measured():
    """Returns the measured rows that the table in the README must have: cells by framework, from the results of
    benches.
    """
    rows = published.runs_of()[0]["rows"]
    footprint = table((RESULTS / "footprint.md").read_text())
    times, memory = {"Kinnor": "1"}, {"Kinnor": "1"}
    for peer, start in (("PyTorch", "torch"), ("JAX", "jax")):
        fastest = [row for row in rows if row["peer"].startswith(start)]
        times[peer] = ranged([1 / row["time"][0] for row in fastest], 1)
        memory[peer] = ranged([row["memory"][1] / row["memory"][0] for row in fastest], 0)
    download, imports = {}, {}
    for name in ("Kinnor", "PyTorch", "JAX", "ONNX Runtime", "NNabla"):
        (row,) = (cells for first, cells in footprint.items() if first.startswith(name))
        download[name] = f"{float(row['Download'].removesuffix(' MB')):.0f} MB"
        seconds = [float(number) for number in re.findall(r"[0-9.]+", row["Import"])]
        imports[name] = f"{sum(seconds) / len(seconds):.{1 if max(seconds) > 0.3 else 2}f} s"
    download["PyTorch"] += ", with CUDA"
    means = {}
    for name, threads, column in (("models", "2,", 2), ("memory", "", 1)):
        *_, mean = (RESULTS / f"onnx_{name}.csv").read_text().splitlines()
        assert mean.startswith(f"geometric mean of all,{threads}")
        means[name] = 1 / float(mean.split(",")[column])
    return {
        "Download": download,
        "Import after NumPy": imports,
        "Time of a training step, relative to Kinnor": times | dict.fromkeys(("ONNX Runtime",), "-"),
        "Memory of a training step, relative to Kinnor": memory | dict.fromkeys(("ONNX Runtime",), "-"),
        "Time of an ONNX model, relative to Kinnor": {"Kinnor": "1", "ONNX Runtime": f"{means['models']:.1f}"},
        "Memory of an ONNX model, relative to Kinnor": {"Kinnor": "1", "ONNX Runtime": f"{means['memory']:.1f}"},
    }


def test_quoted_figures_are_measured():
    """Figures of speed and memory in README and docs equal the recorded results."""
    rows = published.runs_of()[0]["rows"]
    times = [row["time"][0] for row in rows]
    for name in ("README.md", "docs/index.md", "docs/faq.md"):
        text = " ".join((ROOT / name).read_text().split())
        assert f"{geometric_mean(times):.2f} of the time of the fastest of PyTorch, JAX and TensorFlow" in text
        assert f"{len(rows)} workloads" in text
    fourth = min(row["memory"][1] / row["memory"][0] for row in rows)
    twelfth = max(row["memory"][1] / row["memory"][0] for row in rows)
    assert (round(fourth), round(twelfth)) == (4, 12), "docs/index.md says: a fourth to a twelfth of the memory"


def test_figures_of_the_comparison_are_measured():
    """Each row of the README's table that has a digit is measured, and each of its cells is what was measured."""
    shown = table((ROOT / "README.md").read_text())
    expected = measured()
    assert {first for first, cells in shown.items() if re.search(r"\d", "".join(cells.values()))} == set(expected)
    for first, cells in expected.items():
        for peer, cell in cells.items():
            assert shown[first][peer] == cell, (first, peer)
        for peer, cell in shown[first].items():
            assert peer in cells or not re.search(r"\d", cell), f"{first}, {peer}: not measured"


def test_accuracies_in_the_tutorial_are_measured():
    """The table of the tutorial on mixed precision has the mean accuracies of the recorded results."""
    page = (ROOT / "docs/tutorials/mixed_precision.md").read_text()
    measured = table((RESULTS / "mixed_precision.md").read_text())
    shown = table(page.partition("## Accuracy")[2])
    assert set(shown) == set(measured)
    for task, cells in shown.items():
        means = [f"{mean.partition(' ')[0]} %" for head, mean in measured[task].items() if head.startswith("Accuracy")]
        assert list(cells.values()) == means, task


def test_tables_of_the_page_on_speed_are_measured():
    """The tables on the page about speed have the cells of the recorded results."""
    page = (ROOT / "docs/guide/speed.md").read_text()
    sections = {text.partition("\n")[0]: text for text in page.split("\n## ")}
    shown = {name: table(sections[name]) for name in ("ONNX models", "Files of other people")}
    for facts in json.loads((RESULTS / "peers.json").read_text()):
        text = sections[f"{facts['task'].capitalize()} in {facts['dtype']}: {facts['machine']}"]
        assert f"Geometric mean: {geometric_mean(row['time'][0] for row in facts['rows']):.2f}." in text
        cells = {row["workload"]: [f"{row['time'][0]:.2f}", *map(str, row["memory"])] for row in facts["rows"]}
        assert {workload: list(found.values()) for workload, found in table(text).items()} == cells
    models = [line.split(",") for line in (RESULTS / "onnx_models.csv").read_text().splitlines()[2:]]
    rows = {name: ratios for name, threads, *ratios in models if threads == "1" and all(ratios)}
    assert {name: list(cells.values()) for name, cells in shown["ONNX models"].items()} == rows
    files = (RESULTS / "onnx_files.csv").read_text().splitlines()[1:]
    head, *measured = (line.split(",") for line in files)
    for heading, column in (("called again", "warm"), ("a new length", "new"), ("loaded and called", "first")):
        at, cells = head.index(column), shown["Files of other people"][heading]
        for threads, words in (("1", "one thread"), ("2", "two threads")):
            ratios = [float(row[at]) for row in measured if row[1] == threads and row[at]]
            assert cells[f"Mean, {words}"] == f"{geometric_mean(ratios):.2f}"
            assert cells[f"Above 1.1, {words}"] == f"{sum(ratio > 1.1 for ratio in ratios)} of {len(ratios)}"


def test_the_program_of_the_readme_learns(capsys):
    """The program in README runs, and reaches an accuracy above 0.8."""
    (program,) = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(program.splitlines()) <= 10
    with nn.parameter_scope("", {}):
        exec(program, {})
    *_, last = capsys.readouterr().out.splitlines()
    assert float(re.search(r"val_accuracy ([0-9.]+)", last)[1]) > 0.8


def test_all_pages_are_reachable():
    """`mkdocs.yml` lists every page for users."""
    listed = set(re.findall(r"[\w/]+\.md", (ROOT / "mkdocs.yml").read_text()))
    written = {str(page.relative_to(ROOT / "docs")) for page in PAGES}
    assert listed == {page for page in written if not page.startswith("maintainers/")}


def test_pages_for_maintainers_are_reachable():
    """The index of pages for maintainers lists each of them."""
    pages = sorted(page.name for page in (ROOT / "docs/maintainers").glob("*.md") if page.name != "README.md")
    assert sorted(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs/maintainers/README.md").read_text())) == pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page, generated):
    """Every relative link of a page leads to an existing file or a generated page."""
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        path = (page.parent / target).resolve()
        assert path.exists() or path in generated, target


@pytest.mark.parametrize("page", SITE, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_page_leads_on(page):
    """Every page links to another page."""
    assert re.search(r"\]\((?!https?:)[^)#]+\.md", page.read_text()), "expected a link to another page"

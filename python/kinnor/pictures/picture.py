"""`nn.show`: shows a graph in a notebook, a terminal, a browser or a file."""

from __future__ import annotations

import json
from collections import Counter
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._core import ArgumentError, UnsupportedError, Variable
from ..display import counted, readable, text_table
from ..files.atomic import replacing
from . import dot
from .graph import Graph, collect, data

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from .._core import Function

__all__ = ["Picture", "show"]

MOST = 200
"""Maximum number of nodes for graphviz."""

LINES = 60
"""Maximum number of functions listed in a terminal."""


class Picture:
    """A picture of a graph. Notebooks show it, terminals print a list of functions, `save` writes a file.

    Args:
        graph: The nodes to draw.
        title: The title.
    """

    def __init__(self, graph: Graph, title: str) -> None:
        self.graph = graph
        self.title = title

    @property
    def format(self) -> str:
        """`svg` if graphviz is installed and there are at most 200 nodes, else `html`."""
        return "svg" if len(self.graph.nodes) <= MOST and dot.is_there() else "html"

    def svg(self) -> str:
        """The picture as the text of an SVG file.

        Raises:
            UnsupportedError: If the program `dot` of graphviz is not installed.
            OSError: If `dot` fails.
        """
        if not dot.is_there():
            raise UnsupportedError(
                "show: expected the program `dot` of graphviz to draw SVG, got none; a page (.html) needs no program"
            )
        return dot.svg(self.graph)

    def html(self) -> str:
        """The picture as a self-contained HTML page, in which scopes unfold and functions can be searched."""
        page = resources.files(__package__).joinpath("page.html").read_text("utf-8")
        content = json.dumps(data(self.graph, self.title), separators=(",", ":")).replace("<", "\\u003c")
        return page.replace("__TITLE__", escape(self.title)).replace("__DATA__", content)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the picture to a file.

        Args:
            path: Path that ends in `.svg` or `.html`.

        Raises:
            ArgumentError: If `path` ends otherwise.
            UnsupportedError: If the format is SVG and graphviz is not installed.
            OSError: If the file cannot be written.
        """
        kind = Path(path).suffix.lower()
        if kind not in (".svg", ".html"):
            raise ArgumentError(f"show: expected a path that ends in .svg or .html, got {str(path)!r}")
        text = self.svg() if kind == ".svg" else self.html()
        with replacing(Path(path), durable=False) as temporary:
            temporary.write_text(text, encoding="utf-8")

    def __repr__(self) -> str:
        nodes = self.graph.nodes
        rows = [("#", "function", "scope", "gives", "memory", "parameters")]
        for n, node in enumerate(nodes[:LINES], 1):
            own = ", ".join(name.partition(" ")[0].rsplit("/", 1)[-1] for name in node.parameters)
            scope = "/".join(filter(None, (*node.scope, node.label)))
            rows.append((str(n), node.kind, scope, " ".join(node.gives), readable(node.memory), own))
        lines = text_table(rows, right=(0, 4))
        if len(nodes) > LINES:
            lines.append(f"... and {len(nodes) - LINES:,} more")
        kinds = Counter(node.kind for node in nodes if node.kind != "Input")
        most = ", ".join(f"{n} {kind}" for kind, n in kinds.most_common(5))
        return "\n".join([*lines, f"{counted(sum(kinds.values()), 'function')}: {most}"])

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Returns the picture as SVG, or in a frame of HTML, for notebooks."""
        bundle = {"text/plain": repr(self)}
        if self.format == "svg":
            return bundle | {"image/svg+xml": self.svg()}
        frame = 'style="width:100%;height:600px;border:1px solid rgba(128,128,128,.4)"'
        return bundle | {"text/html": f'<iframe {frame} srcdoc="{escape(self.html())}"></iframe>'}


def show(
    y: Variable | Sequence[Variable],
    path: str | os.PathLike[str] | None = None,
    *,
    parameters: Mapping[str, Variable] | None = None,
    times: Mapping[Function, float] | None = None,
    title: str | None = None,
    browser: bool = False,
) -> Picture:
    """Draw the graph that computes a variable, without running it.

    Notebooks show SVG if graphviz is installed and the graph has at most 200 nodes. Otherwise they show an HTML page in
    which scopes unfold. A selected function shows its shapes, types, arguments, parameters and memory. Terminals print
    a list of the functions. A function is in the scope of its parameters. A function without parameters is in the scope
    of its inputs.

    Args:
        y: The output of the graph, or several outputs.
        path: A file to write: `.html`, or with graphviz `.svg`.
        parameters: Parameters by path; by default all parameters of the current scope and of all modules. Paths in a
            module start with the class of the outermost module.
        times: Seconds of each function's run, to show in its box.
        title: The title; by default the names of the outputs.
        browser: Whether to open the page in the web browser. Without `path` it is a temporary file.

    Returns:
        The picture.

    Raises:
        TypeError: If `y` is not a variable.
        GraphError: If `y` has no parent.
        UnsupportedError: If the format is SVG and graphviz is not installed.
        OSError: If the file cannot be written.

        >>> import kinnor as nn, kinnor.functions as F, kinnor.parametric_functions as PF
        >>> nn.clear_parameters()
        >>> with nn.parameter_scope("hidden"):
        ...     h = F.relu(PF.affine(nn.Variable((8, 3)), 4))
        >>> nn.show(F.mean(h))
        #  function  scope          gives      memory  parameters
        1  Input                    (8, 3)   96 bytes
        2  Affine    hidden/affine  (8, 4)  128 bytes  W, b
        3  ReLU      hidden         (8, 4)  128 bytes
        4  Mean      hidden         ()        4 bytes
        3 functions: 1 Affine, 1 ReLU, 1 Mean
        >>> nn.clear_parameters()
    """
    graph = collect(y, parameters, times)
    ends: list[Any] = [y] if isinstance(y, Variable) else list(y)
    named = ", ".join(v.name for v in ends if v.name)
    picture = Picture(graph, title or named or f"{counted(len(graph.nodes), 'node')}")
    if path is not None:
        picture.save(path)
    if browser:
        opened(picture, path)
    return picture


def opened(picture: Picture, path: str | os.PathLike[str] | None) -> None:
    """Open a picture in the web browser."""
    import tempfile
    import webbrowser

    if path is None:
        path = Path(tempfile.mkdtemp(prefix="kinnor-"), "graph.html")
        picture.save(path)
    webbrowser.open(Path(path).resolve().as_uri())

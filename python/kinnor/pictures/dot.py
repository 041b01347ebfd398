"""Draws graphs with graphviz, if its program `dot` is installed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .graph import Graph, Node

__all__ = ["is_there", "quoted", "run", "source", "svg"]

SECONDS = 30
"""Time limit of `dot` in seconds."""


def is_there() -> bool:
    """True if `dot` is installed."""
    return shutil.which("dot") is not None


def svg(graph: Graph) -> str:
    """Draw a graph with `dot`.

    Args:
        graph: The graph to draw.

    Returns:
        The text of an SVG file.

    Raises:
        OSError: If `dot` fails or takes longer than 30 seconds.
    """
    try:
        done = run(source(graph), "svg", SECONDS)
        done.check_returncode()
    except subprocess.SubprocessError as error:
        raise OSError(f"show: expected `dot` to draw the graph, got {error}") from error
    return done.stdout.decode()


def run(source: str, format: str, seconds: float) -> subprocess.CompletedProcess[bytes]:
    """Runs `dot` on a text.

    Args:
        source: The text, in the language DOT.
        format: Format of the picture, such as `svg`.
        seconds: The most seconds that it may take.

    Returns:
        The finished process; its exit status is not checked.

    Raises:
        SubprocessError: If it takes longer.
        OSError: If it cannot be started.
    """
    command = [shutil.which("dot") or "dot", f"-T{format}"]
    return subprocess.run(command, input=source.encode(), capture_output=True, timeout=seconds, check=False)


def source(graph: Graph) -> str:
    """A graph in the language DOT. Scopes become clusters.

    Args:
        graph: The graph to draw.
    """
    lines = [
        "digraph {",
        'bgcolor="transparent"; rankdir=TB; nodesep=0.25; ranksep=0.3; color="#888888"; fontcolor="#888888";',
        'fontname="sans-serif"; fontsize=11; node [shape=box, style="rounded,filled", fontname="sans-serif",',
        'fontsize=11, color="#55667a", fillcolor="#e3ecfa"]; edge [color="#888888", arrowsize=0.6];',
    ]
    lines += clusters([(node.scope, n) for n, node in enumerate(graph.nodes)])
    ends = set(graph.outputs)
    for n, node in enumerate(graph.nodes):
        fill = ', fillcolor="#fff3d6"' if node.kind == "Input" else ', fillcolor="#d9f2de"' if n in ends else ""
        lines.append(f"n{n} [label={quoted(text(node))}{fill}];")
        lines += [f"n{m} -> n{n};" for m in node.inputs]
    return "\n".join([*lines, "}"])


def clusters(places: list[tuple[tuple[str, ...], int]]) -> list[str]:
    """Nested clusters of the scopes, with the numbers of their nodes, in DOT."""
    lines: list[str] = []
    opened: tuple[str, ...] = ()
    for scope, n in sorted(places):
        common = 0
        while common < min(len(scope), len(opened)) and scope[common] == opened[common]:
            common += 1
        lines += ["}"] * (len(opened) - common)
        for depth in range(common, len(scope)):
            name = quoted("/".join(scope[: depth + 1]))
            lines.append(f"subgraph {quoted('cluster' + '/'.join(scope[: depth + 1]))} {{ label={name};")
        lines.append(f"n{n};")
        opened = scope
    return lines + ["}"] * len(opened)


def text(node: Node) -> str:
    """The text in the box of a node."""
    head = f"{node.kind} {node.label}".strip()
    spent = f"{node.time * 1e3:.2f} ms" if node.time else ""
    return "\n".join(filter(None, (head, " ".join(node.gives), *node.parameters, spent)))


def quoted(label: str) -> str:
    """A text quoted for DOT."""
    return '"' + label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'

"""`kinnor draw`: draws networks as SVG pictures from top to bottom, or as the HTML pages of `nn.show`."""

from __future__ import annotations

from html import escape
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.atomic import replacing
from ..nnp import NetworkError, ProtoGraph
from ..pictures import Picture
from ..pictures.graph import Graph, Node, Walk
from . import wrote
from .formats import read

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from ..nnp import ProtoNetwork
    from ..nnp.nodes import NetworkVariable

__all__ = ["add", "drawn", "page"]

WIDTH, HEIGHT, ACROSS, DOWN = 220, 40, 250, 70
"""Sizes of a box, and distances between boxes, in pixels."""

MOST = 5_000
"""Maximum number of functions in an SVG picture."""


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: Its name.
        parser: The parser of the command.
    """
    parser.add_argument("input", help="file of networks")
    parser.add_argument("-o", "--output-dir", default="draw_out", help="folder to create for the pictures")
    parser.add_argument("-n", "--network", action="append", help="name of a network to draw; may be repeated")
    parser.add_argument(
        "-f",
        "--format",
        default="svg",
        choices=("svg", "html"),
        help="svg: a picture; html: a self-contained page with foldable scopes and search",
    )
    return lambda args: _draw(args.input, args.output_dir, args.network, args.format)


def _draw(source: str, outdir: str, names: list[str] | None, kind: str) -> None:
    """Draws the named networks of a file, or all, and writes a file of the given kind for each."""
    networks = ProtoGraph.from_proto(read([source]).proto).networks
    for name in names or ():
        if name not in networks:
            raise NetworkError(f"expected one of the networks {list(networks)}, got {name!r}")
    texts = {name: (page if kind == "html" else drawn)(networks[name]) for name in names or networks}
    folder = Path(outdir)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        path = folder / f"{''.join(c if c.isalnum() or c in '-_' else '_' for c in name)}.{kind}"
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        wrote(path)


def page(network: ProtoNetwork) -> str:
    """A network as one HTML page, drawn as `nn.show` does.

    Args:
        network: The network.

    Raises:
        NetworkError: If the network has a cycle.
    """
    walk = Walk({}, {})
    made: dict[str, int] = {}

    def end(node: Node, names: list[str]) -> None:
        """Record the outputs of a node."""
        for name in names:
            variable = network.variable(name)
            made[name] = len(walk.nodes)
            node.gives.append(str(variable.shape))
            node.memory += _bytes(network, variable)
        walk.nodes.append(node)

    for name in network.inputs:
        end(Node("Input", label=name), [name])
    for function in network.forward_sequence():
        node = Node(function.type, arguments=", ".join(f"{k}={v}" for k, v in function.args.items()))
        for name in function.inputs:
            variable = network.variable(name)
            node.takes.append(str(variable.shape))
            if name in network.parameters:
                node.parameters.append(f"{name} {variable.shape}")
                node.weights += _bytes(network, variable)
                continue
            if name not in made:
                end(Node("Input", label=name), [name])
            if made[name] not in node.inputs:
                node.inputs.append(made[name])
        walk.place(node, [name for name in function.inputs if name in network.parameters])
        end(node, function.outputs)
    ends = sorted({made[name] for name in network.outputs if name in made})
    return Picture(Graph(walk.nodes, ends), network.name).html()


def _bytes(network: ProtoNetwork, variable: NetworkVariable) -> int:
    """Size of a variable in bytes, in single precision and with the batch size of the saved network."""
    return 4 * prod((network.batch_size or 1) if n < 0 else n for n in variable.shape)


def drawn(network: ProtoNetwork) -> str:
    """A network as an SVG picture.

    Args:
        network: The network.

    Raises:
        NetworkError: If the network has more than 5,000 functions, or a cycle.
    """
    if len(network.functions) > MOST:
        raise NetworkError(f"expected at most {MOST} functions to draw, got {len(network.functions)}")
    rank = dict.fromkeys(network.inputs, 0)
    """Row of the function that computes a variable, counted from the top."""
    boxes: list[tuple[str, str, int]] = [(n, f"{n} {network.variables[n].shape}", 0) for n in network.inputs]
    makers: dict[str, int] = {name: i for i, name in enumerate(network.inputs)}
    lines: list[tuple[int, int]] = []
    for function in network.forward_sequence():
        taken = [name for name in function.inputs if name in rank]
        depth = 1 + max((rank[name] for name in taken), default=0)
        number = len(boxes)
        shape = network.variable(function.outputs[0]).shape if function.outputs else ()
        boxes.append((function.type, f"{function.type} {shape}", depth))
        lines += [(makers[name], number) for name in taken]
        for name in function.outputs:
            rank[name], makers[name] = depth, number
    return _svg(network.name, boxes, lines)


def _svg(title: str, boxes: list[tuple[str, str, int]], lines: list[tuple[int, int]]) -> str:
    """An SVG file with boxes of name, kind and row, and lines between them."""
    filled: dict[int, int] = {}
    places = []
    for _, _, depth in boxes:
        places.append((10 + ACROSS * filled.get(depth, 0), 10 + DOWN * depth))
        filled[depth] = filled.get(depth, 0) + 1
    width = 20 + ACROSS * max(filled.values(), default=1)
    height = 20 + DOWN * (1 + max(filled, default=0))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" '
        f'font-size="12"><title>{escape(title)}</title>'
    ]
    for start, end in lines:
        (x0, y0), (x1, y1) = places[start], places[end]
        parts.append(
            f'<line x1="{x0 + WIDTH // 2}" y1="{y0 + HEIGHT}" x2="{x1 + WIDTH // 2}" y2="{y1}" stroke="#888"/>'
        )
    for (_, text, depth), (x, y) in zip(boxes, places, strict=True):
        fill = "#fff3d6" if depth == 0 else "#e3ecfa"
        parts.append(
            f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="{fill}" stroke="#555"/>'
            f'<text x="{x + WIDTH // 2}" y="{y + 24}" text-anchor="middle">{escape(text)}</text>'
        )
    return "\n".join([*parts, "</svg>\n"])

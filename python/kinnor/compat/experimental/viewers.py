"""Draws graphs with the program `dot` of Graphviz. Without it, graphs are text in the language DOT."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..._core import ArgumentError, CallError, Error, Variable
from ...files.atomic import replacing
from ...logger import logger
from ...parameter import get_parameters
from ...pictures import dot

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from ..._core import Function

__all__ = ["Digraph", "PictureError", "SimpleGraph"]

COLOURS = {
    "Activation": "green",
    "Normalization": "orange",
    "Layer": "blue",
    "Loss": "red",
}
"""Colours of functions by type; other functions are grey."""

KINDS = {
    **dict.fromkeys(("Affine", "Convolution", "Deconvolution", "DepthwiseConvolution", "Embed"), "Layer"),
    **dict.fromkeys(("ReLU", "Sigmoid", "Tanh", "LeakyReLU", "ELU", "GELU", "Swish", "Softmax", "PReLU"), "Activation"),
    **dict.fromkeys(("BatchNormalization", "FusedBatchNormalization", "LayerNormalization"), "Normalization"),
    **dict.fromkeys(("GroupNormalization", "InstanceNormalization"), "Normalization"),
    **dict.fromkeys(("SoftmaxCrossEntropy", "SigmoidCrossEntropy", "SquaredError", "HuberLoss"), "Loss"),
}
"""The kind of each function that has a colour, by type name."""

SECONDS = 60
"""Time limit of `dot`."""


class PictureError(Error, RuntimeError):
    """Graphviz cannot draw the picture."""


class Digraph:
    """A graph in the language DOT. Notebooks show it as a picture.

    Args:
        source: The text in DOT.
        format: Format of pictures: png, svg, pdf or another format of `dot`.
    """

    def __init__(self, source: str, format: str = "png") -> None:
        self.source, self.format = source, format

    def __str__(self) -> str:
        return self.source

    def pipe(self, format: str | None = None) -> bytes:
        """Draw the graph with `dot`.

        Args:
            format: Format of the picture.

        Raises:
            PictureError: If `dot` is not installed, or fails.
        """
        if not dot.is_there():
            raise PictureError("Digraph.pipe: expected the program `dot` of Graphviz to be installed, got none")
        done = dot.run(self.source, format or self.format, SECONDS)
        if done.returncode:
            raise PictureError(f"Digraph.pipe: expected a picture, got: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def render(self, filename: str | os.PathLike[str], cleanup: bool = False, format: str | None = None) -> str:
        """Write the text to a file, and the picture beside it if `dot` is installed.

        Args:
            filename: Path of the text file. The path of the picture has the format appended.
            cleanup: Whether to remove the text if there is a picture.
            format: Format of the picture.

        Returns:
            Path of the picture, or of the text if there is none.

        Raises:
            PictureError: If `dot` fails.
            OSError: If a file cannot be written.
        """
        target = Path(filename)
        with replacing(target) as temporary:
            temporary.write_text(self.source, encoding="utf-8")
        if not dot.is_there():
            logger.warning("%s has the graph as text; `dot` of Graphviz is not installed.", target)
            return str(target)
        kind = format or self.format
        picture = target.with_name(f"{target.name}.{kind}")
        with replacing(picture) as temporary:
            temporary.write_bytes(self.pipe(kind))
        if cleanup:
            target.unlink()
        return str(picture)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Returns the source, and a drawing if the program `dot` is installed, for notebooks."""
        if not dot.is_there():
            return {"text/plain": self.source}
        return {"text/plain": self.source, "image/svg+xml": self.pipe("svg").decode()}


class SimpleGraph:
    """Draws the graph that computes a variable: circles are variables, squares functions.

    Args:
        format: Format of pictures: png, svg, pdf or another format of `dot`.
        verbose: Whether to show shapes and arguments.
        fname_color_map: Graphviz colours by function names, such as `Convolution`.
        vname_color_map: Graphviz colours by variable names.

    Examples:
        >>> import kinnor as nn
        >>> y = nn.functions.relu(nn.Variable((2, 3), need_grad=True))
        >>> print(SimpleGraph().create_graphviz_digraph(y))
        digraph {
            node [style=filled]
            "v0" [label="x" color="black" fillcolor="lightgray" shape="circle"]
            "f0" [label="ReLU" color="green" fontcolor="white" shape="square"]
            "v1" [label="y" color="black" fillcolor="lightgray" shape="circle"]
            "v0" -> "f0"
            "f0" -> "v1"
        }
    """

    def __init__(
        self,
        format: str = "png",
        verbose: bool = False,
        fname_color_map: Mapping[str, str] | None = None,
        vname_color_map: Mapping[str, str] | None = None,
    ) -> None:
        self._format, self._verbose = format, verbose
        self._functions, self._variables = dict(fname_color_map or {}), dict(vname_color_map or {})

    def create_graphviz_digraph(
        self,
        vleaf: Variable,
        params: Mapping[str, Variable] | None = None,
        format: str | None = None,
    ) -> Digraph:
        """The graph of a variable in the language DOT.

        Args:
            vleaf: The variable.
            params: Parameters to show by name; by default the parameters of the current scope.
            format: Format of pictures.

        Raises:
            CallError: If `vleaf` is not a variable.
            ArgumentError: If no function computes it.
        """
        if not isinstance(vleaf, Variable):
            raise CallError(f"SimpleGraph: expected a Variable, got {type(vleaf).__name__}")
        if vleaf.parent is None:
            raise ArgumentError("SimpleGraph: expected a variable that a function computes, got one without a parent")
        known = get_parameters(grad_only=False) if params is None else params
        names = {variable: name for name, variable in known.items()}
        boxes: list[str] = []
        arrows: list[str] = []
        numbers: dict[Variable, str] = {}

        def number(variable: Variable, default: str) -> str:
            """The id of a variable's box, which is added on first use."""
            if variable not in numbers:
                numbers[variable] = f"v{len(numbers)}"
                boxes.append(
                    self._variable(numbers[variable], variable, names.get(variable) or variable.name or default)
                )
            return numbers[variable]

        def visited(function: Function) -> None:
            """Add the box of a function and its edges."""
            taken = [number(x, "x") for x in function.inputs]
            name = f"f{sum(box.startswith('f', 1) for box in boxes)}"
            boxes.append(self._function(name, function))
            arrows.extend(f'"{x}" -> "{name}"' for x in taken)
            for output in function.outputs:
                arrows.append(f'"{name}" -> "{number(output, "y" if output == vleaf else "h")}"')

        vleaf.visit(visited)
        lines = ["node [style=filled]", *boxes, *arrows]
        return Digraph("\n".join(["digraph {", *(f"\t{line}" for line in lines), "}", ""]), format or self._format)

    def _variable(self, number: str, variable: Variable, name: str) -> str:
        """The box of a variable in DOT."""
        label = name
        if self._verbose:
            label += f"\n{variable.shape}, need_grad={variable.need_grad}"
        filled = self._variables.get(variable.name or name, "lightgray")
        edge = "black" if variable.need_grad else "lightgray"
        return _box(number, label=label, color=edge, fillcolor=filled, shape="ellipse" if self._verbose else "circle")

    def _function(self, number: str, function: Function) -> str:
        """The box of a function in DOT."""
        label = kind = str(function.info.type_name)
        if self._verbose:
            label += "".join(f"\n{key}={value}" for key, value in function.info.args.items())
        colour = self._functions.get(kind) or COLOURS.get(KINDS.get(kind, ""), "gray")
        return _box(number, label=label, color=colour, fontcolor="white", shape="box" if self._verbose else "square")

    def view(
        self,
        vleaf: Variable,
        fpath: str | os.PathLike[str] | None = None,
        cleanup: bool = True,
        format: str | None = None,
        params: Mapping[str, Variable] | None = None,
    ) -> Digraph:
        """Draw the graph to a file, and return it for a notebook to show.

        Args:
            vleaf: The variable.
            fpath: Path of the file without the format, which is appended; by default in the temporary folder.
            cleanup: Whether to remove the text in DOT if there is a picture.
            format: Format of the picture.
            params: Parameters to show by name; by default the parameters of the current scope.

        Returns:
            The graph in the language DOT.

        Raises:
            PictureError: If `dot` fails.
            OSError: If the file cannot be written.
        """
        graph = self.create_graphviz_digraph(vleaf, params, format)
        written = graph.render(Path(tempfile.mkdtemp(), "graph") if fpath is None else fpath, cleanup)
        logger.info("The graph is written to %s.", written)
        return graph

    def save(
        self,
        vleaf: Variable,
        fpath: str | os.PathLike[str],
        cleanup: bool = False,
        format: str | None = None,
    ) -> None:
        """Write the graph to a file: as text in DOT, and as a picture beside it if `dot` is installed.

        Args:
            vleaf: The variable.
            fpath: Path of the text file. The path of the picture has the format appended.
            cleanup: Whether to remove the text if there is a picture.
            format: Format of the picture.

        Raises:
            PictureError: If `dot` fails.
            OSError: If a file cannot be written.
        """
        self.create_graphviz_digraph(vleaf, format=format).render(fpath, cleanup)


def _box(name: str, **attributes: str) -> str:
    """A node in DOT with these attributes."""
    told = " ".join(f"{key}={dot.quoted(value)}" for key, value in attributes.items())
    return f'"{name}" [{told}]'

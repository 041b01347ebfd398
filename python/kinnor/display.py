"""Text for terminals and HTML tables for notebooks: variables, arrays, functions, parameters, solvers.

`kinnor.show` draws graphs, and `kinnor.profile` measures them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from . import _core
from ._core import Function, GraphError, NdArray, Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["Parameters", "attach", "html_table", "text_table"]

STYLE = (
    "border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums",
    "text-align:left;padding:2px 10px;border-bottom:1px solid rgba(128,128,128,.35)",
)
"""CSS of a table and of its cells. It sets no text colours, so that light and dark notebooks work."""


def text_table(rows: Sequence[Sequence[str]], right: Iterable[int] = ()) -> list[str]:
    """The lines of a text table.

    Args:
        rows: Cells, row by row, the headings first; all rows have the same length.
        right: Numbers of the right-aligned columns.

    Returns:
        A line for each row.

        >>> for line in text_table([("name", "size"), ("W", "12")], right=(1,)):
        ...     print(line)
        name  size
        W       12
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = set(right)

    def cell(i: int, text: str) -> str:
        """A cell padded to the width of its column."""
        return text.rjust(widths[i]) if i in aligned else text.ljust(widths[i])

    return ["  ".join(cell(i, text) for i, text in enumerate(row)).rstrip() for row in rows]


def html_table(rows: Sequence[Sequence[str]], right: Iterable[int] = (), caption: str = "") -> str:
    """A table as HTML, in the colours of the surrounding page.

    Args:
        rows: Cells, row by row, the headings first; text, not HTML.
        right: Numbers of the right-aligned columns.
        caption: Text above the table.

    Returns:
        The table.

        >>> html_table([("<a>",)]).count("&lt;a&gt;")
        1
    """
    from html import escape  # Not on import: only notebooks need it.

    table, cell = STYLE
    aligned = set(right)
    parts = [f'<table style="{table}">']
    if caption:
        parts.append(f'<caption style="text-align:left;font-weight:bold;padding:4px 10px">{escape(caption)}</caption>')
    for n, row in enumerate(rows):
        kind = "td" if n else "th"
        cells = (
            f'<{kind} style="{cell}{";text-align:right" if i in aligned else ""}">{escape(text)}</{kind}>'
            for i, text in enumerate(row)
        )
        parts.append(f"<tr>{''.join(cells)}</tr>")
    return "\n".join([*parts, "</table>"])


class Parameters(OrderedDict[str, Variable]):
    """Parameters by path: a dict that is shown as a table of names, shapes, types and sizes, not of values.

    >>> import kinnor as nn, kinnor.parametric_functions as PF
    >>> nn.clear_parameters()
    >>> y = PF.affine(nn.Variable((2, 3)), 4)
    >>> print(nn.get_parameters())
    name      shape   type     gradient  size
    affine/W  (3, 4)  float32  yes         12
    affine/b  (4,)    float32  yes          4
    2 parameters, 16 elements, 64 bytes
    >>> nn.clear_parameters()
    """

    def __missing__(self, name: str) -> Variable:
        """Raises KeyError with the nearest name."""
        from ._suggest import spelled  # On a mistake only, not on import.

        known = [str(each) for each in self]
        ends = [each for each in known if each.rpartition("/")[2] == name]
        hint = f"; did you mean {ends[0]!r}?" if len(ends) == 1 else spelled(str(name), known)
        raise KeyError(f"{name}: expected the path of a parameter, such as {known[:3]}{hint}" if known else name)

    def __repr__(self) -> str:
        rows = self._rows()
        return "\n".join([*(text_table(rows, right=(4,)) if self else ()), self._sum()])

    def _repr_html_(self) -> str:
        """The table as HTML, for notebooks."""
        return html_table(self._rows(), right=(4,), caption=self._sum())

    def _rows(self) -> list[tuple[str, ...]]:
        """The table's rows, with headings."""
        rows: list[tuple[str, ...]] = [("name", "shape", "type", "gradient", "size")]
        for name, variable in self.items():
            if not isinstance(variable, Variable):
                rows.append((str(name), "", type(variable).__name__, "", ""))
                continue
            grad = "yes" if variable.need_grad else "no"
            rows.append((str(name), str(variable.shape), dtype_name(variable), grad, f"{variable.size:,}"))
        return rows

    def _sum(self) -> str:
        """A line with the number of parameters, elements and bytes."""
        values: list[Any] = list(self.values())  # The user may have stored other objects.
        own = [v for v in values if isinstance(v, Variable)]
        size, taken = sum(v.size for v in own), sum(map(bytes_of, own))
        return f"{counted(len(self), 'parameter')}, {counted(size, 'element')}, {readable(taken)}"


def dtype_name(x: Variable | NdArray) -> str:
    """NumPy's name of the element type; empty if nothing was written yet."""
    try:
        dtype = (x.data if isinstance(x, Variable) else x).dtype
    except GraphError:
        return ""
    return str(getattr(dtype, "__name__", dtype))


def bytes_of(v: Variable) -> int:
    """The size of a variable's values in bytes. Without a type yet, float32 is assumed."""
    import numpy as np

    return v.size * int(np.dtype(dtype_name(v) or "float32").itemsize)


def counted(n: int, thing: str) -> str:
    """A number with its noun in singular or plural, such as `2 parameters`."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def readable(size: float) -> str:
    """A size in bytes, KiB, MiB or GiB, by its magnitude.

    >>> readable(64), readable(3 * 2**20)
    ('64 bytes', '3.00 MiB')
    """
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if abs(size) >= step:
            return f"{size / step:.2f} {unit}"
    return f"{size:.0f} bytes"


# --- In notebooks


def variable_html(v: Variable) -> str:
    """HTML of a variable: a table of its properties, and its first and last values."""
    made = v.parent.info.type_name if v.parent is not None else "input or parameter"
    rows = [("shape", "type", "size", "need_grad", "name", "made by")]
    rows.append((str(v.shape), dtype_name(v), f"{v.size:,}", str(v.need_grad), v.name or "", made))
    state = repr(v).partition("\n")[0].rpartition(")")[2].removesuffix(">")  # Such as ", not computed".
    return html_table(rows, right=(2,), caption=f"Variable{state}") + values_html(v)


def array_html(x: NdArray) -> str:
    """HTML of an array: a table of its properties, and its first and last values."""
    rows = [("shape", "type", "size"), (str(x.shape), dtype_name(x), f"{x.size:,}")]
    return html_table(rows, right=(2,), caption="NdArray") + values_html(x)


def values_html(x: Variable | NdArray) -> str:
    """The values as `repr` shows them, as HTML; empty if there are none."""
    from html import escape

    _, _, values = repr(x).partition("\n")
    return f'<pre style="margin:4px 10px">{escape(values.removesuffix(">"))}</pre>' if values else ""


def function_html(f: Function) -> str:
    """HTML of a function: its arguments, inputs and outputs."""
    rows = [("", "name", "shape", "type", "need_grad")]
    for kind, variables in (("input", f.inputs), ("output", f.outputs)):
        rows += [
            (f"{kind} {i}", v.name or "", str(v.shape), dtype_name(v), str(v.need_grad))
            for i, v in enumerate(variables)
        ]
    return html_table(rows, caption=repr(f).removeprefix("<").removesuffix(">"))


def solver_html(solver: _core.Solver) -> str:
    """HTML of a solver: its arguments, and its parameters with their states."""
    states = solver._states()
    rows = [("parameter", "shape", "updates", "states")]
    for name, variable in solver.get_parameters().items():
        t, arrays = states.get(name, (0, {}))
        rows.append((name, str(variable.shape), str(t), ", ".join(arrays)))
    return html_table(rows, right=(2,), caption=repr(solver))


def attach() -> None:
    """Adds `_repr_html_` and `_repr_mimebundle_` to the core classes. The package calls it once, on import."""
    html: dict[type, Any] = {
        Variable: variable_html,
        NdArray: array_html,
        Function: function_html,
        _core.Solver: solver_html,
    }
    for cls, function in html.items():
        setattr(cls, "_repr_html_", function)  # noqa: B010 - the stubs do not list it.
    for cls in (*html, Parameters):
        setattr(cls, "_repr_mimebundle_", mimebundle)  # noqa: B010


def mimebundle(self: Any, include: object = None, exclude: object = None) -> dict[str, str]:
    """Text and HTML of an object by MIME type, for notebooks."""
    return {"text/plain": repr(self), "text/html": self._repr_html_()}

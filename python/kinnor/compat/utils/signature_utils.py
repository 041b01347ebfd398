"""Signatures of Python functions to which arguments can be added."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

__all__ = ["SignatureEx"]


class SignatureEx(inspect.Signature):
    """A signature with methods to add and drop arguments, and to format it as text.

    Examples:
        >>> signature = SignatureEx.from_callable(lambda x, n, y=1: x)
        >>> print(signature.drop_arg("n").add_arg("z", default=2))
        (x, y=1, z=2)
        >>> signature.format_caller_argument_signature()
        'x, n, y'
    """

    def drop_arg(self, argname: str, raise_if_not_found: bool = False) -> SignatureEx:
        """A copy without an argument.

        Args:
            argname: Name of the argument.
            raise_if_not_found: Whether to raise KeyError if the argument does not exist.

        Raises:
            KeyError: If `raise_if_not_found` is set and the argument does not exist.
        """
        if raise_if_not_found and argname not in self.parameters:
            raise KeyError(f"drop_arg: expected one of {list(self.parameters)}, got {argname!r}")
        return self.replace(parameters=[p for p in self.parameters.values() if p.name != argname])

    def add_arg(
        self,
        argname: str,
        kind: Any = Parameter.POSITIONAL_OR_KEYWORD,
        *,
        default: Any = Parameter.empty,
        annotation: Any = Parameter.empty,
    ) -> SignatureEx:
        """A copy with one more argument, after the others of its kind.

        Args:
            argname: Name of the argument.
            kind: Kind of the argument, as in `inspect.Parameter`.
            default: Default value.
            annotation: Type annotation.

        Raises:
            ValueError: If the name exists, or if an argument without a default would follow one with a default.
        """
        new = Parameter(argname, kind, default=default, annotation=annotation)
        found = list(self.parameters.values())
        at = sum(p.kind <= new.kind for p in found)
        return self.replace(parameters=[*found[:at], new, *found[at:]])

    @property
    def has_return_annotation(self) -> bool:
        """True if the signature has a return annotation."""
        return self.return_annotation is not self.empty

    def format_argument_signature(self) -> str:
        """The arguments as in the definition of the function, without parentheses."""
        return str(self.replace(return_annotation=self.empty))[1:-1]

    def format_return_annotation(self) -> str:
        """The return annotation after an arrow; empty if there is none."""
        if not self.has_return_annotation:
            return ""
        return f" -> {inspect.formatannotation(self.return_annotation)}"

    def format_caller_argument_signature(self) -> str:
        """The arguments as in a call of the function with variables of the same names."""
        marks: dict[Any, str] = {
            Parameter.VAR_POSITIONAL: "*{0}",
            Parameter.VAR_KEYWORD: "**{0}",
            Parameter.KEYWORD_ONLY: "{0}={0}",
        }
        return ", ".join(marks.get(p.kind, "{0}").format(p.name) for p in self.parameters.values())

"""Signatures of Python functions that one may add arguments to."""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import Any

__all__ = ["SignatureEx"]


class SignatureEx(inspect.Signature):
    """A signature with arguments to add and to drop, and as text.

    Examples:
        >>> signature = SignatureEx.from_callable(lambda x, n, y=1: x)
        >>> print(signature.drop_arg("n").add_arg("z", default=2))
        (x, y=1, z=2)
        >>> signature.format_caller_argument_signature()
        'x, n, y'
    """

    def drop_arg(self, argname: str, raise_if_not_found: bool = False) -> SignatureEx:
        """A signature without an argument.

        Args:
            argname: Its name.
            raise_if_not_found: Whether it must be there.

        Raises:
            KeyError: If it must be there and is not.
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
        """A signature with one argument more, after the others of its kind.

        Args:
            argname: Its name.
            kind: Its kind, as in `inspect.Parameter`.
            default: Its value by default.
            annotation: Its type.

        Raises:
            ValueError: If there is one of that name, or if one without a default would follow one with it.
        """
        new = Parameter(argname, kind, default=default, annotation=annotation)
        found = list(self.parameters.values())
        at = sum(p.kind <= new.kind for p in found)
        return self.replace(parameters=[*found[:at], new, *found[at:]])

    @property
    def has_return_annotation(self) -> bool:
        """Whether it says what the function returns."""
        return self.return_annotation is not self.empty

    def format_argument_signature(self) -> str:
        """The arguments as they stand where the function is defined, without brackets."""
        return str(self.replace(return_annotation=self.empty))[1:-1]

    def format_return_annotation(self) -> str:
        """What the function returns, after an arrow; empty if it does not say."""
        if not self.has_return_annotation:
            return ""
        return f" -> {inspect.formatannotation(self.return_annotation)}"

    def format_caller_argument_signature(self) -> str:
        """The arguments as they stand where the function is called with variables of the same names."""
        marks: dict[Any, str] = {
            Parameter.VAR_POSITIONAL: "*{0}",
            Parameter.VAR_KEYWORD: "**{0}",
            Parameter.KEYWORD_ONLY: "{0}={0}",
        }
        return ", ".join(marks.get(p.kind, "{0}").format(p.name) for p in self.parameters.values())

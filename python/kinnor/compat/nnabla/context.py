"""Contexts with NNabla's check: setting the default inside a scope is an AssertionError."""

from __future__ import annotations

from kinnor import context as ours
from kinnor.context import Context, context_scope, get_current_context

__all__ = ["Context", "context_scope", "get_current_context", "set_default_context"]


def set_default_context(ctx: Context) -> None:
    """Set the context of all threads outside of a `context_scope`.

    Args:
        ctx: The new default.

    Raises:
        AssertionError: If called inside a `context_scope`.
    """
    assert not ours._scopes.get(), "set_default_context: expected a call outside of any context_scope, got one inside"
    ours.set_default_context(ctx)

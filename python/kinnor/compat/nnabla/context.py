"""Contexts as NNabla has them: a default may not be set inside a scope, which it asserts."""

from __future__ import annotations

from kinnor import context as ours
from kinnor.context import Context, context_scope, get_current_context

__all__ = ["Context", "context_scope", "get_current_context", "set_default_context"]


def set_default_context(ctx: Context) -> None:
    """Set the context of every thread that is in no `context_scope`.

    Args:
        ctx: The new default.

    Raises:
        AssertionError: If called inside a `context_scope`.
    """
    assert not ours._scopes.get(), "set_default_context: expected a call outside of any context_scope, got one inside"
    ours.set_default_context(ctx)

"""The mask that a dropout drew."""

from __future__ import annotations

from kinnor import Variable


def _get_dropout_mask(dropout_input: Variable) -> Variable:
    """The elements that the dropout on a variable kept in its last run, as ones among zeros."""
    dropouts = [f for f in dropout_input.function_references if f.info.type_name == "Dropout"]
    if not dropouts:
        raise ValueError("_get_dropout_mask: expected a variable with a dropout on it, got one without")
    ones, kept = Variable(dropout_input.shape), Variable(dropout_input.shape)
    ones.d = 1.0
    dropouts[0].recompute([ones], [kept])
    mask = Variable(dropout_input.shape)
    mask.d = kept.d != 0
    return mask

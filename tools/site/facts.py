"""Gradient and cost of functions, in words."""

FACTS: dict[str, tuple[str, str]] = {}

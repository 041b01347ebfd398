"""Profiles of time and memory: a table, a trace for Perfetto, a flame graph."""

from __future__ import annotations

from .block import profile
from .result import Profile

__all__ = ["Profile", "profile"]

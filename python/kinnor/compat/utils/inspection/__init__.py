"""Inspection of graphs and their runs: printing, timing, and finding the origin of NaN."""

from .base import FunctionHookCallbackBase
from .pretty_print import PrettyPrinter, pprint
from .profile import CpuTimerCallback, TimeProfiler
from .value_trace import NanInfError, NanInfTracer

__all__ = [
    "CpuTimerCallback",
    "FunctionHookCallbackBase",
    "NanInfError",
    "NanInfTracer",
    "PrettyPrinter",
    "TimeProfiler",
    "pprint",
]

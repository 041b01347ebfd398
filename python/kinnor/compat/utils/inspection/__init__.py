"""Looking at graphs and at their runs: what is in them, how long they take, where NaN begins."""

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

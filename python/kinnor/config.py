"""Settings of the engine as attributes of this module, and NNabla's configuration file as `nnabla_config`.

The class `Settings` documents the attributes `check_saved`, `execution_order`, `in_recomputing` and `plan`.

`nnabla_config` reads `/etc/nnabla.conf`, `~/.nnabla`, `nnabla.conf` in the working directory, and the file named by
the environment variable `NNABLA_CONFIG_FILE_PATH`. Later files take precedence.
"""

from __future__ import annotations

import os
import sys
from configparser import RawConfigParser
from pathlib import Path
from types import ModuleType

from . import _core
from ._core import RangeError

__all__ = ["nnabla_config"]

_DEFAULTS = {
    "DATA_ITERATOR": {
        # Data sources below this size in bytes stay in memory after the first read.
        "data_source_buffer_max_size": str(1 << 30),
    },
    "LOG": {
        "log_console_level": "INFO",
        "log_console_format": "%(asctime)s [%(name)s][%(levelname)s]: %(message)s",
        # No log file is written if the name is empty.
        "log_file_name": "",
        "log_file_level": "DEBUG",
        "log_file_format": "%(asctime)s [%(name)s][%(levelname)s]: "
        "%(pathname)s : %(funcName)s : %(lineno)s : %(message)s",
    },
}
"""The settings where no configuration file says otherwise."""


def _read() -> RawConfigParser:
    """The configuration from defaults and files."""
    config = RawConfigParser()
    config.read_dict(_DEFAULTS)
    paths = [Path("/etc/nnabla.conf"), Path("nnabla.conf")]
    if home := os.path.expanduser("~"):  # noqa: PTH111 - a home that cannot be found is no error here.
        paths.insert(1, Path(home, ".nnabla"))
    if named := os.environ.get("NNABLA_CONFIG_FILE_PATH"):
        paths.append(Path(named))
    config.read(paths)
    return config


nnabla_config = _read()


class Settings(ModuleType):
    """The settings of the engine, as attributes of `kinnor.config`.

    >>> import kinnor as nn
    >>> nn.config.execution_order
    'rank'
    """

    @property
    def check_saved(self) -> str:
        """Reaction of `Variable.backward` to a value that changed after the forward run and that a gradient reads.

        "warn" uses the new value and warns, "raise" raises ModifiedError, "ignore" uses the new value silently.
        `kinnor.compat.nnabla` sets "ignore", as NNabla behaves. Writes through a NumPy view are not detected.

            >>> import kinnor as nn, kinnor.functions as F
            >>> nn.config.check_saved
            'warn'
        """
        return _core.check_saved()

    @check_saved.setter
    def check_saved(self, what: str) -> None:
        _core.set_check_saved(what)

    @property
    def execution_order(self) -> str:
        """Order of functions in a forward run: "rank", as NNabla documents, or "depth_first", as NNabla runs."""
        return _core.execution_order()

    @execution_order.setter
    def execution_order(self, order: str) -> None:
        if order not in ("rank", "depth_first"):
            raise RangeError(f"config: expected `execution_order` to be 'rank' or 'depth_first', got {order!r}")
        _core.set_execution_order(order)

    @property
    def plan(self) -> str:
        """Execution of static graphs that have not run yet: "optimised", or "plain", function by function.

        Both give the same bits, values and errors. The environment variable `KINNOR_PLAN=plain` sets the initial
        value; with `KINNOR_PLAN=print` each run prints its instructions. `kinnor.plan_report` lists the optimisations.
        """
        return "plain" if _core.plan_is_plain() else "optimised"

    @plan.setter
    def plan(self, how: str) -> None:
        if how not in ("plain", "optimised"):
            raise ValueError(f"config: expected `plan` to be 'optimised' or 'plain', got {how!r}")
        _core.set_plan_is_plain(how == "plain")

    @property
    def in_recomputing(self) -> bool:
        """True while this thread recomputes values for a backward run. Read-only."""
        return _core.in_recomputing()


sys.modules[__name__].__class__ = Settings

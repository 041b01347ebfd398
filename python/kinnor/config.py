"""Settings of the process, and those that NNabla keeps in a configuration file: `nnabla_config`.

The module's attributes `check_saved`, `execution_order`, `in_recomputing` and `plan` are those of `Settings`.

Values of `nnabla_config` are looked for in `/etc/nnabla.conf`, `~/.nnabla`, `nnabla.conf` in the working directory and
the file that the environment variable `NNABLA_CONFIG_FILE_PATH` names; a later one wins.
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
        # Data sources that are smaller than this many bytes are kept in memory once they were read.
        "data_source_buffer_max_size": str(1 << 30),
    },
    "LOG": {
        "log_console_level": "INFO",
        "log_console_format": "%(asctime)s [%(name)s][%(levelname)s]: %(message)s",
        # Without a name there is no log file.
        "log_file_name": "",
        "log_file_level": "DEBUG",
        "log_file_format": "%(asctime)s [%(name)s][%(levelname)s]: "
        "%(pathname)s : %(funcName)s : %(lineno)s : %(message)s",
    },
}


def _read() -> RawConfigParser:
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
        """What `Variable.backward` does where a value that a gradient reads changed since the forward run.

        "warn" uses the new value and warns, "raise" raises ModifiedError, "ignore" uses it silently, as NNabla does and
        `kinnor.compat.nnabla` sets. Writes through a NumPy view cannot be seen.

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
        """In which order forward runs go: "rank", as documented, or "depth_first", as NNabla really does."""
        return _core.execution_order()

    @execution_order.setter
    def execution_order(self, order: str) -> None:
        if order not in ("rank", "depth_first"):
            raise RangeError(f"config: expected `execution_order` to be 'rank' or 'depth_first', got {order!r}")
        _core.set_execution_order(order)

    @property
    def plan(self) -> str:
        """How static graphs run that have not run yet: "optimised", or "plain", one function after the other.

        Optimised runs compute the same numbers to the bit, and leave the same values and errors behind. The environment
        variable `KINNOR_PLAN=plain` sets it when the process starts; `KINNOR_PLAN=print` has runs print what they do.
        `kinnor.plan_report` says what is optimised.
        """
        return "plain" if _core.plan_is_plain() else "optimised"

    @plan.setter
    def plan(self, how: str) -> None:
        if how not in ("plain", "optimised"):
            raise ValueError(f"config: expected `plan` to be 'optimised' or 'plain', got {how!r}")
        _core.set_plan_is_plain(how == "plain")

    @property
    def in_recomputing(self) -> bool:
        """Whether values are being computed again for a backward run on this thread. It cannot be set."""
        return _core.in_recomputing()


sys.modules[__name__].__class__ = Settings

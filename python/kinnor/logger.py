"""The library's log: `logger`, an ordinary logger of the standard library.

It writes to the standard error by itself, from level INFO on, as long as the program has not configured logging; once
it has (`logging.basicConfig`), records only go to where the program sends them. See `kinnor.config` for levels, formats
and a log file.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

from .config import nnabla_config

__all__ = ["logger"]


class _Console(logging.Handler):
    """Writes to what is `sys.stderr` at the moment, unless the program has handlers of its own."""

    def emit(self, record: logging.LogRecord) -> None:
        stream: TextIO | None = sys.stderr
        if stream is None or logging.getLogger().handlers:
            return
        try:
            stream.write(self.format(record) + "\n")
            stream.flush()
        except Exception:
            self.handleError(record)


def _set_up() -> logging.Logger:
    log = logging.getLogger("kinnor")
    if log.handlers:  # The module is imported again.
        return log
    settings = nnabla_config["LOG"]
    handlers: list[tuple[str, logging.Handler]] = [("console", _Console())]
    if name := settings["log_file_name"]:
        handlers.append(("file", logging.FileHandler(name, delay=True)))
    for kind, handler in handlers:
        handler.setLevel(settings[f"log_{kind}_level"])
        handler.setFormatter(logging.Formatter(settings[f"log_{kind}_format"]))
        log.addHandler(handler)
    log.setLevel(min(handler.level for _, handler in handlers))
    return log


logger = _set_up()


def __getattr__(name: str) -> Any:
    # In NNabla this name is the logger's. Here it is this module's once that is imported, so it has all that one has.
    return getattr(logger, name)

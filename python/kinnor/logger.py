"""The library's log: `logger`, an ordinary logger of the standard library.

By default it writes to standard error, from level INFO on. Once the program has configured logging, for example by
`logging.basicConfig`, records go to the program's handlers only. `kinnor.config` has levels, formats and a log file.
"""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO

from .config import nnabla_config

__all__ = ["logger"]


class _Console(logging.Handler):
    """Writes to the current `sys.stderr`, unless the root logger has handlers."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a record."""
        stream: TextIO | None = sys.stderr
        if stream is None or logging.getLogger().handlers:
            return
        try:
            stream.write(self.format(record) + "\n")
            stream.flush()
        except Exception:
            self.handleError(record)


def _set_up() -> logging.Logger:
    """Makes the logger and its handlers from the configuration."""
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
    """Returns an attribute of the logger."""
    # In NNabla `nnabla.logger` is the logger itself. After an import of this module the name is the module, which
    # therefore forwards attributes to the logger.
    return getattr(logger, name)

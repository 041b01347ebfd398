"""Settings that NNabla keeps in a configuration file: `nnabla_config`.

Values are looked for in `/etc/nnabla.conf`, `~/.nnabla`, `nnabla.conf` in the working directory and the file that the
environment variable `NNABLA_CONFIG_FILE_PATH` names; a later one wins.
"""

from __future__ import annotations

import os
from configparser import RawConfigParser
from pathlib import Path

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

"""The times of a session in a file that trace viewers show."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import datetime
from pathlib import Path

__all__ = ["Profile"]


class Profile:
    """The times of a session: of reading its model, and of each run.

    Args:
        prefix: The first part of the path of the file. Date and time follow.

    Attributes:
        start: The time of its begin in nanoseconds.
    """

    def __init__(self, prefix: str) -> None:
        self.start = time.time_ns()
        self._origin = time.perf_counter_ns()
        self._path = f"{prefix}_{datetime.now().astimezone():%Y-%m-%d_%H-%M-%S}"
        self._events: list[str] = []

    def note(self, name: str, begin: int) -> None:
        """Notes an event that ends now.

        Args:
            name: The name of the event.
            begin: The value of `time.perf_counter_ns` at its begin.
        """
        event = {
            "cat": "Session",
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": (time.perf_counter_ns() - begin) // 1000,
            "ts": (begin - self._origin) // 1000,
            "ph": "X",
            "name": name,
            "args": {},
        }
        self._events.append(json.dumps(event))

    def written(self) -> str:
        """Writes the file.

        Returns:
            Its path.

        Raises:
            OSError: If it cannot be written.
        """
        path, at = Path(f"{self._path}.json"), 1
        while path.exists():
            path, at = Path(f"{self._path}_{at}.json"), at + 1
        path.write_text("[\n" + ",\n".join(self._events) + "\n]\n")
        return str(path)

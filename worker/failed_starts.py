"""Counts children of a prefork worker that end before they work: Celery would start new ones for ever."""

from __future__ import annotations

import array
import fcntl
import os
import termios
from typing import Final

FAILED_STARTS: Final = 3  #: beyond one for each child; then the worker gives up


class Starts:
    """A byte in a pipe for each start since a child last got to work; made before the fork, shared by all.

    No lock is held, and nothing is lost: a child may be killed at any moment.
    """

    def __init__(self, children: int) -> None:
        self._most = children + FAILED_STARTS
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def begun(self) -> None:
        """A child starts."""
        os.write(self._write, b"s")

    def worked(self) -> None:
        """A child got to work: those that still start may take their time."""
        try:
            os.read(self._read, 65_536)
        except BlockingIOError:  # another one was as quick
            return

    @property
    def too_many(self) -> bool:
        """Whether so many started in a row that one which ended must be among them, again and again."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._read, termios.FIONREAD, waiting)
        return waiting[0] > self._most

"""Counts the children of a prefork worker that end before they get to work: Celery would start new ones for ever."""

from __future__ import annotations

import array
import fcntl
import os
import termios
from typing import Final

FAILED_STARTS: Final = 3  #: starts beyond one for each child, after which the worker gives up


class Starts:
    """A pipe with one byte for each start since a child last got to work. Made before the fork, shared by all children.

    A pipe needs no lock, and loses nothing when a child is killed.
    """

    def __init__(self, children: int) -> None:
        self._most = children + FAILED_STARTS
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def begun(self) -> None:
        """Note that a child starts."""
        os.write(self._write, b"s")

    def worked(self) -> None:
        """Note that a child got to work: counting begins anew."""
        try:
            os.read(self._read, 65_536)
        except BlockingIOError:  # another child was quicker
            return

    @property
    def too_many(self) -> bool:
        """Whether more children have started than can be alive at once: some ended before they got to work."""
        waiting = array.array("i", [0])
        fcntl.ioctl(self._read, termios.FIONREAD, waiting)
        return waiting[0] > self._most

"""The end of a worker that was told to stop: at the latest when its grace period is over.

Celery would wait for its threads without limit, and ignore a second SIGTERM. A run that is abandoned here goes on in
another worker when its lease has run out.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING

import structlog
from billiard.process import active_children

if TYPE_CHECKING:
    from types import FrameType

EXIT_CODE = 1  #: of a process that left something behind

log = structlog.get_logger("outrider.worker")


def leave_by(seconds: float) -> None:
    """Leave the process at the latest after so long, unless it has ended of itself. Not from a signal handler."""
    timer = threading.Timer(seconds, leave_now, kwargs={"why": f"the grace period of {seconds:g} s is over"})
    timer.daemon = True
    timer.start()


def leave_by_signals(seconds: float) -> None:
    """Leave at the latest after so long, and at once at the next signal to stop. From a signal handler.

    The clock is a signal too: starting a thread in a handler can wait for a lock that its own thread holds.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        again = f"a second {signal.Signals(number).name}"
        leave_now(why=f"the grace period of {seconds:g} s is over" if number == signal.SIGALRM else again)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGALRM):
        signal.signal(number, leave)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def leave_now(*, why: str) -> None:
    """End this process and the children that it started, at once."""
    try:
        log.warning("worker.leaves", why=why)
    finally:
        end_now()


def end_now() -> None:
    """Do the same without logging, for signal handlers."""
    try:
        for child in active_children():
            os.kill(child.pid, signal.SIGKILL)
    finally:
        os._exit(EXIT_CODE)


def give_up(*, why: str) -> None:
    """End this child, and tell the main process to stop."""
    log.warning("worker.leaves", why=why)
    os.kill(os.getppid(), signal.SIGTERM)
    end_now()


class DrainLine:
    """How prefork children hear of a drain: a pipe made before the fork, that nobody writes to.

    When the main process closes its end, or dies, every child sees the end of the file.
    """

    def __init__(self) -> None:
        self.hear, self._hold = os.pipe()

    def in_child(self) -> int:
        """Return the end to listen on, and close the other one: only the main process must have it open."""
        os.close(self._hold)
        return self.hear

    def drain(self) -> None:
        """Tell all children. A second call does nothing."""
        if self._hold >= 0:
            os.close(self._hold)
            self._hold = -1

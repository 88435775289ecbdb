"""A run's limits in time: how long it may work, and how long it may do so without any sign of life."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from .control import Stop

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..shared.records import Task


class Deadlines:
    """The timers of one run, used on its loop. `heard_at` gives when (`time.monotonic`) it last gave a sign of life."""

    def __init__(self, task: Task, stop: Callable[[Stop], None], heard_at: Callable[[], float]) -> None:
        limits = task.limits
        self._stop, self._heard_at, self._idle = stop, heard_at, limits.idle_seconds
        #: Seconds of working time that are left; `None` is no bound.
        self.left = None if limits.timeout_seconds is None else limits.timeout_seconds - task.working_ms / 1000
        self._loop = asyncio.get_running_loop()
        self._timers: dict[Stop, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Count from now on."""
        if self.left is not None:
            self._timers[Stop.TIMED_OUT] = self._loop.call_later(self.left, self._stop, Stop.TIMED_OUT)
        if self._idle is not None:
            self._wait(self._idle, self._idle)

    def _wait(self, idle: float, seconds: float) -> None:
        self._timers[Stop.LIMIT_IDLE] = self._loop.call_later(seconds, self._listen, idle)

    def _listen(self, idle: float) -> None:
        left = self._heard_at() + idle - time.monotonic()
        if left > 0:
            self._wait(idle, left)
        else:
            self._stop(Stop.LIMIT_IDLE)

    def cancel(self) -> None:
        """Cancel the timers."""
        for timer in self._timers.values():
            timer.cancel()

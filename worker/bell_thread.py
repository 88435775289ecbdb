"""The thread from which a worker process rings and tells monitors: both block, and must not hold up the loop."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from ..shared.broker import BrokerUnreachable, ring, tell_monitors

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from ..shared.bells import Bell


class BellThread:
    """Sends bells, and events to monitors, one after the other. Awaited on the loop."""

    def __init__(self, app: Celery, node: str) -> None:
        self._app, self._node = app, node
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="outrider-bells")
        self._failed_at = 0.0  #: when the last bell failed that was tried

    async def ring(self, bell: Bell) -> None:
        """Send a bell; raises `BrokerUnreachable`."""
        await self.run(self._ring, bell, time.monotonic())

    async def tell(self, event: str, run_id: str, error: str) -> None:
        """Send monitors an event about a run that ended by such an error; raises `BrokerUnreachable`."""
        await self.run(self._tell, event, run_id, error)

    async def run(self, work: Callable[..., None], *args: Any) -> None:
        """Do something else that blocks for a moment."""
        await asyncio.get_running_loop().run_in_executor(self._executor, work, *args)

    def stop(self) -> None:
        """End the thread when it has done what it was asked."""
        self._executor.shutdown()

    def _ring(self, bell: Bell, asked_at: float) -> None:
        """Ring, unless the broker did not answer while this bell waited: each that is tried holds up all others."""
        if asked_at < self._failed_at:
            raise BrokerUnreachable(self._app.conf.broker_write_url, "it did not take the bell before this one")
        try:
            ring(self._app, bell)
        except BrokerUnreachable:
            self._failed_at = time.monotonic()
            raise

    def _tell(self, event: str, run_id: str, error: str) -> None:
        tell_monitors(self._app, event, run_id, node=self._node, exception=f"AgentFailed({error!r})", traceback="")

"""The heartbeat renews a process's leases, in a thread with a loop and a client of its own: busy agents cannot stop it.

It does so only while the agents' loop answers: a process whose loop hangs loses its claims.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING

import structlog

from ..shared.chunks import chunks
from ..shared.connections import connect
from ..shared.store import Store

if TYPE_CHECKING:
    from ..shared.limits import Usage
    from ..shared.settings import Settings
    from .control import Held

CHUNK = 500  #: claims that one script renews
LEASES_OF_PATIENCE = 4  #: for so many leases the loop may be silent; after that its claims are left to run out

log = structlog.get_logger("outrider.worker")


class Heartbeat:
    """The heartbeat of one process. `start` and `stop` once each."""

    def __init__(self, settings: Settings, held: Held, loop: asyncio.AbstractEventLoop) -> None:
        self._settings, self._held, self._loop = settings, held, loop
        self._answered = time.monotonic()
        self._used: dict[str, Usage] = {}  #: what was noted in the records
        self._stopping = asyncio.Event()
        self._own_loop: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=self._run, name="outrider-heartbeat", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._own_loop.result().call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._beats())

    async def _beats(self) -> None:
        self._own_loop.set_result(asyncio.get_running_loop())
        settings, failing = self._settings, False
        async with connect(settings, size=1) as redis:
            store = Store(redis, settings.namespace)
            while not await _is_set(self._stopping, settings.heartbeat_seconds):
                self._loop.call_soon_threadsafe(self._answer)
                try:
                    await self._beat(store)
                except Exception as error:  # noqa: BLE001 if this thread died, every run of the process would be lost
                    if not failing:
                        log.warning("heartbeat.failing", error=type(error).__name__)
                    failing = True
                else:
                    if failing:
                        log.info("heartbeat.back")
                    failing = False

    def _answer(self) -> None:
        self._answered = time.monotonic()

    async def _beat(self, store: Store) -> None:
        silent = time.monotonic() - self._answered
        if silent > LEASES_OF_PATIENCE * self._settings.lease_seconds:
            log.error("heartbeat.loop_hangs", seconds=round(silent))
            return
        claims, used = self._held.claims(), self._held.used()
        news = {run_id: usage for run_id, usage in used.items() if usage != self._used.get(run_id)}
        for chunk in chunks(claims, CHUNK):
            renewed = await store.heartbeat(chunk, lease_ms=self._settings.lease_ms, used=news)
            for claim, good in zip(chunk, renewed, strict=True):
                if not good:
                    claim.mark_stale()
        self._used = used


async def _is_set(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event, at most so long."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False

"""The emitter turns what a run does into events of its task: buffered, written in batches, fenced like every write.

The events of a short run are written with its settle.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError

from ..shared import events
from ..shared.text import clip, plain

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain_core.messages import BaseMessage

FLUSH_SECONDS = 0.1  #: between two writes of one run's events
FLUSHES = 250  #: writes of events per second, of all runs of a worker: with many at work each waits longer
FLUSH_TEXT = 2000  #: characters of one `tokens` event
FLUSH_EVENTS = 100
BUFFERED = 1000  #: events that wait for a slow Redis; what comes beyond is counted and dropped
MAX_CUSTOM = 8000  #: characters of a custom event's JSON; a larger one is cut to text
MAX_ARGS = 500

Batch = list[tuple[str, dict[str, Any]]]


def pause(runs: int) -> float:
    """Seconds between two writes of one run's events, while so many runs are at work."""
    return max(FLUSH_SECONDS, runs / FLUSHES)


class Emitter:
    """The events of one run. `emit` may be called from any thread; all else happens on the loop.

    What an event says comes from agents, models and tools: it is made plain here, so that none can fail a write.
    `runs` tells how many runs are at work.
    """

    def __init__(
        self,
        write: Callable[[Sequence[tuple[str, dict[str, Any]]]], Awaitable[bool]],
        runs: Callable[[], int] = lambda: 1,
    ) -> None:
        self._write, self._runs = write, runs
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.heard_at = time.monotonic()  #: when something last came from the run, an event or not
        self._buffer: Batch = []
        self._dropped = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._flushing: asyncio.Task[None] | None = None

    def emit(self, kind: str, data: dict[str, Any]) -> None:
        """Put an event into the buffer."""
        self.heard()
        data = plain(data)
        if threading.get_ident() == self._thread:
            self._add(kind, data)
        else:
            self._loop.call_soon_threadsafe(self._add, kind, data)

    def heard(self) -> None:
        """Note that something came from the run."""
        self.heard_at = time.monotonic()

    def _add(self, kind: str, data: dict[str, Any]) -> None:
        if self._closed:  # code that goes on after its run was settled
            return
        last = self._buffer[-1] if self._buffer else None
        if last and kind == last[0] == events.TOKENS and _continues(last[1], data):
            last[1]["text"] += data["text"]
            full = len(last[1]["text"]) >= FLUSH_TEXT
        elif len(self._buffer) >= BUFFERED:
            self._dropped += 1
            return
        else:
            self._buffer.append((kind, data))
            full = len(self._buffer) >= FLUSH_EVENTS
        if self._flushing is None:
            if full:
                self._flush()
            elif self._timer is None:
                self._timer = self._loop.call_later(pause(self._runs()), self._flush)

    def _flush(self) -> None:
        self._cancel_timer()
        self._flushing = self._loop.create_task(self._send(self.take()))

    async def _send(self, batch: Batch) -> None:
        try:
            await self._write(batch)
        except RedisError:
            self._dropped += len(batch)  # the run goes on without them
        finally:
            self._flushing = None
            if self._buffer:
                self._timer = self._loop.call_later(pause(self._runs()), self._flush)

    def take(self) -> Batch:
        """Take what is buffered."""
        batch, self._buffer = self._buffer, []
        if self._dropped:
            batch.append((events.DROPPED, {"count": self._dropped}))
            self._dropped = 0
        return batch

    async def close(self) -> Batch:
        """Write no more; what is left goes with the settle."""
        self._closed = True
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        self._cancel_timer()
        return self.take()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _continues(last: dict[str, Any], data: dict[str, Any]) -> bool:
    return len(last["text"]) < FLUSH_TEXT and last["node"] == data["node"] and last["message_id"] == data["message_id"]


def tokens(message: BaseMessage, node: str) -> dict[str, Any] | None:
    """The data of a `tokens` event for a piece of a model's message; `None` where it holds no text."""
    text = message.text
    return {"text": text, "node": node, "message_id": message.id} if text else None


def custom(payload: Any) -> dict[str, Any]:
    """The data of a `custom` event: the payload as JSON values, or the beginning of its JSON where it is long."""
    value = plain(payload)
    text = json.dumps(value, ensure_ascii=False)
    return {"data": value if len(text) <= MAX_CUSTOM else clip(text, MAX_CUSTOM)}


def arguments(text: str) -> str:
    """A tool call's arguments as they are shown."""
    return clip(text, MAX_ARGS)

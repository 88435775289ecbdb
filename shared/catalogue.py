"""The catalogue: what live workers publish about the agents that they have built and the queues that they serve."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from .record_base import Record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .keys import Keys

CACHED_SECONDS = 1.0  #: how long a client uses what it has read; workers publish once a lease


class Published(Record):
    """What a worker found out about an agent when it built it."""

    name: str
    description: str | None = None
    input_keys: tuple[str, ...] | None = None  #: of the graph's input; `None` where only a run can tell
    has_messages: bool | None = None  #: whether it takes text and news as messages; `None` where only a run can tell
    input: str | None = None
    queue: str | None = None
    broken: str | None = None  #: why it cannot be built


class _Entry(Record):
    """What one worker process has published."""

    until_ms: int  #: Unix ms on the Redis clock; then it counts no more
    agents: tuple[Published, ...]
    queues: tuple[str, ...]  #: that it takes bells from


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What all live workers have published."""

    agents: dict[str, Published]  #: by name
    queues: frozenset[str]  #: that any of them takes bells from


async def publish(
    redis: Any, keys: Keys, worker: str, agents: Iterable[Published], valid_ms: int, *, queues: Iterable[str] = ()
) -> None:
    """Publish what this worker process knows of its agents, and which queues it takes bells from.

    It counts for `valid_ms`, so it must be published again before. It replaces what this worker published before;
    entries of workers that are gone are removed.
    """
    entries, now_ms = await _entries(redis, keys)
    gone = [name for name, entry in entries.items() if entry.until_ms <= now_ms]
    if gone:
        await redis.hdel(keys.catalogue(), *gone)
    entry = _Entry(until_ms=now_ms + valid_ms, agents=tuple(agents), queues=tuple(queues))
    await redis.hset(keys.catalogue(), worker, entry.model_dump_json())


async def withdraw(redis: Any, keys: Keys, worker: str) -> None:
    """Take back what a worker process that ends has published. A second call does nothing."""
    await redis.hdel(keys.catalogue(), worker)


async def read(redis: Any, keys: Keys) -> Catalogue:
    """What all live workers have published; empty where there are none.

    An agent counts as broken only where no worker can build it: one host may lack its packages, or a key.
    """
    entries, now_ms = await _entries(redis, keys)
    alive = [entry for _, entry in sorted(entries.items()) if entry.until_ms > now_ms]
    merged: dict[str, Published] = {}
    for agent in (agent for entry in alive for agent in entry.agents):
        known = merged.get(agent.name)
        if known is None or known.broken:
            merged[agent.name] = agent
    return Catalogue(merged, frozenset(queue for entry in alive for queue in entry.queues))


class CachedCatalogue:
    """The catalogue for a client that reads it at each submit."""

    def __init__(self) -> None:
        self._cached = Catalogue({}, frozenset())
        self._until = 0.0

    async def read(self, redis: Any, keys: Keys) -> Catalogue:
        """What `read` returned at most `CACHED_SECONDS` ago. A catalogue without agents is always read anew."""
        if not self._cached.agents or time.monotonic() >= self._until:
            self._cached = await read(redis, keys)
            self._until = time.monotonic() + CACHED_SECONDS
        return self._cached


async def _entries(redis: Any, keys: Keys) -> tuple[dict[str, _Entry], int]:
    """What each worker published last, and the time in Unix ms on the Redis clock."""
    fields, (seconds, micros) = await asyncio.gather(redis.hgetall(keys.catalogue()), redis.time())
    entries: dict[str, _Entry] = {}
    for worker, text in fields.items():
        with suppress(ValidationError):  # of a worker of another version
            entries[worker.decode()] = _Entry.model_validate_json(text)
    return entries, seconds * 1000 + micros // 1000

"""The catalogue: what workers tell of the agents that they have built, and of the queues that they serve."""

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

HEARD_SECONDS = 1.0  #: that what was heard of workers counts; they repeat themselves every lease


class Published(Record):
    """What a worker found out about an agent when it built it."""

    name: str
    description: str | None = None
    input_keys: tuple[str, ...] | None = None  #: of the graph's input; `None` where only a run can tell
    has_messages: bool | None = None  #: whether it takes text and news as messages; `None` where only a run can tell
    input: str | None = None
    queue: str | None = None
    broken: str | None = None  #: why it cannot be built


class _Word(Record):
    """What one worker process says."""

    until_ms: int  #: Unix ms on the Redis clock: then it is not heard of any more
    agents: tuple[Published, ...]
    queues: tuple[str, ...]  #: that it takes bells from


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What the workers that live say."""

    agents: dict[str, Published]  #: by name
    queues: frozenset[str]  #: that any of them takes bells from


async def publish(
    redis: Any, keys: Keys, worker: str, agents: Iterable[Published], valid_ms: int, *, queues: Iterable[str] = ()
) -> None:
    """Tell submitters what this worker process knows of its agents, and which queues it takes bells from.

    To be said again before its time is over.

    Another word of the same worker is replaced; those of workers that are gone go with it.
    """
    words, now_ms = await _words(redis, keys)
    gone = [name for name, word in words.items() if word.until_ms <= now_ms]
    if gone:
        await redis.hdel(keys.catalogue(), *gone)
    word = _Word(until_ms=now_ms + valid_ms, agents=tuple(agents), queues=tuple(queues))
    await redis.hset(keys.catalogue(), worker, word.model_dump_json())


async def read(redis: Any, keys: Keys) -> Catalogue:
    """What the workers that live say; empty where none does.

    An agent is broken only where no worker can build it: a host may lack its packages, or a key.
    """
    words, now_ms = await _words(redis, keys)
    alive = [word for _, word in sorted(words.items()) if word.until_ms > now_ms]
    merged: dict[str, Published] = {}
    for agent in (agent for word in alive for agent in word.agents):
        known = merged.get(agent.name)
        if known is None or known.broken:
            merged[agent.name] = agent
    return Catalogue(merged, frozenset(queue for word in alive for queue in word.queues))


class Heard:
    """What workers say, for one that asks again and again: what was heard a moment ago is not asked anew."""

    def __init__(self) -> None:
        self._said = Catalogue({}, frozenset())
        self._until = 0.0

    async def read(self, redis: Any, keys: Keys) -> Catalogue:
        """As the function `read`, at most `HEARD_SECONDS` ago. That nobody spoke is not remembered."""
        if not self._said.agents or time.monotonic() >= self._until:
            self._said = await read(redis, keys)
            self._until = time.monotonic() + HEARD_SECONDS
        return self._said


async def _words(redis: Any, keys: Keys) -> tuple[dict[str, _Word], int]:
    """What each worker said last, and the time in Unix ms on the Redis clock."""
    fields, (seconds, micros) = await asyncio.gather(redis.hgetall(keys.catalogue()), redis.time())
    words: dict[str, _Word] = {}
    for worker, text in fields.items():
        with suppress(ValidationError):  # another version may say other things
            words[worker.decode()] = _Word.model_validate_json(text)
    return words, seconds * 1000 + micros // 1000

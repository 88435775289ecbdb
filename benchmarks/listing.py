"""How long a page of tasks takes, with few finished tasks and with many."""

from __future__ import annotations

import statistics
import time
import uuid
from typing import TYPE_CHECKING, Any

from outrider.shared.keys import Keys
from outrider.shared.statuses import Status

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis.asyncio

    from outrider import Outrider

PAGE = 50
LOADED_AT_ONCE = 1000

# KEYS  1 a finished task's record  2 … 4 the indexes it is in  5 … the new records    ARGV  task_id, created_ms, …
COPY = """
for i = 5, #KEYS do
  local id, ms = ARGV[2 * i - 9], ARGV[2 * i - 8]
  redis.call('COPY', KEYS[1], KEYS[i])
  redis.call('HSET', KEYS[i], 'task_id', id, 'created_ms', ms)
  for index = 2, 4 do redis.call('ZADD', KEYS[index], ms, id) end
end
"""


async def fill(client: redis.asyncio.Redis, namespace: str, task_id: str, agent: str, count: int) -> None:
    """Let there be so many finished tasks more, older than this one.

    Each has what a list reads of a task that a worker has finished: its record, and its places in the indexes.
    """
    keys = Keys(namespace)
    record = keys.task(task_id)
    indexes = [keys.tasks(), keys.agent(agent), keys.status(Status.SUCCESS)]
    newest = int(await client.hget(record, "created_ms") or 0)  # type: ignore[misc]  # redis-py's union of both faces
    for at in range(0, count, LOADED_AT_ONCE):
        ids = [str(uuid.uuid4()) for _ in range(at, min(count, at + LOADED_AT_ONCE))]
        new = [keys.task(one) for one in ids]
        args: list[Any] = [part for number, one in enumerate(ids, at + 1) for part in (one, newest - number)]
        await client.eval(COPY, 4 + len(new), record, *indexes, *new, *args)  # type: ignore[misc]


async def pages(outrider: Outrider, agent: str, rounds: int) -> dict[str, float]:
    """Milliseconds for a page of each kind, p50."""
    first = await outrider.list(limit=PAGE)
    kinds: dict[str, dict[str, Any]] = {
        "newest": {},
        "the page after": {"before": first.next},
        "of one status": {"status": "success"},
        "of one agent": {"agent": agent},
        "of one agent and a rare status": {"agent": agent, "status": "error"},
    }
    took: dict[str, list[float]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        for kind, asked in kinds.items():
            started = time.perf_counter()
            await outrider.list(limit=PAGE, **asked)
            took[kind].append(time.perf_counter() - started)
    return dict(_medians(took))


def _medians(took: dict[str, list[float]]) -> Iterator[tuple[str, float]]:
    for kind, seconds in took.items():
        yield kind, round(statistics.median(seconds) * 1000, 2)

"""The store's reads: one task, a page of tasks, a task's events. Nothing here changes anything."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .bells import bell_for
from .chunks import chunks
from .errors import BadInput, UnknownTask
from .ids import check_id
from .keys import Keys
from .listings import Page
from .notification import Notification
from .record_layout import hash_of
from .records import Delivery, Event, Run, Task
from .scripts import Scripts
from .transitions import Facts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Sequence

    import redis.asyncio

    from .bells import Bell
    from .statuses import Status

CHUNK = 200  #: index members that are read at once
LARGE = (b"result", b"interrupts", b"rubric")  #: what `get` reads beside the record


class Queries:
    """Reads of the store."""

    def __init__(self, redis: redis.asyncio.Redis, namespace: str) -> None:
        self.redis: Any = redis  # redis-py types replies as bytes or str; ours are bytes
        self.keys = Keys(namespace)
        self._scripts = Scripts(redis)

    async def now_ms(self) -> int:
        """Unix ms on the Redis clock, the one by which all moments in records are."""
        seconds, micros = await self.redis.time()
        return int(seconds * 1000 + micros // 1000)

    async def get(self, task_id: str) -> Task:
        """The task with its runs and its result; `UnknownTask` where there is none."""
        keys = [self.keys.task(task_id), self.keys.runs(task_id), self.keys.large(task_id)]
        found, run_ids, large = await self._scripts("read", keys, LARGE)
        if not found:
            raise UnknownTask(task_id)
        fields = hash_of(found)
        async with self.redis.pipeline(transaction=False) as pipe:
            for run_id in run_ids:
                pipe.hgetall(self.keys.run(run_id.decode()))
            runs = tuple(Run.from_hash(run) for run in await pipe.execute() if run)
        if fields.get(b"webhook"):
            runs = await self._with_deliveries(runs)
        return Task.from_hash(fields, runs, dict(zip(LARGE, large, strict=True)))

    async def _with_deliveries(self, runs: tuple[Run, ...]) -> tuple[Run, ...]:
        async with self.redis.pipeline(transaction=False) as pipe:
            for run in runs:
                pipe.hgetall(self.keys.delivery(run.run_id))
            found = await pipe.execute()
        return tuple(
            run.model_copy(update={"delivery": Delivery.from_hash(fields)}) if fields else run
            for run, fields in zip(runs, found, strict=True)
        )

    async def result_json(self, task_id: str) -> str:
        """JSON text of the result that the task's last run wrote, also where the task has not ended; empty: none."""
        return (await self.redis.hget(self.keys.large(task_id), "result") or b"").decode()

    async def request(self, task_id: str) -> str:
        """The beginning of the text that a task with a rubric was submitted with; empty where that is not kept."""
        return (await self.redis.hget(self.keys.large(task_id), "request") or b"").decode()

    async def peek(self, task_id: str) -> Task:
        """The task's record alone, in one round trip."""
        fields = await self.redis.hgetall(self.keys.task(task_id))
        if not fields:
            raise UnknownTask(task_id)
        return Task.from_hash(fields)

    async def facts(self, task_id: str) -> Facts | None:
        """The facts of a task, or `None` where there is no such task. Reads less than `peek`."""
        names = ["agent", "title", "parent_id", "ancestors", "webhook"]
        fields = await self.redis.hmget(self.keys.task(task_id), names)
        if fields[0] is None:
            return None
        agent, title, parent_id, ancestors, webhook = ((field or b"").decode() for field in fields)
        return Facts(task_id, agent, title, parent_id or None, tuple(ancestors.split()), bool(webhook))

    async def get_run(self, run_id: str) -> Run | None:
        """One run's record, or `None` where there is none."""
        fields = await self.redis.hgetall(self.keys.run(run_id))
        return Run.from_hash(fields) if fields else None

    async def list(
        self,
        *,
        statuses: Collection[Status] = (),
        agent: str | None = None,
        parent_id: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Page:
        """A page of tasks, newest first; of any of `statuses` (none: of all), of one agent, of one parent.

        `before` is the `next` of the page before. One more than `limit` is looked for, so that `more` is exact.
        """
        if before is not None and not await self.redis.exists(self.keys.task(check_id(before, "cursor"))):
            raise BadInput(f"cursor {before} names no task: take `next` of the page before")
        wanted = frozenset(statuses)
        found: list[Task] = []
        for index in await self._indexes(wanted, agent, parent_id):
            matching = self._walk(index, before, lambda t: _matches(t, wanted, agent, parent_id), page=limit + 2)
            taken = 0
            async for task in matching:
                found.append(task)
                taken += 1
                if taken > limit:
                    break
        found.sort(key=lambda task: (task.created_at, task.task_id), reverse=True)
        shown = tuple(found[:limit])
        more = len(found) > limit
        return Page(tasks=shown, more=more, next=shown[-1].task_id if more and shown else None)

    async def _indexes(self, statuses: frozenset[Status], agent: str | None, parent_id: str | None) -> Sequence[str]:
        """The indexes that a list walks: the shortest ones that have all tasks it looks for."""
        if parent_id is not None:
            return [self.keys.children(parent_id)]
        by_status = [self.keys.status(status) for status in statuses]
        if agent is None:
            return by_status or [self.keys.tasks()]
        by_agent = self.keys.agent(agent)
        sizes = [await self.redis.zcard(index) for index in (by_agent, *by_status)]
        return by_status if by_status and sum(sizes[1:]) < sizes[0] else [by_agent]

    async def children_of(self, task_ids: Sequence[str]) -> AsyncIterator[tuple[Task, ...]]:
        """All children of these tasks, ended or not, a page at a time; of each task the newest first."""
        for some in chunks(task_ids, CHUNK):
            async with self.redis.pipeline(transaction=False) as pipe:
                for task_id in some:
                    pipe.zrevrange(self.keys.children(task_id), 0, -1)
                found = await pipe.execute()
            for page in chunks([member.decode() for members in found for member in members], CHUNK):
                yield tuple(Task.from_hash(fields) for fields in await self._records(page) if fields)

    async def _records(self, task_ids: Sequence[str]) -> Sequence[dict[bytes, bytes]]:
        """The records of tasks; an empty one where there is none any more."""
        async with self.redis.pipeline(transaction=False) as pipe:
            for task_id in task_ids:
                pipe.hgetall(self.keys.task(task_id))
            records: Sequence[dict[bytes, bytes]] = await pipe.execute()
        return records

    async def _walk(
        self, index: str, before: str | None, wanted: Callable[[Task], bool], page: int
    ) -> AsyncIterator[Task]:
        """Tasks of one index, newest first, older than `before`; a page is read at first, then more at a time."""
        top: float | str = "+inf"
        if before is not None:
            # Every index of a task has the same score: when it was created.
            top = int(await self.redis.hget(self.keys.task(before), "created_ms") or 0)
        offset, count = 0, min(page, CHUNK)
        while True:
            members = await self.redis.zrevrangebyscore(index, top, "-inf", offset, count, withscores=True)
            offset += len(members)
            ids = [m.decode() for m, score in members if before is None or score < top or m.decode() < before]
            for fields in await self._records(ids):
                if fields and wanted(task := Task.from_hash(fields)):
                    yield task
            if len(members) < count:
                return
            count = min(2 * count, CHUNK)

    async def notes_of(self, entries: Sequence[Any]) -> tuple[Notification, ...]:
        """The notifications in entries of an inbox; `overtaken` is set where the child's task has gone on since."""
        notes = [Notification.from_entry(entry) for entry in entries]
        if not notes:
            return ()
        async with self.redis.pipeline(transaction=False) as pipe:
            for note in notes:
                pipe.lindex(self.keys.runs(note.task_id), -1)
            newest = [(run or b"").decode() for run in await pipe.execute()]
        gone_on = [
            run not in {"", note.run_id} and await self.graded_run(run) != note.run_id
            for note, run in zip(notes, newest, strict=True)
        ]
        return tuple(
            note.model_copy(update={"overtaken": True}) if later else note
            for note, later in zip(notes, gone_on, strict=True)
        )

    async def graded_run(self, run_id: str) -> str | None:
        """The agent's run that a grade run grades; `None` of any other run."""
        graded = await self.redis.hget(self.keys.run(run_id), "of_run")
        return graded.decode() if graded else None

    async def last_event_id(self, task_id: str) -> str:
        """Where the task's event stream ends now: `0-0` where it has none."""
        entries = await self.redis.xrevrange(self.keys.events(task_id), count=1)
        return entries[0][0].decode() if entries else "0-0"

    async def events(
        self, task_id: str, after: str, *, reader: Any, block_ms: int | None = None, count: int = 500
    ) -> tuple[Event, ...]:
        """Events after an id. With `block_ms` it waits that long for one (0: for ever), on `reader`'s connection."""
        reply = await reader.xread({self.keys.events(task_id): after}, count=count, block=block_ms)
        return tuple(_event(entry_id, fields) for _, entries in reply or () for entry_id, fields in entries)

    async def bell_of(self, task_id: str, run_id: str) -> Bell | None:
        """The bell of a run, or `None` where there is no such task or run."""
        run = await self.get_run(run_id)
        try:
            task = await self.peek(task_id)
        except UnknownTask:
            return None
        return None if run is None else self.bell(task, run)

    def bell(self, task: Task, run: Run) -> Bell:
        """The bell of a run."""
        return bell_for(task.task_id, run.run_id, queue=run.queue, agent=task.agent, title=task.title, kind=run.kind)


def _matches(task: Task, statuses: frozenset[Status], agent: str | None, parent_id: str | None) -> bool:
    return (
        (not statuses or task.status in statuses)
        and (agent is None or task.agent == agent)
        and (parent_id is None or task.parent_id == parent_id)
    )


def _event(entry_id: bytes, fields: dict[bytes, bytes]) -> Event:
    text = entry_id.decode()
    return Event.model_validate(
        {
            "id": text,
            "type": fields[b"type"].decode(),
            "at": int(text.split("-", 1)[0]),
            "run_id": (fields.get(b"run") or b"").decode() or None,
            "data": json.loads(fields.get(b"data") or b"{}"),
        }
    )

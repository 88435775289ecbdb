"""Waiting for a task and following it, by blocking reads of its event stream; both survive a restart of Redis."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any, Self

from ..shared.connections import reachable
from ..shared.errors import BadInput, RedisUnreachable, WaitTimeout
from ..shared.ids import check_id, shorten
from ..shared.pauses import doubling
from ..shared.statuses import Status
from .reading import read_task

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    import redis.asyncio

    from ..shared.records import Event, Task
    from ..shared.settings import Settings
    from ..shared.store_queries import Queries
    from .session import Session

BLOCK_MS = 10_000  #: a read that heard nothing for so long ends; then the record is looked at again
ANSWER_SECONDS = 5  #: how much later than that the answer may come before the connection counts as dead
PATIENCE_SECONDS = 60  #: how long a Redis that was reached once may stay away; a big file takes time to load
RETRY_SECONDS = (0.1, 2.0)  #: first and longest pause between two tries to reach it


async def wait(session: Session, task_id: str, timeout: float | None) -> Task:  # noqa: ASYNC109 as `Outrider.wait`
    """Do what `Outrider.wait` does."""
    check_id(task_id)
    bound = check_timeout(timeout)
    with session.reachable():
        after = await session.store.last_event_id(task_id)
        task = await session.store.peek(task_id)
    async with session.watch() as watch:
        await watch.rest(task, after, bound)
    return await read_task(session, task_id)


async def follow(session: Session, task_id: str, after: str) -> AsyncGenerator[Event, None]:
    """Do what `Outrider.follow` does."""
    check_id(task_id)
    check_event_id(after)
    with session.reachable():
        task = await session.store.peek(task_id)
    async with session.watch() as watch:
        async for event in watch.events(task, after):
            yield event


class Watch:
    """A reader of one task's events on a connection of its own. `async with` closes it."""

    def __init__(self, store: Queries, open_reader: Callable[[], redis.asyncio.Redis], settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._open = open_reader
        self._reader = open_reader()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._reader.aclose()

    async def events(self, task: Task, after: str) -> AsyncIterator[Event]:
        """Every event after `after`, as it comes, until the task is settled."""
        while True:
            # The record is read before the events: a settled task's events are all there.
            batch = await self.read(task.task_id, after, block=not task.settled)
            for event in batch:
                yield event
                after = event.id
            if not batch and task.settled:
                return
            if not batch or any(tells_status(event) for event in batch):
                task = await self.peek(task.task_id)

    async def rest(self, task: Task, after: str, timeout: float | None) -> None:  # noqa: ASYNC109 as `wait` has it
        """Return when the task is at rest; `WaitTimeout` after `timeout` seconds. The task goes on either way."""
        if timeout == 0 and not at_rest(task):
            raise WaitTimeout(task.task_id, task.status, timeout)
        try:
            async with asyncio.timeout(timeout) as bound:
                while not at_rest(task):
                    batch = await self.read(task.task_id, after, block=True)
                    after = batch[-1].id if batch else after
                    if not batch or any(tells_status(event) for event in batch):
                        task = await self.peek(task.task_id)
        except TimeoutError:
            if bound.expired() and timeout is not None:
                raise WaitTimeout(task.task_id, task.status, timeout) from None
            raise

    async def peek(self, task_id: str) -> Task:
        """The task's record; waits for a Redis that is away."""
        task: Task = await self.patiently(lambda: self._store.peek(task_id))
        return task

    async def read(self, task_id: str, after: str, *, block: bool, at_most_ms: int | None = None) -> tuple[Event, ...]:
        """Events after `after`; none came where the answer is empty. Waits for a Redis that is away."""
        block_ms = min(at_most_ms or BLOCK_MS, BLOCK_MS) if block else None
        events: tuple[Event, ...] = await self.patiently(lambda: self._read(task_id, after, block=block_ms))
        return events

    async def _read(self, task_id: str, after: str, *, block: int | None) -> tuple[Event, ...]:
        # A server that vanished never answers: the client must not wait for ever.
        async with asyncio.timeout(BLOCK_MS / 1000 + ANSWER_SECONDS):
            return await self._store.events(task_id, after, reader=self._reader, block_ms=block or None)

    async def patiently(self, ask: Callable[[], Any]) -> Any:
        """Call `ask` until Redis answers, and return what it returns."""
        until, pauses = time.monotonic() + PATIENCE_SECONDS, doubling(*RETRY_SECONDS)
        while True:
            pause = next(pauses)
            try:
                with reachable(self._settings):
                    return await ask()
            except RedisUnreachable:
                if time.monotonic() + pause > until:
                    raise
            await self._reader.aclose()
            self._reader = self._open()
            await asyncio.sleep(pause)


def tells_status(event: Event) -> bool:
    """Whether the task's record may have another status after this event."""
    return event.type.startswith(("task.", "run."))


def at_rest(task: Task) -> bool:
    """Whether nothing goes on by itself: the task has settled, or waits for a person."""
    return task.settled or task.status is Status.WAITING


def check_timeout(timeout: Any) -> float | None:
    """Return the bound of a wait in seconds; `BadInput` where `timeout` cannot be one."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 <= timeout <= sys.float_info.max:
        raise BadInput(f"timeout {shorten(repr(timeout))} must be a number of seconds, 0 or more (None: no bound)")
    return float(timeout)


def check_event_id(after: Any) -> None:
    """Check that this can be the id of an event, else raise `BadInput`."""
    parts = after.split("-") if isinstance(after, str) else [""]
    if len(parts) > 2 or not all(part.isascii() and part.isdigit() for part in parts):  # noqa: PLR2004 ms and number
        raise BadInput(f"event id {shorten(repr(after))} must be the id of an event, such as 1700000000000-0 (0: all)")

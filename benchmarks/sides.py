"""The two that are compared, each as a client sees it: bare Celery, and outrider."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from outrider import Outrider, connect
from outrider.shared.broker import make_app
from outrider.shared.keys import Keys
from outrider.shared.statuses import Status

if TYPE_CHECKING:
    from types import TracebackType

    import redis.asyncio
    from common import WorkerProcess

    from outrider.shared.settings import Settings

QUEUE = "subagents"
IN_FLIGHT = 16  #: submits that an async client has under way at a time
PATIENCE_SECONDS = 300  #: for anything that a worker is to do
LOOK_SECONDS = 0.01  #: between two looks at the count of tasks that have not ended


class _Held:
    """What both have: a worker, or several, that can be held."""

    def __init__(self, settings: Settings, worker: WorkerProcess, workers: int = 1) -> None:
        self.worker, self.workers = worker, workers
        self.app = make_app(settings)

    def hold(self) -> None:
        """Let the worker take no more from the queue."""
        self._tell(self.app.control.cancel_consumer)

    def go(self) -> None:
        """Let it take from the queue again."""
        self._tell(self.app.control.add_consumer)

    def _tell(self, command: Any) -> None:
        # Some may still be starting; told again, the others change nothing.
        until = time.monotonic() + PATIENCE_SECONDS
        while len(command(QUEUE, reply=True, limit=self.workers, timeout=10) or ()) < self.workers:
            if time.monotonic() > until:
                raise RuntimeError(f"not every worker answers {command.__name__}")


class Bare(_Held):
    """Celery tasks that do nothing; the last of them tells that it was reached."""

    def __init__(self, settings: Settings, worker: WorkerProcess, client: redis.asyncio.Redis) -> None:
        super().__init__(settings, worker)
        self._client = client

    async def one(self) -> None:
        """Submit one task, and return when it is known here that it is done."""
        key = f"{{bench}}:{uuid.uuid4().hex}"
        self._send("bare.mark", key)
        if await self._client.blpop(key, timeout=PATIENCE_SECONDS) is None:
            raise RuntimeError("the bare worker does not answer")

    async def submit(self, count: int) -> dict[str, float]:
        """Submit so many; tasks per second, by the way in which they were submitted."""
        started = time.perf_counter()
        for _ in range(count):
            self._send("bare.noop", str(uuid.uuid4()))
        return {"send_task": count / (time.perf_counter() - started)}

    async def all_done(self) -> None:
        """Return when every task that was submitted is done."""
        # A queue is first in, first out: what was sent after all others is reached after them.
        await self.one()

    def _send(self, name: str, second: str) -> None:
        with self.app.producer_pool.acquire(block=True) as producer:
            self.app.send_task(
                name,
                args=(str(uuid.uuid4()), second),
                queue=QUEUE,
                producer=producer,
                ignore_result=True,
                retry=False,
                argsrepr="bare",
                kwargsrepr="{}",
            )


class Ours(_Held):
    """outrider tasks of one agent."""

    def __init__(
        self, settings: Settings, worker: WorkerProcess, client: redis.asyncio.Redis, agent: str, workers: int = 1
    ) -> None:
        super().__init__(settings, worker, workers)
        self.settings, self.agent = settings, agent
        self._redis, self._keys = client, Keys(settings.namespace)
        self.outrider = Outrider(settings)

    async def __aenter__(self) -> Self:
        await self.outrider.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.outrider.__aexit__(kind, error, trace)

    async def one(self, **submit: Any) -> None:
        """Submit one task, and return when it is known here that it is done."""
        submitted = await self.outrider.submit(self.agent, "go", **submit)
        task = await self.outrider.wait(submitted.task_id, timeout=PATIENCE_SECONDS)
        if task.status is not Status.SUCCESS:
            raise RuntimeError(f"task {task.task_id} is {task.status}: {task.error}")

    async def submit(self, count: int) -> dict[str, float]:
        """Submit so many; tasks per second, by the way in which they were submitted."""
        blocking = count // 5
        rates = {"sync": await asyncio.to_thread(self._submit_blocking, blocking)}
        started = time.perf_counter()
        await self.submit_in_flight(count - blocking)
        return rates | {"async": (count - blocking) / (time.perf_counter() - started)}

    async def submit_in_flight(self, count: int, **submit: Any) -> list[str]:
        """Submit so many, several at a time; returns their ids."""
        numbers, ids = iter(range(count)), []

        async def some() -> None:
            ids.extend([(await self.outrider.submit(self.agent, "go", **submit)).task_id for _ in numbers])

        await asyncio.gather(*(some() for _ in range(IN_FLIGHT)))
        return ids

    def _submit_blocking(self, count: int) -> float:
        with connect(self.settings) as client:
            client.submit(self.agent, "go")  # connects
            started = time.perf_counter()
            for _ in range(count - 1):
                client.submit(self.agent, "go")
            return (count - 1) / (time.perf_counter() - started)

    async def all_done(self) -> None:
        """Return when every task that was submitted is done."""
        open_ones = [self._keys.status(status) for status in (Status.PENDING, Status.RUNNING)]
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any([await self._redis.zcard(key) for key in open_ones]):  # noqa: ASYNC110 Redis counts, nobody tells
                await asyncio.sleep(LOOK_SECONDS)
        if failed := await self._redis.zcard(self._keys.status(Status.ERROR)):
            raise RuntimeError(f"{failed} tasks ended in error")


Side: TypeAlias = Bare | Ours

"""The loop's default executor, which knows for which run each of its jobs works.

LangGraph runs sync nodes and tools here. Cancelling the coroutine that waits for such a job does not stop its thread:
only the job's own end tells that a run's code has really ended.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    P = ParamSpec("P")
T = TypeVar("T")

SMALLEST, LARGEST = 8, 256  #: threads, whatever the concurrency of the worker


class Jobs:
    """The jobs of one run that have not ended."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._open: set[Future[Any]] = set()
        self._waiter: asyncio.Future[None] | None = None

    def add(self, job: Future[Any]) -> None:
        """Count a job, from the loop or from another job's thread."""
        self._open.add(job)
        job.add_done_callback(self._ended)

    def _ended(self, job: Future[Any]) -> None:
        self._open.discard(job)
        if self._waiter is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        if not self._open and self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def ended(self) -> None:
        """Return when no job is open."""
        while self._open:
            self._waiter = self._loop.create_future()
            self._wake()
            await self._waiter


#: Set around each run; LangGraph's tasks and threads copy it.
current_jobs: ContextVar[Jobs | None] = ContextVar("outrider_jobs", default=None)


class JobExecutor(ThreadPoolExecutor):
    """Threads for the sync code of agents."""

    def __init__(self, concurrency: int) -> None:
        size = min(max(concurrency, SMALLEST), LARGEST)
        super().__init__(max_workers=size, thread_name_prefix="outrider-agent")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Start a job and count it for the run in whose context this is called."""
        job = super().submit(_without_stop_iteration, fn, *args, **kwargs)
        if (jobs := current_jobs.get()) is not None:
            jobs.add(job)
        return job


def _without_stop_iteration(fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call it, with a `RuntimeError` for a `StopIteration`: no asyncio future takes one, so its caller would hang."""
    try:
        return fn(*args, **kwargs)
    except StopIteration as error:
        raise RuntimeError("the code raised StopIteration (`next` of what is at its end?)") from error

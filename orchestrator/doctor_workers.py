"""The findings of `doctor` on workers and queues: who is online, what is served, and what waits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..shared.broker import BROKER_ERRORS, BrokerUnreachable, make_app
from ..shared.queues import QUEUES
from ..shared.redis_checks import Finding, Level

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from celery import Celery

    from ..shared.settings import Settings

ANSWER_SECONDS: Final = 1.0  #: that workers have to answer


@dataclass(frozen=True, slots=True)
class LiveWorker:
    """A worker that answered."""

    name: str
    queues: tuple[str, ...]
    concurrency: int | None
    pool: str | None


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue that runs go to."""

    name: str
    bells: int  #: that no worker has heard yet
    workers: int  #: that serve it
    pending: bool  #: whether runs wait for it


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers that are online, and the queues."""

    workers: tuple[LiveWorker, ...]
    queues: tuple[Queue, ...]

    @property
    def unserved(self) -> frozenset[str]:
        """The queues that no worker takes bells of."""
        return frozenset(queue.name for queue in self.queues if not queue.workers)


async def read_fleet(settings: Settings, named: Iterable[str | None], pending: frozenset[str]) -> Fleet:
    """Ask the broker and the workers; `named` are queues that agents name, `pending` those that runs wait for.

    `BrokerUnreachable` where the broker does not answer.
    """
    app = make_app(settings)
    served, stats = await asyncio.gather(
        asyncio.to_thread(_ask, app, "active_queues"), asyncio.to_thread(_ask, app, "stats")
    )
    workers = tuple(_worker(name, served[name], stats.get(name) or {}) for name in sorted(served))
    names = sorted({*QUEUES, *filter(None, named), *pending, *(name for one in workers for name in one.queues)})
    lengths = await asyncio.to_thread(_lengths, app, names)
    queues = tuple(
        Queue(name, lengths[name], sum(name in worker.queues for worker in workers), name in pending) for name in names
    )
    return Fleet(workers, queues)


def _ask(app: Celery, what: str) -> dict[str, Any]:
    try:
        with app.connection_for_read() as connection:
            connection.ensure_connection(max_retries=1, interval_start=0)
            asking = app.control.inspect(timeout=ANSWER_SECONDS, connection=connection)
            return getattr(asking, what)() or {}
    except BROKER_ERRORS as error:
        raise BrokerUnreachable(app.conf.broker_read_url, str(error)) from None


def _worker(name: str, queues: list[dict[str, Any]], stats: dict[str, Any]) -> LiveWorker:
    pool = stats.get("pool") or {}
    kind = str(pool.get("implementation") or "").partition(":")[0].rpartition(".")[2]
    served = tuple(sorted(queue["name"] for queue in queues))
    return LiveWorker(name, served, pool.get("max-concurrency"), {"thread": "threads"}.get(kind, kind) or None)


def _lengths(app: Celery, names: Iterable[str]) -> dict[str, int]:
    try:
        with app.connection_for_read() as connection:
            return {name: _length(connection, name) for name in names}
    except BROKER_ERRORS as error:
        raise BrokerUnreachable(app.conf.broker_read_url, str(error)) from None


def _length(connection: Any, name: str) -> int:
    # A channel for each: one that is asked for a queue that is not there ends.
    with connection.channel() as channel:
        # On Redis kombu looks for the queue itself without the namespace's prefix, and finds none; it counts with it.
        if size := getattr(channel, "_size", None):
            return int(size(name))
        try:
            return int(channel.queue_declare(name, passive=True).message_count)
        except connection.channel_errors:
            return 0


def check_fleet(fleet: Fleet) -> Iterator[Finding]:
    """Findings on workers and queues."""
    if not fleet.workers:
        yield Finding(
            Level.ERROR, "no worker is online: tasks stay pending", "start one: outrider worker (or outrider dev)"
        )
        return
    for queue in fleet.queues:
        if queue.name in fleet.unserved:
            waits = queue.bells or queue.pending
            yield Finding(
                Level.ERROR if waits else Level.WARNING,
                f"no worker serves the queue {queue.name}" + (", where runs wait" if waits else ""),
                f"start one: outrider worker -Q {queue.name}",
            )

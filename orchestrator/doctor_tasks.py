"""The findings of `doctor` on tasks: those that wait for long, lose their workers, or rest without a reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..shared.records import Run, Task
from ..shared.redis_checks import Finding, Level
from ..shared.statuses import Phase, RunStatus, Status

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from ..shared.settings import Settings
    from ..shared.store import Store
    from ..shared.store_deliveries import Troubles

LOOK: Final = 500  #: tasks of a status that are looked at, oldest first
NAMED: Final = 3  #: ids that a finding names


@dataclass(frozen=True, slots=True)
class Seen:
    """A task that has not ended, with the facts that show whether it is in trouble."""

    task: Task
    run: Run | None
    since_ms: int  #: ms since its last change
    rings: int  #: how often its bell was rung again
    late_ms: int  #: for how long its lease or its bell is overdue; below 0: it is not
    open_children: int

    @property
    def waits(self) -> bool:
        """Whether its run, of an agent or a grader, waits for a worker."""
        return self.run is not None and self.run.status is RunStatus.PENDING

    @property
    def failures(self) -> int:
        """Lost workers and retried errors of its run since the last new checkpoint."""
        return self.run.failures if self.run and self.run.saves == self.task.saves else 0


@dataclass(frozen=True, slots=True)
class Tasks:
    """How many tasks there are of each status, and the oldest of those that are under way."""

    counts: dict[str, int]
    seen: tuple[Seen, ...]

    def queues(self) -> frozenset[str]:
        """The queues that runs wait for."""
        return frozenset(one.run.queue for one in self._pending if one.run)

    @property
    def _pending(self) -> list[Seen]:
        return [one for one in self.seen if one.waits]

    def facts(self) -> dict[str, Any]:
        """The public form."""
        oldest = max(self._pending, key=lambda one: one.since_ms, default=None)
        return {
            "by_status": self.counts,
            "looked_at": len(self.seen),
            "wait_for_slots": dict(Counter(one.task.agent for one in self._pending if one.task.waits_for == "slot")),
            "oldest_pending": oldest
            and {"task_id": oldest.task.task_id, "seconds": oldest.since_ms // 1000, "queue": _queue(oldest)},
        }


async def read_tasks(store: Store) -> Tasks:
    """Count the tasks, and read the oldest of those that wait for a worker or have one."""
    redis, keys = store.redis, store.keys
    now = await store.now_ms()
    async with redis.pipeline(transaction=False) as pipe:
        for status in Status:
            pipe.zcard(keys.status(status))
        counts = dict(zip((status.value for status in Status), await pipe.execute(), strict=True))
    ids = [
        task_id.decode()
        for status in (Status.PENDING, Status.RUNNING)
        for task_id in await redis.zrange(keys.status(status), 0, LOOK - 1)
    ]
    async with redis.pipeline(transaction=False) as pipe:
        for task_id in ids:
            pipe.hgetall(keys.task(task_id))
            pipe.scard(keys.open_children(task_id))
        rows = await pipe.execute()
    found = [(Task.from_hash(fields), count) for fields, count in zip(rows[::2], rows[1::2], strict=True) if fields]
    async with redis.pipeline(transaction=False) as pipe:
        for task, _ in found:
            member = f"{task.task_id}/{task.run_id}"
            pipe.hgetall(keys.run(task.run_id or ""))
            # It waits or is held; of a task that is graded the status does not tell which.
            pipe.zscore(keys.ring_at(), member)
            pipe.zscore(keys.leases(), member)
        rows = await pipe.execute()
    seen = [
        Seen(
            task=task,
            run=Run.from_hash(fields) if fields else None,
            since_ms=now - round(task.updated_at.timestamp() * 1000),
            rings=int(fields.get(b"rings") or 0),
            late_ms=now - int(rung or held) if rung or held else -1,
            open_children=count,
        )
        for (task, count), fields, rung, held in zip(found, rows[::3], rows[1::3], rows[2::3], strict=True)
    ]
    return Tasks(counts, tuple(seen))


def check_tasks(
    tasks: Tasks, settings: Settings, *, workers: bool, unserved: Collection[str] = ()
) -> Iterator[Finding]:
    """Findings on tasks, beyond those on workers: that none is online, or that none serves a queue.

    `workers`: whether any is online; `unserved`: queues that none of them serves.
    """
    waits = [one for one in tasks.seen if one.waits and one.rings > 0 and one.task.waits_for != "slot"]
    for queue in Counter(_queue(one) for one in waits) if workers else ():
        if queue in unserved:
            continue
        there = [one for one in waits if _queue(one) == queue]
        longest = max(one.since_ms for one in there) // 1000
        yield Finding(
            Level.WARNING,
            f"{_tasks(there, 'waits', 'wait')} for the queue {queue}, the longest for {longest} s: "
            "nobody answers bells that were rung again",
            f"start more workers for it: outrider worker -Q {queue}",
        )
    unswept = [one for one in tasks.seen if one.late_ms > 2 * settings.lease_ms]
    if unswept and workers:
        yield Finding(
            Level.ERROR,
            f"{_tasks(unswept, 'lost its worker or its bell', 'lost their workers or bells')}, and no worker takes up",
            "look into the workers' logs for sweep.failing",
        )
    last = [one for one in tasks.seen if 0 < one.failures >= (one.task.max_attempts or settings.max_attempts) - 1]
    if last:
        yield Finding(
            Level.WARNING,
            f"{_tasks(last, 'is', 'are')} at the last attempt, after lost workers or errors",
            "was a worker killed, out of memory? See its log, and `outrider show ID`",
        )
    stuck = [
        one
        for one in tasks.seen
        if one.task.phase is Phase.RESTING and one.open_children == 0 and one.task.seq <= one.task.given
    ]
    if stuck:
        yield Finding(
            Level.ERROR,
            f"{_tasks(stuck, 'rests', 'rest')} with no child that would wake it",
            "end it: outrider cancel ID",
        )


def check_deliveries(troubles: Troubles) -> Iterator[Finding]:
    """Findings on deliveries to webhooks."""
    if troubles.given_up:
        yield Finding(
            Level.WARNING,
            f"deliveries to webhooks that were tried too often and given up: {troubles.given_up}",
            "ask for these tasks: the workers' logs name them in webhook.given_up",
        )
    if troubles.failing:
        yield Finding(
            Level.WARNING,
            f"deliveries to webhooks that fail and are tried again: {troubles.failing}, one of them with "
            f"{troubles.error}",
            "look at the receiver; outrider show ID tells of each",
        )
    if troubles.waiting:
        yield Finding(
            Level.ERROR,
            f"deliveries to webhooks that wait, and no worker sends them: {troubles.waiting}",
            "start workers with OUTRIDER_WEBHOOK_SECRET set, to the same text as where tasks are submitted",
        )


def _queue(one: Seen) -> str:
    return one.run.queue if one.run else ""


def _tasks(seen: list[Seen], verb: str, verbs: str) -> str:
    ids = ", ".join(one.task.task_id for one in seen[:NAMED])
    more = f" and {len(seen) - NAMED} more" if len(seen) > NAMED else ""
    return f"task {ids} {verb}" if len(seen) == 1 else f"tasks {ids}{more} {verbs}"

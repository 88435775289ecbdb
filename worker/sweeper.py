"""The sweeper deals with lost leases, overdue bells, expired questions, unfinished cancels and old trees.

Any number of processes may sweep: each change is one of the store's transitions, so what two of them find is done once.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from ..shared.broker import BrokerUnreachable
from ..shared.context import Claim
from ..shared.errors import UnknownTask
from ..shared.refusals import is_away
from ..shared.statuses import EndedAs, RunKind, RunStatus, Status
from ..shared.store_clockwork import SWEEP_PAGE
from ..shared.store_removal import PAGE
from ..shared.text import counted
from ..shared.transitions import Ending, Facts, Settled
from .grader_subject import Subject
from .outcomes import Graded, ending
from .retention import Retention
from .rounds import Rounds

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping

    from ..shared.bells import Bell
    from ..shared.records import Run, Task
    from ..shared.settings import Settings
    from ..shared.store import Store

LOST = "WorkerLost"  #: the type of its error
TICK_SECONDS = 0.002  #: added to a moment on Redis' clock, which counts whole ms: by then it has passed

log = structlog.get_logger("outrider.sweeper")


class Sweeper:
    """Sweeps in a process's loop; `ring` sends a bell and `tell` an event to monitors, both off the loop.

    `slots` says, by agents' names, how many runs may be at work at once (0: no bound).
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        ring: Callable[[Bell], Awaitable[None]],
        tell: Callable[[str, str, str], Awaitable[None]],
        slots: Mapping[str, int],
    ) -> None:
        self._settings, self._store, self._send, self._tell = settings, store, ring, tell
        self._slots = slots
        self._retention = Retention(settings, store)
        self._rounds = Rounds(settings.sweep_seconds, lambda error: log.warning("sweep.failing", error=error))
        self._ringing = asyncio.Lock()
        self._broker_away = False  #: since this sweep found it so
        self._untold = False  #: monitors, since this sweep could not tell them
        self._complained = False  #: of a broker that is away

    async def run(self) -> None:
        """Sweep for ever. Redis or the broker may go away meanwhile."""
        await self._rounds.run(self.sweep)

    def look_in(self, seconds: float) -> None:
        """Sweep in so many seconds too: a run that this process gave back waits until then."""
        asyncio.get_running_loop().call_later(seconds + TICK_SECONDS, self._rounds.look)

    async def sweep(self) -> bool:
        """Sweep once; whether there is more to do at once."""
        store, keys, lease_ms = self._store, self._store.keys, self._settings.lease_ms
        self._broker_away = self._untold = False
        due = await store.sweep(lease_ms=lease_ms, every_ms=self._settings.sweep_seconds * 1000)
        unclosed = await store.unclosed(older_than_ms=lease_ms)
        old_trees = await store.old_trees(older_than_ms=self._settings.retention_ms)
        condemned = await store.condemned()
        # All at once, since their runs stand still: what they ask of Redis goes in a few exchanges.
        done = sum(await asyncio.gather(*(self._member(keys.leases(), *one, self._take_lost) for one in due.lost)))
        for index, members, deal in (
            (keys.ring_at(), due.overdue, self._ring_overdue),
            (keys.answer_until(), due.unanswered, self._expire),
        ):
            for task_id, run_id in members:
                done += await self._member(index, task_id, run_id, deal)
        for bell in await store.admit(self._slots, lease_ms=lease_ms):
            await self._ring(bell)
        for index, task_ids, work in (
            (keys.closing(), unclosed, self._close_below),
            (keys.trees(), old_trees, self._retention.condemn),
            (keys.condemned(), condemned, self._retention.remove),
        ):
            for task_id in task_ids:
                done += await self._guarded(index, task_id, work(task_id))
        full = max(len(due.lost), len(due.overdue), len(due.unanswered), len(unclosed)) >= SWEEP_PAGE
        return done > 0 and (full or max(len(old_trees), len(condemned)) >= PAGE)

    async def _member(
        self, index: str, task_id: str, run_id: str, deal: Callable[[Task, Run], Awaitable[bool]]
    ) -> bool:
        member = f"{task_id}/{run_id}" if run_id else task_id
        return await self._guarded(index, member, self._deal(member, task_id, run_id, deal))

    async def _guarded(self, index: str, member: str, work: Coroutine[Any, Any, bool]) -> bool:
        """Do what a member needs. One that fails is put off, so that it does not hold up the others."""
        try:
            return await work
        except Exception as error:
            if is_away(error):
                raise
            log.exception("sweep.odd_member", member=member)
            await self._store.put_off(index, member, self._settings.lease_ms)
            return True

    async def _deal(self, member: str, task_id: str, run_id: str, deal: Callable[[Task, Run], Awaitable[bool]]) -> bool:
        try:
            task = await self._store.peek(task_id)
        except UnknownTask:
            task = None
        run = await self._store.get_run(run_id)
        if task is None or run is None:
            await self._store.forget_member(member)
            return True
        return await deal(task, run)

    async def _close_below(self, task_id: str) -> bool:
        """Finish what a canceller did not."""
        for bell in await self._store.close_below(task_id):
            await self._ring(bell)
        log.info("tree.closed", task_id=task_id)
        return True

    async def _ring(self, bell: Bell) -> None:
        """Ring, unless this sweep found the broker away: a bell that is not rung is overdue for a later sweep."""
        async with self._ringing:  # one after the other: the first that fails spares the rest their wait
            if self._broker_away:
                return
            try:
                await self._send(bell)
            except BrokerUnreachable as error:
                self._broker_away = True
                if not self._complained:
                    log.warning("bell.not_rung", task_id=bell.task_id, run_id=bell.run_id, error=str(error))
            self._complained = self._broker_away

    async def _take_lost(self, task: Task, run: Run) -> bool:
        claim = Claim.of(Facts.of(task), run)
        if run.status is RunStatus.CANCELLED:  # its worker died before its code had ended
            ended = await self._store.stopped(claim, only_expired=True)
            if ended:
                await self._inform("task-revoked", run.run_id)
            return ended
        outcome = await self._store.take_lost(claim, max_attempts=self._settings.max_attempts)
        if outcome == "released":
            log.warning("run.lost", task_id=task.task_id, run_id=run.run_id, worker=run.worker, attempt=run.attempt + 1)
            # The lost worker sends no more events: in monitors the run would be at work for ever.
            await self._inform("task-retried", run.run_id)
            await self._ring(self._store.bell(task, run))
        elif outcome == "exhausted":
            settled = await self._store.settle(claim, await self._ending_of(run), only_expired=True)
            log.error("run.given_up", task_id=task.task_id, run_id=run.run_id, attempts=run.attempt + 1)
            if settled is None:
                return False
            if isinstance(settled, Settled):  # else it is cancelled, which the next sweep tells
                await self._inform("task-failed", run.run_id)
            for bell in settled.bells:
                await self._ring(bell)
            return True
        return outcome == "released"

    async def _inform(self, event: str, run_id: str) -> None:
        """Send monitors an event, unless one before it failed in this sweep. A failure holds up no run.

        It says nothing about bells: for them alone, a connection that a restart of the broker broke is tried once more.
        """
        async with self._ringing:
            if self._broker_away or self._untold:
                return
            try:
                await self._tell(event, run_id, LOST)
            except BrokerUnreachable as error:
                self._untold = True
                log.warning("monitors.not_told", run_id=run_id, error=str(error))

    async def _ring_overdue(self, task: Task, run: Run) -> bool:
        if self._broker_away or not await self._store.ring_again(Facts.of(task), run.run_id):
            return False
        if run.not_before is None:
            log.info("bell.rung_again", task_id=task.task_id, run_id=run.run_id)
        await self._ring(self._store.bell(task, run))
        return True

    async def _expire(self, task: Task, run: Run) -> bool:
        expired = await self._store.expire(Facts.of(task), run.run_id)
        if expired is None:
            return False
        log.warning("task.unanswered", task_id=task.task_id, run_id=run.run_id)
        for bell in expired.bells:
            await self._ring(bell)
        return True

    async def _ending_of(self, run: Run) -> Ending:
        """How a run ends whose workers were lost too often."""
        lost = _worker_lost(run)
        if run.kind is not RunKind.GRADE:
            return lost
        # The agent did its work: its grade says that nobody could judge it.
        subject = await Subject.of(self._store, run.task_id, run)
        graded = Graded(
            subject.error(LOST, lost.error_message), subject.result_json, type=LOST, message=lost.error_message
        )
        return replace(ending(graded), ended_as=EndedAs.LOST)


def _worker_lost(run: Run) -> Ending:
    losses = "once" if run.losses == 0 else f"{run.losses + 1} times"
    attempts = counted(run.attempt + 1, "attempt")
    return Ending(
        RunStatus.ERROR,
        EndedAs.LOST,
        Status.ERROR,
        error_type=LOST,
        error_message=(
            f"its worker was not heard of any more, {losses} in {attempts}; the last was {run.worker} "
            "(was it killed, out of memory? max_attempts in langgraph.json, or OUTRIDER_MAX_ATTEMPTS, sets how many "
            "are made without a new step)"
        ),
    )

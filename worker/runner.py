"""The way of one run: claim, activate, settle. Read `Runner.run` from top to bottom."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog
from redis.exceptions import RedisError

from ..shared.broker import BrokerUnreachable
from ..shared.pauses import doubling
from ..shared.records import Fault
from ..shared.refusals import is_away
from ..shared.statuses import RunStatus
from ..shared.transitions import Claimed, Cut, NotClaimed
from .activation import Activation
from .control import Control
from .outcomes import Cancelled, Failed, GivenBack, NotOurs, Retried, Retry, Waits, ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..shared.bells import Bell
    from ..shared.context import Claim
    from .activation import Report
    from .deps import Deps
    from .outcomes import Graded, Outcome

RETRY_SECONDS = (0.1, 5.0)  #: first and longest pause between two tries to settle while Redis is away

log = structlog.get_logger("outrider.worker")


@dataclass(frozen=True, slots=True)
class Runner:
    """Executes runs, any number at once. One per process, used on its loop."""

    deps: Deps

    async def run(self, task_id: str, run_id: str) -> Outcome:
        """Answer one bell. Returns when the run's code has ended and its record says so."""
        store, deps = self.deps.store, self.deps
        facts = await store.facts(task_id)
        if facts is None:
            return NotOurs()
        control = Control(run_id, asyncio.get_running_loop())
        with deps.held.holding(control):
            claimed = await store.claim(
                facts,
                run_id,
                worker=deps.worker,
                lease_ms=deps.settings.lease_ms,
                slots=deps.config.slots(facts.agent),
            )
            if not isinstance(claimed, Claimed):
                await self._admit(facts.agent)  # a slot was kept for one that was cancelled
                return await self._unclaimed(claimed)
            control.held(claimed.claim)
            with structlog.contextvars.bound_contextvars(task_id=task_id, run_id=run_id, agent=facts.agent):
                activation = Activation(deps, claimed, control)
                report = await activation.run()
                outcome = await self._settle(claimed.claim, activation, report)
                await self._admit(facts.agent)
                log.info("run.ended", outcome=type(outcome).__name__, error=getattr(outcome, "type", None) or None)
                await self._until_code_ended(claimed.claim, activation, cancelled=isinstance(outcome, Cancelled))
        return outcome

    async def _until_code_ended(self, claim: Claim, activation: Activation, *, cancelled: bool) -> None:
        """Wait for code that goes on after its run has settled: the run keeps its slot until that ends."""
        store = self.deps.store
        if claim.cancels_itself:  # and may have ended in the middle of its walk
            with suppress(RedisError):  # else a sweeper walks
                await self._ring(await store.close_below(claim.task_id))
        await activation.code_ended()
        if cancelled:
            await store.stopped(claim, activation.usage)
            await self._admit(claim.facts.agent)

    async def _unclaimed(self, why: NotClaimed | Cut) -> Outcome:
        """The outcome of a bell whose run this process did not get."""
        match why:
            case Cut(bells):
                await self._ring(bells)
                return Cancelled()
            case NotClaimed("waits"):
                return Waits()
            case NotClaimed("early", kind):
                return Retried(kind)
            case NotClaimed("dropped", RunStatus.CANCELLED):
                return Cancelled()
        return NotOurs()

    async def _refused(self, run_id: str) -> Outcome:
        """The outcome of a run whose write was refused: it was cancelled, or its claim was replaced."""
        run = await self.deps.store.get_run(run_id)
        return Cancelled() if run and run.status is RunStatus.CANCELLED else NotOurs()

    async def _admit(self, agent: str) -> None:
        """Ring for the runs that get the slots of this agent which are free now."""
        slots = self.deps.config.slots(agent)
        if slots:
            with suppress(RedisError):  # else a sweeper looks
                await self._ring(await self.deps.store.admit({agent: slots}, lease_ms=self.deps.settings.lease_ms))

    async def _settle(self, claim: Claim, activation: Activation, report: Report) -> Outcome:
        """Write how the run ended into its record, however long Redis is away.

        Returns the outcome that the record has. Where the write was refused, that tells why.
        """
        refused, pauses = False, doubling(*RETRY_SECONDS)
        while True:
            try:
                return await self._write(claim, report)
            except RedisError as error:
                if not is_away(error):
                    if refused or isinstance(report.outcome, Failed):
                        raise
                    # Redis is up and does not take what this run writes: that is an error of the run.
                    report, refused = replace(report, outcome=activation.failed(error), events=[]), True
                    continue
                pause = next(pauses)
                log.warning("run.cannot_settle", error=type(error).__name__, again_in=round(pause, 1))
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 no secret

    async def _write(self, claim: Claim, report: Report) -> Outcome:
        store, outcome = self.deps.store, report.outcome
        match outcome:
            case Cancelled() | Retried():
                return outcome
            case NotOurs() | Waits():
                kept = False
            case GivenBack():
                kept = await store.give_back(claim, report.usage, report.events)
            case Retry(failed, least_seconds):
                return await self._retry(claim, report, failed, least_seconds)
            case _:
                settled = await store.settle(claim, ending(outcome, report.usage, report.events))
                if isinstance(settled, Cut):
                    return await self._unclaimed(settled)
                kept = settled is not None
                if settled is not None:
                    await self._ring(settled.bells)
                    if claim.facts.webhook:
                        self.deps.deliver()
        return outcome if kept else await self._refused(claim.run_id)

    async def _retry(self, claim: Claim, report: Report, failed: Failed | Graded, least_seconds: float) -> Outcome:
        answer, pause_ms = await self.deps.store.retry(
            claim,
            Fault(type=failed.type, message=failed.message),
            least_ms=round(least_seconds * 1000),
            max_attempts=self.deps.settings.max_attempts,
            usage=report.usage,
            events=report.events,
        )
        match answer:
            case "released":
                return Retried(failed.type, pause_ms / 1000)
            case "exhausted":
                run = await self.deps.store.get_run(claim.run_id)
                outcome = failed.after(run.attempt + 1 if run else 1)
                return await self._write(claim, replace(report, outcome=outcome))
            case _:
                return await self._refused(claim.run_id)

    async def _ring(self, bells: Sequence[Bell]) -> None:
        """Ring for the runs that a settle started: news of this task, or its parent's wake."""
        for bell in bells:
            try:
                await self.deps.ring(bell)
            except BrokerUnreachable as error:
                log.warning("bell.not_rung", run_id=bell.run_id, error=str(error))  # a sweeper will

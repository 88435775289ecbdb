"""The way of one run: claim, activate, settle. Read `Runner.run` from top to bottom."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from redis.exceptions import RedisError

from ..shared.broker import BrokerUnreachable
from ..shared.statuses import RunStatus
from .activation import Activation
from .control import Control
from .outcomes import Cancelled, GivenBack, NotOurs, ending

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import redis.asyncio

    from ..shared.context import Claim
    from ..shared.filestore import RedisStore
    from ..shared.limits import Usage
    from ..shared.records import Bell
    from ..shared.settings import Settings
    from ..shared.store import Store
    from ..shared.transitions import Claimed, Facts
    from .agents import Agents
    from .control import Held
    from .outcomes import Outcome
    from .progress import Batch

RETRY_SECONDS = (0.1, 5.0)  #: first and longest pause between two tries to settle while Redis is away

log = structlog.get_logger("outrider.worker")


@dataclass(frozen=True, slots=True)
class Runner:
    """What a worker process needs to execute runs. One per process, used on its loop."""

    settings: Settings
    redis: redis.asyncio.Redis
    store: Store
    files: RedisStore  #: that every graph gets; not fenced
    agents: Agents
    held: Held
    ring: Callable[[Bell], Awaitable[None]]  #: off the loop
    worker_id: str

    async def run(self, task_id: str, run_id: str) -> Outcome:
        """Answer one bell. Returns when the run's code has ended and its record says so."""
        facts = await self.store.facts(task_id)
        if facts is None:
            return NotOurs()
        control = Control(run_id, asyncio.get_running_loop())
        with self.held.holding(control):
            claimed = await self.store.claim(facts, run_id, worker=self.worker_id, lease_ms=self.settings.lease_ms)
            if claimed is None:
                return await self._not_claimed(run_id)
            control.held(claimed.claim, facts.agent)
            with structlog.contextvars.bound_contextvars(task_id=task_id, run_id=run_id, agent=facts.agent):
                activation = Activation(self, claimed, control)
                outcome = await activation.outcome()
                outcome = await self._settle(facts, claimed, activation, outcome)
                log.info("run.ended", outcome=type(outcome).__name__, error=getattr(outcome, "type", None))
                # Only when nothing of the run's code is at work is its slot free.
                await activation.code_ended()
                if isinstance(outcome, Cancelled):
                    await self.store.stopped(facts, run_id)
        return outcome

    async def _not_claimed(self, run_id: str) -> Outcome:
        """Why there is nothing to do: the run was cancelled, or someone else has it or had it."""
        run = await self.store.get_run(run_id)
        return Cancelled() if run is not None and run.status is RunStatus.CANCELLED else NotOurs()

    async def _settle(self, facts: Facts, claimed: Claimed, activation: Activation, outcome: Outcome) -> Outcome:
        """Write the outcome into the record, however long Redis is away; where it was refused, the answer says why."""
        pause, longest = RETRY_SECONDS
        events = await activation.events()
        while True:
            try:
                return await self._write(facts, claimed.claim, outcome, activation.usage, events)
            except RedisError as error:
                log.warning("run.cannot_settle", error=type(error).__name__, again_in=round(pause, 1))
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 no secret
                pause = min(pause * 2, longest)

    async def _write(self, facts: Facts, claim: Claim, outcome: Outcome, usage: Usage, events: Batch) -> Outcome:
        match outcome:
            case Cancelled():
                return outcome
            case NotOurs():
                kept = False
            case GivenBack():
                kept = await self.store.give_back(facts, claim, usage)
            case _:
                settled = await self.store.settle(facts, claim, ending(outcome, usage, events))
                kept = settled is not None
                await self._ring(settled.bells if settled else ())
        return outcome if kept else await self._not_claimed(claim.run_id)

    async def _ring(self, bells: Sequence[Bell]) -> None:
        """Ring for the runs that a settle started: news of this task, or its parent's wake."""
        for bell in bells:
            try:
                await self.ring(bell)
            except BrokerUnreachable as error:
                log.warning("bell.not_rung", run_id=bell.run_id, error=str(error))  # a sweeper will

"""The way of one run: claim, activate, settle. Read `Runner.run` from top to bottom."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from langgraph.errors import GraphDrained
from redis.exceptions import RedisError

from ..shared.broker import BrokerUnreachable
from ..shared.checkpoints import RedisSaver
from ..shared.context import Running, running
from ..shared.errors import ClaimLost
from ..shared.statuses import RunStatus
from .control import Control, Stop
from .executor import current_jobs
from .meter import Meter
from .outcomes import Cancelled, Failed, Finished, GivenBack, NotOurs, Paused, TimedOut, ending
from .progress import Emitter
from .view import View

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    import redis.asyncio
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel

    from ..shared.records import Bell, Usage
    from ..shared.settings import Settings
    from ..shared.store import Store
    from ..shared.transitions import Claimed, Facts, Settled
    from .agents import Agents
    from .control import Held
    from .outcomes import Outcome

STOP_SECONDS = (
    5.0  #: what an agent's code gets to end by itself once it was told to stop; then the run settles without it
)
RETRY_SECONDS = (0.1, 5.0)  #: first and longest pause between two tries to settle while Redis is away

log = structlog.get_logger("outrider.worker")


@dataclass(frozen=True, slots=True)
class Runner:
    """What a worker process needs to execute runs. One per process, used on its loop."""

    settings: Settings
    redis: redis.asyncio.Redis
    store: Store
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
                activation = Activation(self, claimed, facts, control)
                outcome = await activation.settle(await activation.outcome())
                log.info("run.ended", outcome=type(outcome).__name__, error=getattr(outcome, "type", None))
                await self._end_of_code(activation, facts, run_id, outcome)
        return outcome

    async def _not_claimed(self, run_id: str) -> Outcome:
        run = await self.store.get_run(run_id)
        return Cancelled() if run is not None and run.status is RunStatus.CANCELLED else NotOurs()

    @staticmethod
    async def _end_of_code(activation: Activation, facts: Facts, run_id: str, outcome: Outcome) -> None:
        """Wait until nothing of the run's code is at work; only then is its slot free."""
        await activation.code_ended()
        if isinstance(outcome, Cancelled):
            await activation.runner.store.stopped(facts, run_id)


class Activation:
    """A claimed run at work: the agent's code in an asyncio task of its own, and what watches over it."""

    def __init__(self, runner: Runner, claimed: Claimed, facts: Facts, control: Control) -> None:
        self.runner = runner
        self._claimed, self._facts, self._control = claimed, facts, control
        self._emitter = Emitter(lambda batch: runner.store.emit(claimed.claim, facts.agent, batch))
        self._meter = Meter(claimed.task.usage, claimed.task.limits, control.stop, self._emitter.emit)
        self._view = View(self._emitter.emit)
        self._work: asyncio.Task[None] | None = None

    async def outcome(self) -> Outcome:
        """Run the agent's code, until it ends or was told to stop and had its time for it."""
        current_jobs.set(self._control.jobs)
        running.set(
            Running(
                self._claimed.claim,
                self._claimed.task,
                self._claimed.run,
                self._emitter.emit,
                self.runner.store,
                self.runner.ring,
            )
        )
        left = self._time_left()
        loop = asyncio.get_running_loop()
        timer = None if left is None else loop.call_later(max(0.0, left), self._control.stop, Stop.TIMED_OUT)
        self._work = work = loop.create_task(self._activate())
        work.add_done_callback(_retrieve)
        self._control.work(work)
        try:
            await self._until_stopped(work)
        finally:
            if timer is not None:
                timer.cancel()
        self._control.over()
        return self._told(work)

    def _time_left(self) -> float | None:
        limit = self._claimed.task.limits.timeout_seconds
        return None if limit is None else limit - self._claimed.task.working_ms / 1000

    async def _until_stopped(self, work: asyncio.Task[None]) -> None:
        await asyncio.wait([work, self._control.stopped], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            await asyncio.wait([work], timeout=STOP_SECONDS)

    async def _activate(self) -> None:
        """Build the graph, with our saver on it, and stream it to its end."""
        run, task = self._claimed.run, self._claimed.task
        config: RunnableConfig = {
            "configurable": {**task.configurable, "thread_id": task.task_id},
            # LangGraph applies the same run's input once, and goes on from its checkpoint.
            "metadata": {"run_id": run.run_id},
            "callbacks": [self._meter],
        }
        async with self.runner.agents.open(task.agent, config) as agent:
            saver = RedisSaver(self.runner.redis, self.runner.store.keys, self._claimed.claim)
            graph = agent.copy({"checkpointer": saver})
            so_far = await self._conversation(graph, config)
            given = self._view.input_for(graph, self._claimed, self.runner.agents.entry(task.agent), so_far)
            stream = graph.astream(
                given,
                config,
                context=task.context,
                stream_mode=self._view.modes,
                durability="sync",
                control=self._control.drain,
            )
            async for mode, payload in stream:
                self._view.take(mode, payload)

    async def _conversation(self, graph: Pregel[Any, Any, Any, Any], config: RunnableConfig) -> Sequence[Any]:
        """The messages that a later run of a task finds; none for its first one."""
        if "text" in self._claimed.input:
            return ()
        state = await graph.aget_state(config)
        return state.values.get("messages", ()) if isinstance(state.values, dict) else ()

    def _told(self, work: asyncio.Task[None]) -> Outcome:
        """What came of it. Our own reasons first: whatever the code made of being stopped, it was stopped."""
        reason = self._control.reason
        if reason is None and self._claimed.claim.stale:
            reason = Stop.STALE
        match reason:
            case Stop.CANCELLED:
                return Cancelled()
            case Stop.STALE:
                return NotOurs()
            case Stop.TIMED_OUT:
                return TimedOut(self._claimed.task.limits.timeout_seconds or 0, self._so_far())
            case Stop.LIMIT_TURNS | Stop.LIMIT_TOKENS:
                return Failed(reason.value, self._limit_message(reason), self._so_far())
        # An agent's own CancelledError is an error like any other: nobody here cancelled it.
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        if error is None:
            return Paused(self._view.interrupts) if self._view.interrupts is not None else self._finished()
        if isinstance(error, GraphDrained):
            return GivenBack()
        if isinstance(error, ClaimLost):
            return NotOurs()
        return Failed.by(error)

    def _finished(self) -> Outcome:
        try:
            return Finished(self._view.result(self.runner.settings.max_result_bytes))
        except Exception as error:  # noqa: BLE001 a state may hold anything; its task settles all the same
            return Failed.by(error)

    def _so_far(self) -> str | None:
        outcome = self._finished() if self._view.began else None
        return outcome.result if isinstance(outcome, Finished) else None

    def _limit_message(self, reason: Stop) -> str:
        used, limits = self._meter.usage, self._claimed.task.limits
        if reason is Stop.LIMIT_TURNS:
            return f"{used.turns} turns were made, as limits.max_turns = {limits.max_turns} allows"
        return f"{used.total_tokens} tokens were used, and limits.max_tokens = {limits.max_tokens}"

    async def settle(self, outcome: Outcome) -> Outcome:
        """Write the outcome into the record; what the record says instead is the answer where it says otherwise."""
        pause, longest = RETRY_SECONDS
        events = await self._emitter.close()
        while True:
            try:
                return await self._write(outcome, events)
            except RedisError as error:
                log.warning("run.cannot_settle", error=type(error).__name__, again_in=round(pause, 1))
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 no secret
                pause = min(pause * 2, longest)

    async def _write(self, outcome: Outcome, events: list[tuple[str, dict[str, Any]]]) -> Outcome:
        store, facts, claim = self.runner.store, self._facts, self._claimed.claim
        match outcome:
            case Cancelled() | NotOurs():
                return outcome
            case GivenBack():
                kept = await store.give_back(facts, claim, self._usage())
            case _:
                settled = await store.settle(facts, claim, ending(outcome, self._usage(), events))
                await self._ring(settled)
                kept = settled is not None
        return outcome if kept else await self._replaced()

    async def _ring(self, settled: Settled | None) -> None:
        """Ring for the runs that a settle started: news of this task, or its parent's wake."""
        for bell in settled.bells if settled else ():
            try:
                await self.runner.ring(bell)
            except BrokerUnreachable as error:
                log.warning("bell.not_rung", run_id=bell.run_id, error=str(error))  # a sweeper will

    async def _replaced(self) -> Outcome:
        """Why the record refused: it was cancelled in the last moment, or another claim has the run."""
        run = await self.runner.store.get_run(self._claimed.run.run_id)
        return Cancelled() if run is not None and run.status is RunStatus.CANCELLED else NotOurs()

    def _usage(self) -> Usage:
        return self._meter.usage

    async def code_ended(self) -> None:
        """Return when the agent's coroutine and all its jobs in threads have ended."""
        if self._work is not None and not self._work.done():
            await asyncio.wait([self._work])
        await self._control.jobs.ended()


def _retrieve(work: asyncio.Task[None]) -> None:
    """Take the error of code that ends after its run was settled: else asyncio would log its text."""
    if not work.cancelled():
        work.exception()

"""A claimed run at work: the agent's code, and what watches over it."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import structlog
from langgraph.errors import GraphDrained, NodeCancelledError, is_invalid_resume
from langgraph.graph import END

from ..shared.checkpoints import RedisSaver
from ..shared.context import Running, running
from ..shared.errors import ClaimLost
from ..shared.inputs import ANSWERS
from .control import Stop
from .deadlines import Deadlines
from .executor import current_jobs
from .meter import Meter
from .outcomes import Cancelled, Failed, Finished, GivenBack, NotOurs, Paused, Retry, TimedOut, type_of
from .progress import Emitter
from .retries import is_retryable, least_pause
from .upstream import attached
from .view import View

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel

    from ..shared.limits import Usage
    from ..shared.transitions import Claimed
    from .control import Control
    from .deps import Deps
    from .outcomes import Graded, Outcome
    from .progress import Batch

#: What an agent's code gets to end by itself once it was told to stop; then its run settles without it.
STOP_SECONDS = 5.0
#: When it is told again. One telling can be lost: `asyncio.wait_for` of Python 3.11 swallows a cancel that comes as
#: its call ends, and so may an agent.
TELL_AGAIN_SECONDS = 1.0

log = structlog.get_logger("outrider.worker")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended, with what is written of it in the same step."""

    outcome: Outcome
    usage: Usage  #: of the whole task
    events: Batch  #: that were not written yet


class Activation:
    """One run's code in an asyncio task of its own: `ended` runs it, and some of it may go on until `code_ended`."""

    def __init__(self, deps: Deps, claimed: Claimed, control: Control) -> None:
        self._deps, self._claimed, self._control = deps, claimed, control
        self._emitter = Emitter(
            lambda batch: deps.store.emit(claimed.claim, claimed.task.agent, batch), runs=deps.held.__len__
        )
        self._meter = Meter(claimed.task, control.stop, self._emitter.emit)
        control.usage = lambda: self.usage
        self._view = View(self._emitter.emit)
        self._work: asyncio.Task[None] | None = None

    async def ended(self) -> Ended:
        """Run the agent's code, until it ends or was told to stop and had its time for it."""
        outcome = await self._outcome()
        events = await self._emitter.close()
        return Ended(outcome, self.usage, events)

    async def _outcome(self) -> Outcome:
        current_jobs.set(self._control.jobs)
        running.set(
            Running(
                self._claimed.claim,
                self._claimed.task,
                self._claimed.run,
                self._claimed.context,
                self._claimed.configurable,
                self._emitter.emit,
                self._deps.store,
                self._deps.ring,
                self._deps.settings,
                self._deps.config,
                asyncio.get_running_loop(),
            )
        )
        deadlines = Deadlines(self._claimed.task, self._control.stop, lambda: self._emitter.heard_at)
        if deadlines.left is not None and deadlines.left <= 0:
            return self._stopped(Stop.TIMED_OUT)
        self._work = work = asyncio.get_running_loop().create_task(self._activate())
        work.add_done_callback(_retrieve)
        self._control.work(work)
        deadlines.start()
        try:
            await self._until_stopped(work)
        finally:
            deadlines.cancel()
        self._control.over()
        return self._told(work)

    async def _until_stopped(self, work: asyncio.Task[None]) -> None:
        await asyncio.wait([work, self._control.stopped], return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await _insist(work)

    async def _activate(self) -> None:
        """Build the graph, with our saver on it, and stream it to its end."""
        run, task = self._claimed.run, self._claimed.task
        config: RunnableConfig = {
            "configurable": {**self._claimed.configurable, "thread_id": task.task_id},
            # LangGraph applies the same run's input once, and goes on from its checkpoint.
            "metadata": {"run_id": run.run_id},
            "callbacks": [self._meter],
        }
        async with self._deps.agents.open(task.agent, config) as agent:
            saver = RedisSaver(self._deps.store.redis, self._deps.store.keys, self._claimed.claim)
            graph = attached(agent, saver, self._deps.files)
            so_far = await self._conversation(graph, config)
            given = self._view.input_for(graph, self._claimed, self._deps.agents.entry(task.agent), so_far)
            stream = graph.astream(
                given,
                config,
                context=self._claimed.context,
                stream_mode=self._view.modes,
                durability="sync",
                control=self._control.drain,
            )
            try:
                async with aclosing(cast("AsyncGenerator[Any]", stream)) as pieces:
                    async for mode, payload in pieces:
                        self._emitter.heard()
                        self._view.take(mode, payload)
            except Exception as error:
                if not is_invalid_resume(error):
                    raise
                self._view.ask_again((await graph.aget_state(config)).interrupts, error)

    async def _conversation(self, graph: Pregel[Any, Any, Any, Any], config: RunnableConfig) -> Sequence[Any]:
        """The messages that a run finds; none where there was no run before, or this one goes on with an answer."""
        if ANSWERS in self._claimed.input or self._claimed.task.saved_run in {None, self._claimed.run.run_id}:
            return ()
        state = await graph.aget_state(config)
        if state.next and (state.metadata or {}).get("run_id") != self._claimed.run.run_id:
            # An earlier run ended within a step. New input would drop what the step's other tools did: save it first,
            # under no run's id, so that this run's input is still to come.
            await graph.aupdate_state({"configurable": config["configurable"]}, None, as_node=END)
            state = await graph.aget_state(config)
        return state.values.get("messages", ()) if isinstance(state.values, dict) else ()

    def _told(self, work: asyncio.Task[None]) -> Outcome:
        """What came of it. Our own reasons first: whatever the code made of being stopped, it was stopped."""
        if self._control.reason is not None:
            return self._stopped(self._control.reason)
        # An agent's own CancelledError is an error like any other: nobody here cancelled it.
        error = asyncio.CancelledError() if work.cancelled() else work.exception()
        match error:
            case None:
                return self._came_to_its_end()
            case GraphDrained():
                return GivenBack()
            case ClaimLost():
                return NotOurs()
            case NodeCancelledError(__cause__=BaseException() as own):
                return self._failed(own)
            case _:
                return self._failed(error)

    def _came_to_its_end(self) -> Outcome:
        asks = self._view.interrupts
        return self._finished() if asks is None else Paused(asks, self._view.refused)

    def _failed(self, error: BaseException) -> Failed | Graded | Retry:
        entry = self._deps.config.agents.get(self._claimed.task.agent)
        log.warning("agent.failed", error=type_of(error), at=_frames(error))
        failed = self.failed(error)
        again = is_retryable(error, entry.retry_on if entry else ())
        return Retry(failed, least_pause(error)) if again else failed

    def failed(self, error: BaseException) -> Failed | Graded:
        """What an error makes of the run where it is not tried again."""
        return Failed.by(error)

    def _stopped(self, reason: Stop) -> Outcome:
        limits = self._claimed.task.limits
        match reason:
            case Stop.CANCELLED:
                return Cancelled()
            case Stop.STALE:
                return NotOurs()
            case Stop.TIMED_OUT:
                return TimedOut(limits.timeout_seconds or 0, self._so_far())
            case Stop.LIMIT_IDLE:
                told = f"nothing came from it for limits.idle_seconds = {limits.idle_seconds:g}"
            case _:
                told = self._meter.told(reason)
        return Failed(reason.value, told, self._so_far())

    def _finished(self) -> Outcome:
        try:
            return Finished(self._view.result(self._deps.settings.max_result_bytes))
        except Exception as error:  # noqa: BLE001 a state may hold anything; its task settles all the same
            return Failed.by(error)

    def _so_far(self) -> str | None:
        outcome = self._finished() if self._view.began else None
        return outcome.result if isinstance(outcome, Finished) else None

    @property
    def usage(self) -> Usage:
        """What the models of the whole task consumed, this run included."""
        return self._meter.usage

    async def code_ended(self) -> None:
        """Return when the agent's coroutine and all its jobs in threads have ended."""
        if self._work is not None:
            await _insist(self._work)
        await self._control.jobs.ended()


async def _insist(work: asyncio.Task[None]) -> None:
    """Wait for code that was told to stop, and tell it again and again."""
    while not work.done() and not (await asyncio.wait([work], timeout=TELL_AGAIN_SECONDS))[0]:
        work.cancel()


def _retrieve(work: asyncio.Task[None]) -> None:
    """Take the error of code that ends after its run was settled: else asyncio would log its text."""
    if not work.cancelled():
        work.exception()


def _frames(error: BaseException) -> list[str]:
    """Where an error came from, the innermost frame last. No text of it: that may hold the words of a task."""
    frames = traceback.extract_tb(error.__traceback__, limit=-8)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]

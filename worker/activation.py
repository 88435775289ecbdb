"""A claimed run at work: its code in a task of its own, its deadlines, and its outcome."""

from __future__ import annotations

import asyncio
import traceback
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import structlog
from langgraph.errors import GraphDrained, NodeCancelledError

from ..shared.context import Running, running
from ..shared.errors import ClaimLost
from ..shared.statuses import RunKind
from .agent_work import AgentWork
from .control import Stop
from .deadlines import Deadlines
from .emitter import Emitter
from .executor import current_jobs
from .grader import GradeWork
from .outcomes import Cancelled, Failed, GivenBack, NotOurs, Retry, type_of
from .retries import is_retryable, least_pause

if TYPE_CHECKING:
    from ..shared.limits import Usage
    from ..shared.records import Task
    from ..shared.transitions import Claimed
    from .control import Control
    from .deps import Deps
    from .emitter import Batch
    from .outcomes import Graded, Outcome

#: How long an agent's code may take to end once it was told to stop; then its run settles without it.
STOP_SECONDS = 5.0
#: How often it is told again meanwhile. A cancel can be lost: `asyncio.wait_for` of Python 3.11 swallows one that comes
#: as its call ends, and an agent's own code may do the same.
TELL_AGAIN_SECONDS = 1.0

log = structlog.get_logger("outrider.worker")


@dataclass(frozen=True, slots=True)
class Report:
    """What an activation comes to: its outcome, and what is written to the record in the same step."""

    outcome: Outcome
    usage: Usage  #: of the whole task
    events: Batch  #: that were not written yet


class Work(Protocol):
    """What a run does: the work of an agent, or that of a grader."""

    task: Task  #: as this run's limits see it

    @property
    def usage(self) -> Usage:
        """What the models of the whole task consumed, this run included."""

    async def prepare(self) -> None:
        """Read what it needs, before its time begins."""

    async def run(self) -> None:
        """Do the work. Whatever it raises ends the run."""

    def finished(self) -> Outcome:
        """The outcome where the work ended by itself."""

    def stopped(self, reason: Stop) -> Outcome:
        """The outcome where a limit ended it."""

    def failed(self, error: BaseException) -> Failed | Graded:
        """The outcome of an error, where there is no other attempt."""


class Activation:
    """One run's code in an asyncio task of its own. `run` returns when the run is over; `code_ended` when its code is.

    The two differ where code does not stop when it is told to.
    """

    def __init__(self, deps: Deps, claimed: Claimed, control: Control) -> None:
        self._deps, self._claimed, self._control = deps, claimed, control
        self._emitter = Emitter(lambda batch: deps.store.emit(claimed.claim, batch), runs=deps.held.__len__)
        kind = GradeWork if claimed.run.kind is RunKind.GRADE else AgentWork
        self._work: Work = kind(deps, claimed, control, self._emitter)
        self._code: asyncio.Task[None] | None = None
        control.usage = lambda: self.usage

    async def run(self) -> Report:
        """Run the code until it ends, or until it was told to stop and `STOP_SECONDS` have passed."""
        await self._work.prepare()
        outcome = await self._execute()
        events = await self._emitter.close()
        return Report(outcome, self.usage, events)

    async def _execute(self) -> Outcome:
        current_jobs.set(self._control.jobs)
        running.set(
            Running(
                claim=self._claimed.claim,
                task=self._work.task,
                run=self._claimed.run,
                context=self._claimed.context,
                configurable=self._claimed.configurable,
                emit=self._emitter.emit,
                host=self._deps,
            )
        )
        deadlines = Deadlines(self._work.task, self._control.stop, lambda: self._emitter.heard_at)
        if deadlines.left is not None and deadlines.left <= 0:
            return self._stopped(Stop.TIMED_OUT)
        self._code = code = asyncio.get_running_loop().create_task(self._work.run())
        code.add_done_callback(_retrieve)
        self._control.work(code)
        deadlines.start()
        try:
            await self._until_stopped(code)
        finally:
            deadlines.cancel()
        self._control.over()
        return self._outcome_of(code)

    async def _until_stopped(self, code: asyncio.Task[None]) -> None:
        await asyncio.wait([code, self._control.stopped], return_when=asyncio.FIRST_COMPLETED)
        if not code.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await _cancel_until_done(code)

    def _outcome_of(self, code: asyncio.Task[None]) -> Outcome:
        """The outcome. Where we stopped the code, that counts, and not how the code ended then."""
        if self._control.reason is not None:
            return self._stopped(self._control.reason)
        # An agent's own CancelledError is an error like any other: nobody here cancelled it.
        error = asyncio.CancelledError() if code.cancelled() else code.exception()
        match error:
            case None:
                return self._work.finished()
            case GraphDrained() if self._control.drain.drain_requested:
                return GivenBack()
            case ClaimLost():
                return self._stopped(Stop.STALE) if self._claimed.claim.stale else NotOurs()
            case NodeCancelledError(__cause__=BaseException() as own):
                return self._failed(own)
            case _:
                return self._failed(error)

    def _stopped(self, reason: Stop) -> Outcome:
        match reason:
            case Stop.CANCELLED:
                return Cancelled()
            case Stop.STALE:
                # Where the claim stands after all, Redis had lost what the run saved: it goes on from what is there.
                return GivenBack()
            case _:
                return self._work.stopped(reason)

    def _failed(self, error: BaseException) -> Failed | Graded | Retry:
        entry = self._deps.config.agents.get(self._claimed.task.agent)
        log.warning("agent.failed", error=type_of(error), at=_frames(error))
        failed = self.failed(error)
        try:
            again = is_retryable(error, entry.retry_on if entry else ())
            return Retry(failed, least_pause(error)) if again else failed
        except Exception:  # noqa: BLE001 an agent's exception may fail at being looked at too
            return failed

    def failed(self, error: BaseException) -> Failed | Graded:
        """The outcome of an error, where there is no other attempt."""
        return self._work.failed(error)

    @property
    def usage(self) -> Usage:
        """What the models of the whole task consumed, this run included."""
        return self._work.usage

    async def code_ended(self) -> None:
        """Return when the run's coroutine and all its jobs in threads have ended."""
        if self._code is not None:
            await _cancel_until_done(self._code)
        await self._control.jobs.ended()


async def _cancel_until_done(code: asyncio.Task[None]) -> None:
    """Wait for code that was told to stop, and tell it again every `TELL_AGAIN_SECONDS`."""
    while not code.done() and not (await asyncio.wait([code], timeout=TELL_AGAIN_SECONDS))[0]:
        code.cancel()


def _retrieve(code: asyncio.Task[None]) -> None:
    """Take the error of code that ends after its run was settled: asyncio logs the text of errors that nobody takes."""
    if not code.cancelled():
        code.exception()


def _frames(error: BaseException) -> list[str]:
    """The last frames of an error, innermost last. Not its text, which may hold words of the task."""
    frames = traceback.extract_tb(error.__traceback__, limit=-8)
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]

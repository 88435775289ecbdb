"""How a run is stopped from outside: by a cancel, a replaced claim, a limit or a drain. The first reason counts."""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from langgraph.runtime import RunControl

from .executor import Jobs

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Iterator

    from ..shared.context import Claim
    from ..shared.limits import Usage


class Stop(StrEnum):
    """Why a run's code was told to stop."""

    CANCELLED = "cancelled"  #: the record says so
    STALE = "stale"  #: another claim holds the run
    TIMED_OUT = "timed_out"
    LIMIT_TURNS = "limit_turns"
    LIMIT_TOTAL_TOKENS = "limit_total_tokens"
    LIMIT_OUTPUT_TOKENS = "limit_output_tokens"
    LIMIT_IDLE = "limit_idle"


class Control:
    """One run that this process works on. Used on the loop; only `stop` may be called from any thread."""

    def __init__(self, run_id: str, loop: asyncio.AbstractEventLoop) -> None:
        self.run_id = run_id
        self.reason: Stop | None = None
        self.claim: Claim | None = None
        self.usage: Callable[[], Usage] | None = None  #: what the task has used so far
        self.drain = RunControl()  #: LangGraph's: the graph stops between two steps
        self.jobs = Jobs(loop)
        self.stopped: asyncio.Future[None] = loop.create_future()  #: done once there is a reason
        self._loop = loop
        self._work: asyncio.Task[Any] | None = None
        self._over = False

    def held(self, claim: Claim) -> None:
        """Note the claim: from now on the heartbeat renews it."""
        self.claim = claim
        claim.on_stale = lambda: self.stop(Stop.STALE)

    def work(self, work: asyncio.Task[Any]) -> None:
        """Note the asyncio task that runs the agent's code, and stop it at once where a reason came before."""
        self._work = work
        if self.reason is not None:
            work.cancel()

    def stop(self, reason: Stop) -> None:
        """Cancel the agent's code for this reason, unless another came first or the run is over."""
        self._loop.call_soon_threadsafe(self._stop, reason)

    def _stop(self, reason: Stop) -> None:
        ended = self._over or (self._work is not None and self._work.done())
        if self.reason is None and not ended:
            self.reason = reason
            if reason is Stop.CANCELLED and self.claim is not None:
                # LangGraph would save that the run was stopped. Redis would refuse that write, so it is not sent.
                self.claim.stale = True
            self.stopped.set_result(None)
            if self._work is not None:
                self._work.cancel()

    def over(self) -> None:
        """Note that the agent's code has ended: later reasons are ignored, and the store decides."""
        self._over = True


class Held:
    """The runs that this process works on, from before their claim until their code has really ended."""

    def __init__(self) -> None:
        self._controls: set[Control] = set()
        self._draining = False

    def __len__(self) -> int:
        return len(self._controls)

    @contextmanager
    def holding(self, control: Control) -> Iterator[None]:
        """Keep a run here while it is worked on. One that comes during a drain is drained at once."""
        self._controls.add(control)
        if self._draining:
            control.drain.request_drain()
        try:
            yield
        finally:
            self._controls.discard(control)

    def stop(self, run_id: str, reason: Stop) -> None:
        """Stop a run if this process works on it."""
        for control in list(self._controls):
            if control.run_id == run_id:
                control.stop(reason)

    def drain(self) -> None:
        """Ask every run to stop after its present step."""
        self._draining = True
        for control in list(self._controls):
            control.drain.request_drain()

    def claims(self) -> list[Claim]:
        """What the heartbeat renews. Called from its thread."""
        return [control.claim for control in self._controls.copy() if control.claim is not None]

    def used(self) -> dict[str, Usage]:
        """What the tasks of the runs have used so far, by run ids. Called from the heartbeat's thread."""
        return {control.run_id: control.usage() for control in self._controls.copy() if control.usage is not None}

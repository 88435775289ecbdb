"""The running claim: a context variable by which code inside a run knows for which run it works."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Awaitable, Callable

    from .bells import Bell
    from .config import Config
    from .records import Run, Task
    from .settings import Settings
    from .store import Store
    from .transitions import Facts


@dataclass(slots=True)
class Claim:
    """A run held by one worker process. One object per claim, shared by all that write for it.

    LangGraph clones savers shallowly, so what must be seen by every clone lives here and not on them.
    """

    facts: Facts  #: of the task
    run_id: str
    epoch: int  #: raised at every claim and cancel; a write with another one is refused
    token: str  #: random, compared for equality together with the epoch
    inbox_to: int = 0  #: last notification in the run's input: in the saved state as soon as the input is
    taken: int = 0  #: last one that the parents' middleware took in since
    saved: bool = False  #: a checkpoint or a write was sent under it
    stale: bool = False  #: a write was refused: this claim was replaced
    cancels_itself: bool = False  #: its own code cancelled its task, and may be stopped before all below is closed
    on_stale: Callable[[], None] | None = field(default=None, repr=False)  #: called once, from any thread

    @classmethod
    def of(cls, facts: Facts, run: Run) -> Claim:
        """The claim that a run's record names, for a sweeper whose worker is not the one that made it."""
        return cls(facts, run.run_id, run.epoch, run.token or "")

    @property
    def task_id(self) -> str:
        """The task."""
        return self.facts.task_id

    def mark_stale(self) -> None:
        """Note that a write was refused, and tell the holder once. A second call does nothing."""
        if not self.stale:
            self.stale = True
            if self.on_stale is not None:
                self.on_stale()


@dataclass(frozen=True, slots=True)
class Host:
    """What a worker process has for all of its runs. Used on its loop."""

    settings: Settings
    config: Config  #: what it read of `langgraph.json`
    store: Store
    ring: Callable[[Bell], Awaitable[None]]  #: off the loop; raises where the broker does not take the bell
    loop: AbstractEventLoop


@dataclass(frozen=True, slots=True)
class Running:
    """What a run may ask about itself."""

    claim: Claim
    task: Task
    run: Run
    context: dict[str, Any] | None  #: of all runs of the task, and so of what it starts
    configurable: dict[str, Any]  #: likewise
    emit: Callable[[str, dict[str, Any]], None]  #: put an event into the task's stream, from any thread
    host: Host  #: by which what the run submits, updates and cancels reaches Redis and the broker


#: Set by the worker around each run; copied by asyncio and by LangGraph into nodes and tools.
running: ContextVar[Running | None] = ContextVar("outrider_running", default=None)

"""Where a parent's code runs, in a worker or in a process of the user's own, and what its tools use there."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ..shared.context import running
from ..shared.ids import is_id
from ..shared.on_loop import wait_on
from ..shared.settings import Settings
from .session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..shared.records import Task

#: State key of a parent in a process of the user's own whose thread's id cannot be a task's: the id of its task.
PARENT = "outrider_parent"


@dataclass(frozen=True, slots=True)
class Home:
    """What a parent's tools work with."""

    session: Session
    loop: asyncio.AbstractEventLoop  #: on which the session is used
    parent: Task | None  #: the running task; `None` in a process of the user's own
    context: dict[str, Any] | None = None  #: of the parent's runs, and so of its children's
    configurable: dict[str, Any] | None = None

    def parent_id(self, thread_id: object, state: Mapping[str, Any]) -> str | None:
        """The parent's task: the running one, else the one that has the thread's id, or whose id the state keeps."""
        if self.parent is not None:
            return self.parent.task_id
        known: str | None = thread_id if isinstance(thread_id, str) and is_id(thread_id) else state.get(PARENT)
        return known


def home() -> Home:
    """Where this code runs. In a process of the user's own, a session with the settings of the environment."""
    run = running.get()
    return (
        _own()
        if run is None
        else Home(Session.inside(run.host), run.host.loop, run.task, run.context, run.configurable)
    )


@cache
def _own() -> Home:
    # One thread for the whole process, so that code on any loop, or on none, has the same connections.
    session, loop = Session(Settings.load()), asyncio.new_event_loop()
    threading.Thread(target=_serve, args=(loop,), name="outrider", daemon=True).start()
    wait_on(loop, session.open())
    return Home(session, loop, None)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()

"""Where a parent's code runs: in a run of a worker, or in a process of the user's own."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from ..shared.context import running
from ..shared.on_loop import wait_on
from .client import Outrider

if TYPE_CHECKING:
    from ..shared.records import Task


@dataclass(frozen=True, slots=True)
class Home:
    """What a parent's tools work with."""

    client: Outrider
    loop: asyncio.AbstractEventLoop  #: on which the client works
    parent: Task | None  #: the running task; `None` in a process of the user's own, where nobody is told of an end
    context: dict[str, Any] | None = None  #: of the parent's runs, and so of its children's
    configurable: dict[str, Any] | None = None


def home() -> Home:
    """Where this code runs. In a process of the user's own, a client with the settings of the environment."""
    run = running.get()
    return _own() if run is None else Home(Outrider.inside(run), run.loop, run.task, run.context, run.configurable)


@cache
def _own() -> Home:
    # One thread for the whole process, so that code on any loop, or on none, has the same connections.
    client, loop = Outrider(), asyncio.new_event_loop()
    threading.Thread(target=_serve, args=(loop,), name="outrider", daemon=True).start()
    return Home(wait_on(loop, client.__aenter__()), loop, None)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()

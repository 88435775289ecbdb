"""Telling how far a run has come, from inside an agent."""

from __future__ import annotations

from .context import running
from .events import PROGRESS
from .text import one_line

MAX_NOTE = 500  #: characters; a longer note is cut


def progress(done: float, total: float | None = None, note: str | None = None) -> None:
    """Put how far this run has come into its task's events.

    `done` is a fraction from 0 to 1, or with `total` a count of things; `note` a few words. From async and sync code
    of nodes and tools. Each call is one event (`done`, `total`, `fraction`, `note`). Outside a run it does nothing,
    so that an agent can be run without outrider.
    """
    run = running.get()
    if run is None:
        return
    whole = total if total is not None else 1
    fraction = min(max(done / whole, 0.0), 1.0) if whole > 0 else 0.0
    shown = None if note is None else one_line(note, MAX_NOTE)
    run.emit(PROGRESS, {"done": done, "total": total, "fraction": fraction, "note": shown})

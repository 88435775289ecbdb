"""`progress`: an agent reports how far its run has come."""

from __future__ import annotations

import math
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

from .context import running
from .errors import BadInput
from .events import PROGRESS
from .text import one_line

MAX_NOTE = 500  #: characters; a longer note is cut


def progress(done: float, total: float | None = None, note: str | None = None) -> None:
    """Report how far this run has come, as an event of its task.

    `done` is a fraction from 0 to 1, or with `total` a count of things; `note` a few words. From async and sync code
    of nodes and tools. Each call is one event (`done`, `total`, `fraction`, `note`). Outside a run it does nothing, so
    that an agent can be run without outrider. `BadInput` where `done` or `total` is not a finite number.
    """
    done = _number("done", done)
    total = None if total is None else _number("total", total)
    run = running.get()
    if run is None:
        return
    whole = 1 if total is None else float(total)
    fraction = min(max(float(done) / whole, 0.0), 1.0) if whole > 0 else 0.0
    shown = None if note is None else one_line(str(note), MAX_NOTE)
    run.emit(PROGRESS, {"done": done, "total": total, "fraction": fraction, "note": shown})


def _number(name: str, value: Any) -> float:
    """A number of any kind, such as numpy's, as one of Python's own."""
    try:
        number = float(value) if isinstance(value, Real | Decimal) else math.nan
    except (OverflowError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        shown = value if isinstance(value, float) else f"of type {type(value).__name__}"
        raise BadInput(f"progress: {name} is {shown}: must be a finite number, such as progress(3, 10)")
    return int(value) if isinstance(value, Integral) else number

"""What all verbs print with: plain lines in a pipe, rich on a terminal, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine
    from contextlib import AbstractContextManager
    from datetime import datetime

    from rich.console import Console

T = TypeVar("T")

# What agents and documents wrote must not move the cursor, recolour the screen or turn the text around.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def on_terminal() -> bool:
    """Whether a person looks at stdout, on a terminal that can move its cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def console() -> Console:
    """The console of a terminal. Honours NO_COLOR."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False)


def working(text: str, *, quiet: bool) -> AbstractContextManager[Any]:
    """A spinner on a terminal while one waits; nothing in a pipe, or with `quiet`."""
    return nullcontext() if quiet or not on_terminal() else console().status(text)


def run(work: Coroutine[Any, Any, T], *, ended_by: Collection[signal.Signals] = (signal.SIGINT,)) -> T:
    """Carry a verb's work out on an event loop; these signals cancel it, so that it cleans up.

    Then it raises `KeyboardInterrupt`, or for other signals than SIGINT `SystemExit`.
    """
    import asyncio  # takes a tenth of the time in which `--help` has to answer

    came: list[signal.Signals] = []

    async def carry_out() -> T:
        task = asyncio.current_task()

        def end(by: signal.Signals) -> None:
            came.append(by)
            if task is not None:
                task.cancel()

        # Python's own handler cancels the task while it runs; a timeout that the task then enters swallows that.
        for number in ended_by:
            asyncio.get_running_loop().add_signal_handler(number, end, number)
        return await work

    try:
        return asyncio.run(carry_out())
    except asyncio.CancelledError:
        if not came:
            raise
    if signal.SIGINT in came:
        raise KeyboardInterrupt
    raise SystemExit(128 + came[0])


def complain(text: str) -> None:
    """Say what is wrong, or what a person should know, in one line on stderr."""
    print(f"outrider: {visible(' '.join(text.split()))}", file=sys.stderr)


def print_json(value: Any, *, lines: bool = False) -> None:
    """Print one JSON document; with `lines` on a line of its own, at once."""
    ascii_only = (sys.stdout.encoding or "ascii").lower() not in {"utf-8", "utf8"}
    text = json.dumps(value, ensure_ascii=ascii_only, indent=None if lines else 2)
    print(_CONTROLS.sub(lambda control: f"\\u{ord(control[0]):04x}", text), flush=lines)


def print_text(text: str) -> None:
    """Print text that an agent wrote: as it is in a pipe, made harmless on a terminal."""
    print(visible(text) if sys.stdout.isatty() else text)


def visible(text: str) -> str:
    """The text with control characters shown as U+FFFD; line feeds and tabs stay."""
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


def as_text(value: Any) -> str:
    """A result as text: itself, or JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2)


def clock(moment: datetime) -> str:
    """A moment as people read it: in their own time zone, to the second."""
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"


STYLES = {
    "success": "green",
    "error": "red",
    "timeout": "red",
    "cancelled": "yellow",
    "waiting": "magenta",
    "running": "cyan",
    "resting": "blue",
    "pending": "dim",
}  #: of statuses, on a terminal

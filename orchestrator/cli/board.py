"""Several tasks at once: a live table on a terminal, plain lines in a pipe, nothing beside JSON."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...shared import events
from .console import STYLES, console, on_terminal, visible
from .wording import line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from rich.table import Table

    from ...shared.records import Event


@dataclass(slots=True)
class Row:
    """What is known of one task."""

    question: str
    status: str = "pending"
    doing: str = ""
    began: float | None = None  #: on the monotonic clock
    seconds: float | None = None  #: it took, once it ended


class Board:
    """The tasks' rows. `showing()` is the context in which they are seen."""

    def __init__(self, questions: Sequence[str], *, quiet: bool) -> None:
        self.rows = [Row(question) for question in questions]
        self._live = on_terminal() and not quiet
        self._lines = not on_terminal() and not quiet

    def showing(self) -> AbstractContextManager[Any]:
        """Show the table as it changes, on a terminal; it stays at the end."""
        if not self._live:
            return nullcontext()
        from rich.live import Live

        return Live(console=console(), get_renderable=self._table, refresh_per_second=8)

    def event(self, number: int, event: Event) -> None:
        """Note an event of the task `number`."""
        row = self.rows[number]
        words = line(event)
        if event.type == events.TOKENS:
            row.doing = "writes"
        if words is None:
            return
        if event.type.startswith(("task.", "run.")):
            row.status, row.doing = words.split(maxsplit=1)[0], ""
        elif event.type == events.TOOL_STARTED:
            row.doing = visible(words.split(maxsplit=1)[-1])
        now = time.monotonic()
        row.began = row.began or (now if row.status == "running" else None)
        if row.began and row.seconds is None and row.status not in {"pending", "running", "waiting"}:
            row.seconds = now - row.began
        if self._lines:
            print(f"{number + 1}  {visible(words)}", flush=True)

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="dim", pad_edge=False)
        table.add_column("", justify="right", style="dim")
        table.add_column("question", ratio=3, overflow="ellipsis", no_wrap=True)
        table.add_column("status", min_width=9, no_wrap=True)
        table.add_column("", ratio=2, overflow="ellipsis", no_wrap=True, style="dim")
        table.add_column("time", justify="right", min_width=6, style="dim", no_wrap=True)
        table.expand = True
        for number, row in enumerate(self.rows, 1):
            spent = row.seconds if row.seconds is not None else time.monotonic() - row.began if row.began else None
            table.add_row(
                f"{number}",
                Text(visible(row.question)),
                Text(row.status, STYLES.get(row.status, "")),
                Text(row.doing),
                f"{spent:.1f} s" if spent is not None else "",
            )
        return table

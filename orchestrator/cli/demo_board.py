"""The demo's view of its tasks: a live table on a terminal, plain lines in a pipe, nothing with --json."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...shared import events
from .console import STYLES, console, on_terminal, visible
from .wording import line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    from rich.live import Live
    from rich.table import Table

    from ...shared.records import Event

OPEN = frozenset({"pending", "running", "resting", "waiting"})
FRAME_LINES = 4  #: of the terminal that are not rows
LINE = 140  #: characters of what a plain line says


@dataclass(slots=True)
class Row:
    """What is known of one task."""

    number: str  #: `2` for the second question's task, `2.1` for the first that it started
    agent: str
    title: str
    status: str = "pending"
    doing: str = ""
    began: float | None = None  #: on the monotonic clock
    seconds: float | None = None  #: it took, once it ended
    children: list[Row] = field(default_factory=list)

    @property
    def spent(self) -> float | None:
        """Seconds since it began, until it ended."""
        return self.seconds if self.began is None or self.seconds is not None else time.monotonic() - self.began


class Board:
    """The tasks' rows. `showing()` is the context in which they are seen."""

    def __init__(self, agent: str, questions: Sequence[str], *, quiet: bool) -> None:
        self.rows = [Row(f"{number}", agent, question) for number, question in enumerate(questions, 1)]
        self._live = on_terminal() and not quiet
        self._lines = not on_terminal() and not quiet
        self._view: Live | None = None

    def showing(self) -> AbstractContextManager[Any]:
        """Show the table as it changes, on a terminal; it stays at the end."""
        if not self._live:
            return nullcontext()
        from rich.live import Live

        self._view = Live(console=console(), get_renderable=self._table, refresh_per_second=8)
        return self._view

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Take the table off the terminal meanwhile."""
        if self._view is None:
            yield
            return
        self._view.transient = True
        self._view.stop()
        self._view.transient = False
        try:
            yield
        finally:
            self._view.start(refresh=True)

    def child(self, parent: Row, agent: str, title: str) -> Row:
        """Add a row for a task that another one started."""
        row = Row(f"{parent.number}.{len(parent.children) + 1}", agent, title)
        parent.children.append(row)
        return row

    def event(self, row: Row, event: Event) -> None:
        """Note an event of the row's task."""
        words = visible(line(event) or "")
        if event.type == events.TOKENS:
            row.doing = "writes"
        elif event.type == events.TOOL_STARTED:
            row.doing = words.split(maxsplit=1)[-1]
        elif event.type.startswith(("task.", "run.")):
            row.status, row.doing = words.split(maxsplit=1)[0], ""
        else:
            return  # only what matters most: many tasks share the screen
        now = time.monotonic()
        row.began = row.began or (now if row.status == "running" else None)
        if row.began and row.seconds is None and row.status not in OPEN:
            row.seconds = now - row.began
        if self._lines and words:
            print(f"{row.number:<4}  {row.agent:<8} {words[:LINE]}{'…' * (len(words) > LINE)}", flush=True)

    def _shown(self) -> Iterator[Row]:
        """All rows where they fit; else without the children of tasks that have ended."""
        fits = sum(1 + len(row.children) for row in self.rows) + FRAME_LINES <= console().height
        for row in self.rows:
            yield row
            yield from row.children if fits or row.status in OPEN else ()

    def _table(self) -> Table:
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, header_style="dim", pad_edge=False, expand=True)
        table.add_column("", min_width=4, style="dim", no_wrap=True)
        table.add_column("task", ratio=3, overflow="ellipsis", no_wrap=True)
        table.add_column("status", min_width=9, no_wrap=True)
        table.add_column("", ratio=2, overflow="ellipsis", no_wrap=True, style="dim")
        table.add_column("time", justify="right", min_width=6, style="dim", no_wrap=True)
        for row in self._shown():
            title = visible(row.title) if row.title == row.agent else f"{row.agent} · {visible(row.title)}"
            table.add_row(
                row.number,
                Text(f"  {title}" if "." in row.number else title),
                Text(row.status, STYLES.get(row.status, "")),
                Text(row.doing),
                f"{row.spent:.1f} s" if row.spent is not None else "",
            )
        return table

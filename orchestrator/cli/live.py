"""A task, live on a terminal: past events scroll by, the present state stays below."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from ...shared import events
from .console import STYLES, as_text, console, visible
from .endings import answer_to, asked
from .wording import Texts, line, line_below, progress

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ...shared.records import Event, Task

TAIL = 5  #: lines of what a model is writing


class LiveView:
    """Shows events on a terminal between `__enter__` and `__exit__`; the live part goes at the end."""

    def __init__(self, task: Task) -> None:
        self._console = console()
        self._name = task.title if task.title == task.agent else f"{task.agent} · {visible(task.title)}"
        self._status: str = task.status.value
        self._doing = ""
        self._progress: dict[str, Any] | None = None
        self._texts = Texts()
        self._created = task.created_at
        self._spinner = Spinner("dots")
        self._live = Live(console=self._console, get_renderable=self._below, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def event(self, event: Event) -> None:
        """Print its line above the live part, and renew that."""
        for _ in self._texts.add(event):
            pass
        words = line(event)
        if words is None:
            return
        what = words.split(maxsplit=1)[0]
        if event.type.startswith(("task.", "run.")):
            self._status = what
        if event.type == events.PROGRESS:
            self._progress = event.data
            return
        self._doing = visible(" ".join(words.split())) if event.type == events.TOOL_STARTED else ""
        moment = f"{event.at.astimezone():%H:%M:%S}  "
        self._console.print(
            Text.assemble((moment, "dim"), (visible(words), STYLES.get(what, ""))), overflow="ellipsis", no_wrap=True
        )

    def below(self, child: Task, event: Event) -> None:
        """Print its line above the live part, if it is about progress or status."""
        if words := line_below(child, event):
            self._console.print(
                Text(f"{event.at.astimezone():%H:%M:%S}  {visible(words)}", "dim"), overflow="ellipsis", no_wrap=True
            )

    def ask(self, task: Task) -> None:
        """Print the questions, each with the command that answers it."""
        for question in task.interrupts:
            self._console.print(Text(asked(question), "magenta"))
            self._console.print(Text(f"answer it: {answer_to(task, question)}", "bold"))

    def end(self, task: Task) -> None:
        """Print the result."""
        if task.result is not None:
            self._console.print()
            self._console.print(Text(visible(as_text(task.result))))

    def _below(self) -> RenderableType:
        seconds = max(0, int((datetime.now(UTC) - self._created).total_seconds()))
        head = Table.grid(padding=(0, 1))
        head.add_row(
            self._spinner,
            Text(self._status, STYLES.get(self._status, "")),
            Text(self._name, "bold"),
            Text(f"{seconds // 60}:{seconds % 60:02}", "dim"),
            Text(self._doing, "dim", overflow="ellipsis", no_wrap=True),
        )
        parts: list[RenderableType] = [head]
        if self._progress is not None:
            bar = Table.grid(padding=(0, 1))
            fraction = self._progress.get("fraction") or 0.0
            bar.add_row(ProgressBar(total=1.0, completed=fraction, width=40), Text(visible(progress(self._progress))))
            parts.append(bar)
        if text := visible(self._texts.current).rstrip():
            parts.append(_tail(text, self._console.width))
        return Group(*parts)


def _tail(text: str, width: int) -> Text:
    """The last lines of a text as it wraps."""
    # Only so much can be seen: wrapping all of a long text eight times a second would cost more than the model.
    wrapped = Text(text[-TAIL * width :], "dim").wrap(console(), width)
    return Text("\n").join(wrapped[-TAIL:])

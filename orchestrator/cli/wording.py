"""The line that people read of each event."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, TypeAlias

from ...shared import events
from ...shared.text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...shared.records import Event, Task

Data: TypeAlias = dict[str, Any]

_HOOK = re.compile(r"\.(before|after)_(agent|model)$")
WIDTH = 500  #: characters of a line, beyond which it is cut


def line(event: Event) -> str | None:
    """The event's line: what it is, then what it says. `None` for what tells a person nothing by itself.

    That is a part of a model's text, and the steps between the model's turns that middleware takes.
    """
    if event.type == events.TOKENS or _HOOK.search(str(event.data.get("node", ""))):
        return None
    what, words = WORDING.get(event.type, (event.type, _json))
    return f"{event.data.get('status', what):<8}  {one_line(words(event.data), WIDTH)}".rstrip()


def line_below(child: Task, event: Event) -> str | None:
    """The line, with the task's name, of an event of a task below, if it is about progress or status."""
    words = line(event) if event.type.startswith("task.") or event.type == events.PROGRESS else None
    # Whole in its first line, which other commands take; then as much as tells it from its siblings.
    name = child.task_id if event.type == "task.submitted" else child.task_id[:8]
    return words and f"{child.agent} {name}: {' '.join(words.split())}"


def progress(data: Data) -> str:
    """How far a run is: `3/10 note`, or `30 % note`."""
    done, total = data.get("done"), data.get("total")
    far = f"{done:g}/{total:g}" if total is not None and done is not None else f"{data.get('fraction') or 0:.0%}"
    return f"{far} {data.get('note') or ''}".rstrip()


class Texts:
    """Joins the pieces of models' texts: a text is complete when another event comes."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._message: str | None = None

    @property
    def current(self) -> str:
        """The text that is being written."""
        return "".join(self._parts)

    def add(self, event: Event) -> Iterator[str]:
        """Take an event in; the text that it ended, in one line, if it ended one."""
        same = event.type == events.TOKENS and event.data.get("message_id") == self._message
        if self._parts and not same:
            if whole := one_line(self.current, WIDTH):
                yield whole
            self._parts.clear()
        if event.type == events.TOKENS:
            self._message = event.data.get("message_id")
            self._parts.append(str(event.data.get("text", "")))


def _grade(data: Data) -> str:
    gaps = "".join(f"; {gap}" for gap in data.get("gaps") or ())
    return f"{data.get('result')}{' (unverified)' if data.get('unverified') else ''}{gaps}"


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False)


#: What a line begins with (where the event tells a status, that stands there), and the words that follow.
WORDING: dict[str, tuple[str, Callable[[Data], str]]] = {
    "task.submitted": ("pending", lambda data: str(data.get("title", ""))),
    "task.waiting": (
        "waiting",
        lambda data: (
            "for a person's answer" + (", once more: the last one did not fit" if data.get("error_type") else "")
        ),
    ),
    "task.answered": (
        "answered",
        lambda data: (
            f"question {data.get('id')} was answered" + (f", {left} more open" if (left := data.get("open")) else "")
        ),
    ),
    "task.resting": ("resting", lambda _: "no worker is held until its subagents report"),
    "task.woken": ("pending", lambda _: "woken: its subagents report"),
    "task.updated": ("pending", lambda _: "with a message to it"),
    "task.follow_up": ("queued", lambda _: "a message waits for the end of the active run"),
    "run.ended": ("ended", lambda data: f"{data.get('error_type') or ''} a follow-up is next".strip()),
    "task.grading": ("grading", lambda _: "waits for a grader"),
    events.GRADE_STARTED: ("grading", lambda data: f"iteration {data.get('iteration')}"),
    events.GRADE_FINISHED: ("grade", _grade),
    "task.revising": ("pending", lambda _: "to revise its work"),
    "task.registered": ("idle", lambda _: "a parent in a process of its own"),
    "inbox.left": ("news", lambda _: "its reader has left the inbox"),
    "inbox.arrived": ("news", lambda data: f"of task {data.get('task_id')}"),
    "task.cancelled": ("cancelled", lambda _: ""),
    "task.settled": ("settled", lambda data: data.get("error_type") or ""),
    "run.claimed": ("running", lambda data: f"on {data.get('worker')}"),
    "run.waits": ("pending", lambda data: f"for a {data.get('for')}: its agent has as many runs at work as it may"),
    "run.given_back": ("pending", lambda _: "its worker shuts down; it goes on from its last step"),
    "run.lost": ("pending", lambda _: "its worker was lost; it goes on from its last step"),
    "run.retried": ("pending", lambda data: f"again in {data.get('seconds')} s, after {data.get('error_type')}"),
    events.STEP: ("step", lambda data: str(data.get("node", ""))),
    events.TOOL_STARTED: ("tool", lambda data: f"{data.get('name')} {data.get('args') or ''}"),
    events.TOOL_ENDED: ("tool", lambda data: f"{data.get('name')} {'done' if data.get('ok', True) else 'failed'}"),
    events.PROGRESS: ("progress", progress),
    events.CUSTOM: ("custom", lambda data: _json(data.get("data"))),
    events.DROPPED: ("dropped", lambda data: f"{data.get('count')} events that came too fast to be kept"),
}

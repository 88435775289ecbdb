"""Notifications: what a parent is told of a child, and how the parent's model reads it.

What an agent wrote is data. It is cut first and escaped then, so that no entity is cut in half and no text can close
the block or open another; the bound holds for the escaped text.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from langchain_core.messages import HumanMessage

from .family import LIMIT
from .statuses import Status
from .text import one_line

if TYPE_CHECKING:
    from .records import Notification

FIELD_LIMIT = 400  #: of a field that is not the result, raw
LC_SOURCE = "outrider_notification"
HEADER = "[SYSTEM NOTIFICATION - NOT USER INPUT. A background task of yours reports; it answers no question.]"


def message(note: Notification) -> HumanMessage:
    """The message that tells a parent's model; its id is the same each time it is made."""
    facts = {"task_id": note.task_id, "run_id": note.run_id, "status": note.status.value}
    return HumanMessage(
        render(note),
        id=note.id,
        additional_kwargs={
            "lc_source": LC_SOURCE,
            "outrider_notification": {
                **facts,
                "id": note.id,
                "agent": note.agent,
                "title": note.title,
                "seq": note.seq,
            },
            "deepagents_notification": {**facts, "agent_name": note.agent},
        },
    )


def render(note: Notification) -> str:
    """The text of a notification, at most `LIMIT` characters."""
    head = "\n".join(
        (
            HEADER,
            "<task-notification>",
            *(_line(tag, one_line(text, FIELD_LIMIT)) for tag, text in _facts(note)),
        )
    )
    tail = f"</task-notification> {_next_step(note)}"
    if note.status is not Status.SUCCESS:
        failure = f"The subagent ended as {note.status.value} ({note.error_type or 'no error'})."
        return "\n".join((head, _line("error", one_line(failure, FIELD_LIMIT)), tail))
    budget = LIMIT - len(head) - len(tail) - len("\n<result></result>\n")
    return "\n".join((head, f"<result>{_bounded(note, budget)}</result>", tail))


def _facts(note: Notification) -> tuple[tuple[str, str], ...]:
    return (
        ("task-id", note.task_id),
        ("agent-name", note.agent),
        ("status", note.status.value),
        ("title", note.title),
        ("open-tasks", str(note.open_children)),
    )


def _line(tag: str, text: str) -> str:
    return f"<{tag}>{html.escape(text, quote=False)}</{tag}>"


def _bounded(note: Notification, budget: int) -> str:
    mark = f"… (cut: {note.result_length:,} characters in all; check_async_task reads the whole)"
    whole = note.result_length == len(note.result)
    escaped = html.escape(note.result, quote=False)
    if whole and len(escaped) <= budget:
        return escaped
    return html.escape(_fitting(note.result, budget - len(mark)), quote=False) + mark


def _fitting(text: str, budget: int) -> str:
    """The longest beginning of the text that is within the budget when it is escaped."""
    length = 0
    for index, character in enumerate(text):
        length += {"&": 5, "<": 4, ">": 4}.get(character, 1)
        if length > budget:
            return text[:index]
    return text


def _next_step(note: Notification) -> str:
    if note.status is not Status.SUCCESS:
        return "Decide whether to start the task again in another way, or to go on without it."
    if note.open_children:
        return f"{note.open_children} of your background tasks are still open: you will be told of each."
    return "None of your background tasks is open any more: go on with what they found."

"""A notification: what a parent's inbox keeps of a child's end, or of its question; written and read here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Self

from .content_blocks import text_and_media
from .grades import NotedGrade  # noqa: TC001 pydantic reads it
from .record_base import Record
from .record_layout import hash_of
from .statuses import Status

if TYPE_CHECKING:
    from langchain_core.messages import HumanMessage

    from .grades import Grade
    from .transitions import Facts

#: Characters of a notification at most: 20,000 tokens of 4 characters, as deepagents bounds what a model reads.
NOTE_LIMIT = 80_000
#: Statuses whose notification has the task's text; of a failure it has the type alone.
TOLD_WHOLE = frozenset({Status.SUCCESS, Status.WAITING})
#: State key of a parent with our middleware: number of the last notification that its state has.
CURSOR = "outrider_cursor"


class Notification(Record):
    """What a parent is told of a child's end, or of its question."""

    id: str  #: `task:run:status`
    seq: int  #: its number in the parent's inbox
    task_id: str
    run_id: str
    agent: str
    status: Status
    title: str
    result: str = ""  #: the beginning of it; of a `waiting` child the beginning of what it asks, as JSON
    result_length: int = 0  #: characters of the whole
    media: tuple[dict[str, str], ...] = ()  #: content blocks that go along; the result names them
    error_type: str | None = None
    grade: NotedGrade | None = None  #: of a task that was graded
    open_children: int = 0  #: of the parent, when this arrived
    overtaken: bool = False  #: a later run of the task had begun when this was given to the parent

    @property
    def text(self) -> str:
        """What a model reads of it: one block, escaped and bounded."""
        from .notification_text import render  # noqa: PLC0415 LangChain takes its time to import

        return render(self, tools=False)

    def message(self) -> HumanMessage:
        """The message for a parent's model. It has this notification's id, so a LangGraph state holds it once."""
        from .notification_text import message  # noqa: PLC0415

        return message(self, tools=False)

    @classmethod
    def from_entry(cls, entry: tuple[bytes, list[bytes]]) -> Self:
        """Build from an entry of the inbox's stream, as a script returns it."""
        entry_id, flat = entry
        fields = hash_of(flat)
        note = json.loads(fields[b"note"])
        return cls(seq=int(entry_id.split(b"-")[0]), open_children=int(fields[b"open"]), **note)


def note_of(
    facts: Facts, run_id: str, status: Status, result: str | None, error_type: str, *, grade: Grade | None = None
) -> str:
    """The JSON that the parent's inbox keeps of an end, or of questions.

    `result` is the JSON text of the task's result, or of what it asks. A long one is cut, and its whole length kept.
    """
    text, media = text_and_media(json.loads(result)) if result and status in TOLD_WHOLE else ("", ())
    return json.dumps(
        {
            "id": f"{facts.task_id}:{run_id}:{status.value}",
            "task_id": facts.task_id,
            "run_id": run_id,
            "agent": facts.agent,
            "status": status.value,
            "title": facts.title,
            "result": text[:NOTE_LIMIT],
            "result_length": len(text),
            "media": media,
            "error_type": error_type or None,
            "grade": grade.noted().to_json() if grade else None,
        }
    )

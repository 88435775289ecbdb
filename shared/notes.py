"""What a parent's inbox keeps of the end of a child, or of what it asks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .blocks import told
from .statuses import Status

if TYPE_CHECKING:
    from .grades import Grade
    from .transitions import Facts

#: Characters of a notification at most: 20,000 tokens of 4 characters, as deepagents bounds what a model reads.
NOTE_LIMIT = 80_000
#: Statuses of which a parent is told what the task says; of a failure it is told the type alone.
TOLD_WHOLE = frozenset({Status.SUCCESS, Status.WAITING})
#: State key of a parent with our middleware: number of the last notification that its state has.
CURSOR = "outrider_cursor"


def note_of(
    facts: Facts, run_id: str, status: Status, result: str | None, error_type: str, *, grade: Grade | None = None
) -> str:
    """What is kept in the parent's inbox of an ending, or of questions, as JSON.

    `result` is the JSON text of the task's result, or of what it asks. A long one is cut, and its whole length kept.
    """
    text, media = told(json.loads(result)) if result and status in TOLD_WHOLE else ("", ())
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

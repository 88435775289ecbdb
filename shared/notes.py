"""What a parent's inbox keeps of the end of a child."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from .statuses import Status
from .text import clean

if TYPE_CHECKING:
    from .transitions import Facts

#: Characters of a notification at most: 20,000 tokens of 4 characters, as deepagents bounds what a model reads.
NOTE_LIMIT = 80_000
#: State key of a parent with our middleware: number of the last notification that its state has.
CURSOR = "outrider_cursor"


def note_of(facts: Facts, run_id: str, status: Status, result: str | None, error_type: str) -> str:
    """What is kept of an ending in the parent's inbox, as JSON.

    `result` is the JSON text of the task's result. A long one is cut, and its whole length kept.
    """
    value = json.loads(result) if result and status is Status.SUCCESS else ""
    text = value if isinstance(value, str) else str(result)
    return json.dumps(
        {
            "id": f"{facts.task_id}:{run_id}:{status.value}",
            "task_id": facts.task_id,
            "run_id": run_id,
            "agent": facts.agent,
            "status": status.value,
            "title": facts.title,
            "result": clean(text[:NOTE_LIMIT]),
            "result_length": len(text),
            "error_type": error_type or None,
        }
    )

"""A task among its parent and its children: the keys that scripts get of them, and what a parent is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .ids import new_id
from .queries import bell_label
from .records import Bell
from .statuses import Status
from .text import clean

if TYPE_CHECKING:
    from .keys import Keys
    from .transitions import Facts

#: Characters of a notification at most: 20,000 tokens of 4 characters, as deepagents bounds what a model reads.
LIMIT = 80_000
#: State key of a parent with our middleware: number of the last notification that its state has.
CURSOR = "outrider_cursor"


class Family:
    """KEYS 18 to 29 of the scripts that concern a family, and the ids of the runs that they may start."""

    def __init__(self, keys: Keys, facts: Facts) -> None:
        self.next_run, self.wake_run = new_id(), new_id()
        task = keys.task(facts.task_id)
        parent = facts.parent_id
        self.keys = [
            keys.open_children(facts.task_id),
            keys.run(self.next_run),
            keys.input(self.next_run),
            keys.inbox(facts.task_id),
            *(
                (
                    keys.task(parent),
                    keys.inbox(parent),
                    keys.events(parent),
                    keys.runs(parent),
                    keys.open_children(parent),
                    keys.run(self.wake_run),
                    keys.input(self.wake_run),
                    keys.open_children(facts.ancestors[-2]) if len(facts.ancestors) > 1 else task,
                )
                if parent
                else (task,) * 8
            ),
        ]


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
            "result": clean(text[:LIMIT]),
            "result_length": len(text),
            "error_type": error_type or None,
        }
    )


def bell_of(reply: list[bytes]) -> Bell | None:
    """The bell of a run that a script started, or `None` where it started none."""
    if not reply:
        return None
    task_id, run_id, queue, agent, title = (part.decode() for part in reply)
    return Bell(task_id=task_id, run_id=run_id, queue=queue, label=bell_label(agent, title, task_id))


def bells_of(*replies: list[bytes]) -> tuple[Bell, ...]:
    """The bells to ring now."""
    return tuple(bell for bell in map(bell_of, replies) if bell)


def flat(fields: dict[str, Any]) -> list[Any]:
    """Field, value, … as scripts take them."""
    return [part for pair in fields.items() for part in pair]

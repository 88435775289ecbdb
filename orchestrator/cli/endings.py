"""How a task stands when a command leaves it: the exit code, and a line for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...shared.statuses import Status
from .console import complain

if TYPE_CHECKING:
    from ...shared.records import Task

DONE, ENDED_BADLY, BAD_USE, UNREACHABLE, QUESTION, TIMED_OUT = range(6)
INTERRUPTED = 130


def exit_code(task: Task) -> int:
    """The exit code for a task that is at rest."""
    if task.status is Status.WAITING:
        return QUESTION
    return DONE if task.status is Status.SUCCESS else ENDED_BADLY


def tell_ending(task: Task) -> None:
    """Say on stderr how a task ended, unless it ended well."""
    if task.status is Status.WAITING:
        complain(f"task {task.task_id} waits for an answer to the question above")
    elif task.status is not Status.SUCCESS:
        reason = f": {task.error.type}: {task.error.message}" if task.error else ""
        complain(f"task {task.task_id} ended as {task.status}{reason}")

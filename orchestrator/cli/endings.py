"""The end of a command about a task: its exit code, and a line for people."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ...shared.statuses import Status
from ..approvals import APPROVE, REJECT, allowed, calls_to_review, example, is_approval
from .console import as_text, complain, visible

if TYPE_CHECKING:
    from ...shared.grades import Grade
    from ...shared.records import Interrupt, Task

DONE, ENDED_BADLY, BAD_USE, UNREACHABLE, QUESTION, TIMED_OUT, NOT_SATISFIED = range(7)
INTERRUPTED = 130
ONE_LINE = 80  #: characters of a question in JSON that are not spread over lines
OPTIONS = {APPROVE: "--approve", REJECT: "--reject [TEXT]"}  #: of `answer`, which decide all calls of a question


def exit_code(task: Task) -> int:
    """The exit code for a task that is at rest."""
    if task.status is Status.WAITING:
        return QUESTION
    if task.status is not Status.SUCCESS:
        return ENDED_BADLY
    return NOT_SATISFIED if task.grade and not task.grade.satisfied else DONE


def asked(question: Interrupt) -> str:
    """A question as text. Lines after the first are indented, so that none of them looks like one of ours."""
    calls = [
        f"{call.get('name')} {json.dumps(call.get('args'), ensure_ascii=False)}" for call in calls_to_review(question)
    ]
    words = "\n".join(["it wants to call", *calls]) if calls else _compact(question.value)
    return visible(words).replace("\n", "\n  ")


def _compact(value: Any) -> str:
    """Text as it is, other values as JSON: on one line if that is a short one."""
    whole = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return whole if len(whole) <= ONE_LINE else as_text(value)


def answer_to(task: Task, question: Interrupt) -> str:
    """The command that answers a question."""
    named = f" --interrupt {question.id}" if len(task.interrupts) > 1 else ""
    return f"outrider answer {task.task_id}{named} {_value(question)}"


def _value(question: Interrupt) -> str:
    if not is_approval(question):
        return "VALUE"
    each = allowed(question)
    for_all = [option for one, option in OPTIONS.items() if all(not possible or one in possible for possible in each)]
    return ", or ".join(for_all) or f"'{example(question)}'"


def tell_ending(task: Task) -> None:
    """Say on stderr how a task ended, unless it ended well and, where it was graded, satisfied its rubric."""
    if task.status is Status.WAITING:
        if task.error:
            complain(f"an answer did not fit: {task.error.message}")
        for question in task.interrupts:
            complain(f"task {task.task_id} waits for a person: {answer_to(task, question)}")
    elif task.status is not Status.SUCCESS:
        # The error of one that timed out is of the type `timeout`: that is not said twice.
        kind = f": {task.error.type}" if task.error and task.error.type != task.status else ""
        reason = f": {task.error.message}" if task.error else ""
        complain(f"task {task.task_id} ended as {task.status}{kind}{reason}")
    elif task.grade and not task.grade.satisfied:
        complain(f"task {task.task_id} is done, and its grade is {grade_line(task.grade)}")


def grade_line(grade: Grade) -> str:
    """A grade in a line: the result, why, and what is open."""
    said = " ".join(grade.explanation.split())
    gaps = "".join(f"; {one.name}: {one.gap}" for one in grade.open_gaps)
    unverified = " (unverified)" if grade.unverified else ""
    return f"{grade.result}{unverified}{f': {said}' if said else ''}{gaps}"

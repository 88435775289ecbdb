"""Answers to what tasks ask: checked here, before anything is written."""

from __future__ import annotations

from typing import Any

from ..shared.record import Record
from ..shared.statuses import Status  # noqa: TC001 pydantic reads it
from .jsonable import json_value
from .submit import check_size


class Answered(Record):
    """The answer to an answer: it was accepted."""

    task_id: str
    interrupt: str  #: the id of the question that was answered
    open: tuple[str, ...] = ()  #: ids of questions that still need an answer
    run_id: str | None  #: that goes on with the answers; `None` while questions are open
    status: Status  #: of the task now
    event_id: str  #: of the task's last event before it: `follow(task_id, event_id)` gives what comes of it
    notes: tuple[str, ...] = ()  #: what was replaced, or could not be done at once


def check_answer(value: Any, max_bytes: int) -> tuple[Any, list[str]]:
    """Return what the agent will get, and notes; `BadInput` where JSON cannot hold it, or it is too large."""
    changed: list[str] = []
    answer = json_value(value, "answer", changed)
    check_size(max_bytes, answer=answer)
    return answer, [f"{where}: NUL and lone surrogates cannot be stored and were replaced" for where in changed]

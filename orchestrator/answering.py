"""Answering a task's question: the answer is checked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.ids import check_id
from ..shared.record_base import Record
from ..shared.statuses import Status
from ..shared.transitions import Facts
from . import approvals
from .jsonable import json_value, replaced
from .run_input import check_size

if TYPE_CHECKING:
    from .session import Session


class Answered(Record):
    """An answer was accepted."""

    task_id: str
    interrupt: str  #: the id of the question that was answered
    open: tuple[str, ...] = ()  #: ids of questions that still need an answer
    run_id: str | None  #: that goes on with the answers; `None` while questions are open
    status: Status  #: of the task now
    event_id: str  #: of the task's last event before it: `follow(task_id, event_id)` shows what follows
    notes: tuple[str, ...] = ()  #: what was replaced, or could not be done at once


async def answer(session: Session, task_id: str, value: Any, interrupt: str | None) -> Answered:
    """Do what `Outrider.answer` does."""
    check_id(task_id)
    given, notes = _check(value, session.settings.max_input_bytes)
    named = None if interrupt is None else check_id(interrupt, "interrupt")
    store = session.store
    with session.reachable():
        task = await store.get(task_id)
        asked = [question for question in task.interrupts if named in {None, question.id}]
        if len(asked) == 1:
            approvals.check(asked[0], given)
        event_id = await store.last_event_id(task_id)
        answered = await store.answer(Facts.of(task), given, interrupt=named)
    return Answered(
        task_id=task_id,
        interrupt=answered.interrupt,
        open=answered.open,
        run_id=answered.run_id,
        status=Status.WAITING if answered.open else Status.PENDING,
        event_id=event_id,
        notes=(*notes, *await session.ring(*answered.bells)),
    )


def _check(value: Any, max_bytes: int) -> tuple[Any, list[str]]:
    """Return what the agent will get, and notes; `BadInput` where JSON cannot hold it, or it is too large."""
    changed: list[str] = []
    safe = json_value(value, "answer", changed)
    check_size(max_bytes, answer=safe)
    return safe, replaced(changed)

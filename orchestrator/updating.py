"""Updating a task with one more message: it is checked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.context import running
from ..shared.errors import BadInput
from ..shared.ids import check_id, shorten
from ..shared.record_base import Record
from ..shared.records import Interrupt  # noqa: TC001 pydantic reads it
from ..shared.statuses import Status, Strategy
from .run_input import check_input, check_size
from .task_grading import new_grading

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..shared.records import Task
    from ..shared.rubric import Rubric
    from .session import Session
    from .task_grading import TaskGrading


class Updated(Record):
    """The answer to an update."""

    task_id: str
    run_id: str | None  #: the run that was started; `None`: the message waits
    status: Status  #: of the task now
    overtaken: str | None = None  #: the run that was stopped
    dropped: tuple[Interrupt, ...] = ()  #: questions that nobody needs to answer any more
    event_id: str  #: of the task's last event before it: `follow(task_id, event_id)` shows what follows
    notes: tuple[str, ...] = ()  #: what was replaced, or could not be done at once


async def update(
    session: Session,
    task_id: str,
    text: str,
    strategy: Strategy | str | None,
    *,
    state: Mapping[str, Any] | None = None,
    rubric: Rubric | Mapping[str, Any] | str | None = None,
    key: str | None = None,
) -> Updated:
    """Do what `Outrider.update` does; a second call with the same `key` gets the same answer and changes nothing."""
    check_id(task_id)
    how, store, inside = _strategy(strategy), session.store, running.get()
    with session.reachable():
        task = await store.peek(task_id)
        grading = None if rubric is None else new_grading(rubric, task.agent, await session.config())
        given, notes = await _given(session, task, text, state, grading)
        event_id = await store.last_event_id(task_id)
        updated = await store.update(
            task_id,
            given,
            how,
            key=key,
            claim=inside.claim if inside and inside.claim.task_id in task.ancestors else None,
            rubric=grading.rubric if grading else None,
            grade_queue=grading.queue if grading else None,
        )
        status = (await store.peek(task_id)).status
    return Updated(
        task_id=task_id,
        run_id=updated.run_id,
        status=status,
        overtaken=updated.overtaken,
        dropped=updated.dropped,
        event_id=event_id,
        notes=(*notes, *await session.ring(*updated.bells)),
    )


def _strategy(strategy: Any) -> Strategy | None:
    """Return what to do about an active run; `BadInput` for an unknown strategy."""
    try:
        return None if strategy is None else Strategy(strategy)
    except ValueError:
        raise BadInput(f"strategy {shorten(repr(strategy))} must be of {', '.join(Strategy)}") from None


async def _given(
    session: Session, task: Task, text: Any, state: Mapping[str, Any] | None, grading: TaskGrading | None
) -> tuple[dict[str, Any], list[str]]:
    """Return what the run will be given, and notes; `BadInput` or `BrokenAgent` names the fault and the remedy."""
    if task.home != "worker":
        raise BadInput(f"task {task.task_id} is an external parent: it gets no runs, only notifications")
    known = (await session.catalogue()).agents.get(task.agent)
    given, notes = check_input(task.agent, text, state, known, added=grading.state if grading else {})
    check_size(session.settings.max_input_bytes, **given)
    return given, notes

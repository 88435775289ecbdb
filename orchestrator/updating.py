"""A message to a task that is there: everything is checked here, before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput
from ..shared.ids import shorten
from ..shared.record import Record
from ..shared.records import Interrupt  # noqa: TC001 pydantic reads it
from ..shared.statuses import Status, Strategy
from .submit import check_input, check_size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..shared.catalogue import Published
    from ..shared.records import Task


class Updated(Record):
    """The answer to an update."""

    task_id: str
    run_id: str | None  #: that was started; `None`: the message waits for the end of what the task is at
    status: Status  #: of the task now
    overtaken: str | None = None  #: the run that was stopped
    dropped: tuple[Interrupt, ...] = ()  #: questions that nobody needs to answer any more
    event_id: str  #: of the task's last event before it: `follow(task_id, event_id)` gives what comes of it
    notes: tuple[str, ...] = ()  #: what was replaced, or could not be done at once


def check_strategy(strategy: Any) -> Strategy | None:
    """Return what to do about an active run; `BadInput` for what is none of that."""
    try:
        return None if strategy is None else Strategy(strategy)
    except ValueError:
        raise BadInput(f"strategy {shorten(repr(strategy))} must be of {', '.join(Strategy)}") from None


def check_update(
    task: Task, text: Any, state: Mapping[str, Any] | None, known: Published | None, max_bytes: int
) -> tuple[dict[str, Any], list[str]]:
    """Return what the run will be given, and notes; `BadInput` or `BrokenAgent` names the fault and the remedy."""
    if task.home != "worker":
        raise BadInput(f"task {task.task_id} is at home elsewhere: it gets no runs here, only notifications")
    given, notes = check_input(task.agent, text, state, known)
    check_size(max_bytes, **given)
    return given, notes

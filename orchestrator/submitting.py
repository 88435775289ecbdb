"""Submitting a task: the request is checked, the task is written in one step, and its bell is rung."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Literal

from ..shared.bells import Bell, bell_for
from ..shared.context import running
from ..shared.errors import ParentClosed, UnknownTask
from ..shared.ids import check_id
from ..shared.record_base import Record
from ..shared.statuses import Status
from .forking import snapshot_for
from .submit_request import FORK, SubmitRequest, check_request
from .webhook_check import check_webhook

if TYPE_CHECKING:
    from ..shared.catalogue import Catalogue
    from ..shared.records import Task
    from ..shared.snapshots import Snapshot
    from ..shared.transitions import Submission
    from .session import Session


class Submitted(Record):
    """The answer to a submit."""

    task_id: str
    run_id: str
    status: Status  #: of the task, as it was written or, if it was there before, as it is now
    created: bool  #: `False`: the idempotency key was used before, and this is what it made
    notes: tuple[str, ...] = ()  #: what was cut, replaced, or could not be done at once

    @property
    def event_id(self) -> str:
        """The id after which all its events come."""
        return "0"


async def submit(
    session: Session,
    request: SubmitRequest,
    parent: str | Literal[False] | None = None,
    snapshot: Snapshot | None = None,
) -> Submitted:
    """Do what `Outrider.submit` does. `snapshot` is what a fork begins with, where the caller has it already."""
    config, inside = await session.config(), running.get()
    parent_id = inside.claim.task_id if parent is None and inside else (None if parent is False else parent)
    with session.reachable():
        known = await session.catalogue()
        above = await _parent(session, parent_id) if parent_id is not None else None
    if request.webhook is not None:
        await asyncio.to_thread(check_webhook, request.webhook, session.settings)
    submission, notes = check_request(request, config, known.agents, session.settings.max_input_bytes, above)
    claim = inside.claim if inside and inside.claim.task_id == parent_id else None
    with session.reachable():
        if submission.mode == FORK and snapshot is None:
            snapshot = await snapshot_for(submission, session)
        written = await session.store.submit(submission, claim, snapshot)
        # A command repeated after a lost reply finds what it wrote itself.
        created = written.run_id == submission.run_id
        status = Status.PENDING if created else (await session.store.peek(written.task_id)).status
    if created:
        notes += [*await session.ring(_first_bell(submission)), *_unserved(submission, known)]
    return Submitted(task_id=written.task_id, run_id=written.run_id, status=status, created=created, notes=tuple(notes))


async def _parent(session: Session, parent_id: str) -> Task:
    try:
        return await session.store.peek(check_id(parent_id, "parent"))
    except UnknownTask:
        raise ParentClosed(parent_id, ParentClosed.UNKNOWN) from None


def _first_bell(submission: Submission) -> Bell:
    return bell_for(
        submission.task_id,
        submission.run_id,
        queue=submission.queue,
        agent=submission.agent,
        title=submission.title,
    )


def _unserved(submission: Submission, known: Catalogue) -> list[str]:
    """A note for each queue of the task that no worker serves, as far as workers have published."""
    queues = dict.fromkeys(queue for queue in (submission.queue, submission.grade_queue) if queue)
    return [
        f"no worker serves the queue {queue} now: the task waits for one (outrider worker -Q {queue})"
        for queue in queues
        if known.queues and queue not in known.queues
    ]

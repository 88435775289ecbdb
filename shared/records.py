"""The records: what the store keeps of a task and of its runs. Frozen; the store returns new ones.

Each record is built from a Redis hash by `from_hash` and shown to people by `to_json` (the public form: times are
RFC 3339 in UTC with milliseconds, what does not apply is `null`).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Self

from pydantic import Field

from .grades import Grade  # noqa: TC001 pydantic reads it
from .limits import Limits, Usage
from .record_base import Moment, Record
from .record_layout import Hash, read_hash, text_of
from .rubric import Rubric  # noqa: TC001 pydantic reads it
from .statuses import PHASES, EndedAs, Phase, RunKind, RunStatus, Status


class Fault(Record):
    """Why a task or a run did not end well."""

    type: str
    message: str


class Interrupt(Record):
    """A question that a run asks a person."""

    id: str
    value: Any


def _fault(fields: Hash) -> Fault | None:
    kind = text_of(fields, "error_type")
    return Fault(type=kind, message=text_of(fields, "error_message")) if kind else None


def _with_late(usage: dict[str, Any], fields: Hash) -> dict[str, Any]:
    """The usage of a task, with what runs used after they were overtaken."""
    late = fields.get(b"usage_late")
    if not late:
        return {"usage": usage}
    noted = Usage.model_validate(usage)
    return {"usage": noted.plus(Usage.model_validate_json(late)), "usage_noted": noted}


class DeliveryStatus(StrEnum):
    """Whether a webhook was told of an end."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"  #: it was tried too often, and is not tried any more


class Delivery(Record):
    """A delivery to the task's webhook: it tells of an end of the task."""

    id: str  #: also that of the notification: `task:run:status`
    status: DeliveryStatus
    tries: int
    created_at: Moment
    updated_at: Moment | None = None  #: when the last try ended
    next_at: Moment | None = None  #: when the next one starts
    error: str | None = None  #: of the last try

    @classmethod
    def from_hash(cls, fields: Hash) -> Self:
        """Build from the delivery's Redis hash."""
        return cls(**read_hash(cls, fields))


class Run(Record):
    """One execution of an agent on a task."""

    run_id: str  #: also the id of the Celery task
    task_id: str
    kind: RunKind = RunKind.AGENT
    status: RunStatus = RunStatus.PENDING
    ended_as: EndedAs | None = None
    attempt: int = 0  #: claims that ended in a lost worker or a retried error; a pause leaves it alone
    queue: str
    worker: str | None = None
    created_at: Moment
    started_at: Moment | None = None
    ended_at: Moment | None = None
    error: Fault | None = None  #: how it ended, or, while it waits for another attempt, why that is made
    not_before: Moment | None = None  #: when its next attempt may start, if one is waited for
    failures: int = Field(default=0, exclude=True)  #: lost workers and retried errors while `saves` was the task's
    saves: int = Field(default=0, exclude=True)  #: checkpoints of the task when the last of these was counted
    losses: int = Field(default=0, exclude=True)  #: lost workers in all
    grade: Grade | None = None  #: of a grade run: what it came to
    delivery: Delivery | None = None  #: to the task's webhook, where the task ended with this run
    of_run: str | None = Field(default=None, exclude=True)  #: of a grade run: the agent's run that it grades
    epoch: int = Field(default=0, exclude=True)  #: of its last claim
    token: str | None = Field(default=None, exclude=True)  #: of its last claim
    lease_until_ms: int = Field(default=0, exclude=True)  #: Unix ms on the Redis clock; 0 = nobody holds it
    inbox_from: int = Field(default=0, exclude=True)  #: first notification it was given at its first claim
    inbox_to: int = Field(default=0, exclude=True)  #: last one; below `inbox_from` where it was given none

    @classmethod
    def from_hash(cls, fields: Hash) -> Self:
        """Build from the run's Redis hash."""
        found = read_hash(cls, fields)
        if found.get("status") != RunStatus.PENDING:
            found.pop("not_before", None)
        return cls(**found, error=_fault(fields))


class Task(Record):
    """A durable conversation of one agent. Its id is also the LangGraph thread id."""

    task_id: str
    agent: str
    title: str
    status: Status
    phase: Phase | None = None
    home: str = "worker"
    parent_id: str | None = None
    mode: str = "isolated"
    attempt: int = 0  #: of its current run
    waits_for: str | None = None  #: while `pending`: a `slot` or its `retry`, if it does not wait for a worker
    created_at: Moment
    updated_at: Moment
    stopped_at: Moment | None = None  #: when the code of its last run really ended
    result: Any = None  #: of a task that has ended; what it said before it rested is no result
    error: Fault | None = None
    #: what it asks and nobody answered yet; empty where it was not read (lists)
    interrupts: tuple[Interrupt, ...] = ()
    rubric: Rubric | None = None  #: `None` too where it was not read (lists)
    grade: Grade | None = None  #: the last one since it was submitted or updated
    limits: Limits = Limits()
    usage: Usage = Usage()
    metadata: dict[str, Any] = Field(default_factory=dict)
    webhook: str | None = None  #: URL that is told of its ends; what follows a `?` is not shown
    follow_ups: int = 0  #: messages that wait for the end of its active run
    runs: tuple[Run, ...] | None = None  #: oldest first; `None` where they were not read (lists)

    run_id: str | None = Field(default=None, exclude=True)  #: the active run
    ancestors: tuple[str, ...] = Field(default=(), exclude=True)  #: root first, parent last
    queue: str | None = Field(default=None, exclude=True)  #: where the caller wants its runs
    notify_parent: bool = Field(default=True, exclude=True)
    answer_until: Moment | None = Field(default=None, exclude=True)  #: when its last question expired, or will
    max_attempts: int | None = Field(default=None, exclude=True)  #: of each run; `None`: what the workers' settings say
    saves: int = Field(default=0, exclude=True)  #: checkpoints that its runs saved
    seq: int = Field(default=0, exclude=True)  #: last notification that arrived
    given: int = Field(default=0, exclude=True)  #: last notification that a run was given
    cursor: int = Field(default=0, exclude=True)  #: last notification that is in the saved state
    #: `usage` without what runs used after they were overtaken; `None`: they used nothing then
    usage_noted: Usage | None = Field(default=None, exclude=True)
    usage_before: Usage = Field(default=Usage(), exclude=True)  #: what its last submit, update or wake found used
    grading_run_id: str | None = Field(default=None, exclude=True)  #: first grade run since the task began its work
    working_ms: int = Field(default=0, exclude=True)  #: working time of its ended runs and attempts since then
    saved_run: str | None = Field(default=None, exclude=True)  #: the last run whose input is in the saved state

    def model_post_init(self, _context: object, /) -> None:
        """Hold a status and its phase together."""
        if self.phase not in PHASES.get(self.status, {None}):
            raise ValueError(f"task {self.task_id}: status {self.status} cannot have phase {self.phase}")

    @property
    def root_id(self) -> str:
        """The task at the top of its tree."""
        return self.ancestors[0] if self.ancestors else self.task_id

    @property
    def usage_counted(self) -> Usage:
        """What its next run begins with, and limits count on from."""
        return self.usage_noted or self.usage

    @property
    def settled(self) -> bool:
        """Whether the task has ended and no run of it is queued or at work."""
        return self.status.terminal and self.run_id is None

    def to_json(self) -> dict[str, Any]:
        """The public form, without what was not read: in a list `runs`, `result`, `interrupts` and `rubric`."""
        shown = self.model_dump(mode="json")
        if self.webhook and "?" in self.webhook:  # such a part may be a secret
            shown["webhook"] = self.webhook.partition("?")[0] + "?***"
        if self.runs is None:
            for name in ("runs", "result", "interrupts", "rubric"):
                del shown[name]
        return shown

    @classmethod
    def from_hash(cls, fields: Hash, runs: tuple[Run, ...] | None = None, large: Hash | None = None) -> Self:
        """Build from the task's Redis hash and, where they were read, its runs and what may be large."""
        found = read_hash(cls, {**fields, **(large or {})})
        status, asks = Status(found["status"]), text_of(fields, "asks").split()
        if status is not Status.PENDING:
            found.pop("waits_for", None)
        if not status.terminal or status is Status.CANCELLED:
            found.pop("result", None)
        asked = [question for question in found.get("interrupts", ()) if question["id"] in asks]
        found |= {"interrupts": asked, "runs": runs, "error": _fault(fields)}
        return cls(**found | _with_late(found.get("usage", {}), fields))


class Event(Record):
    """Something that happened in a task: a line of its event stream."""

    id: str  #: of the stream entry; orders the events of a task
    type: str
    at: Moment
    run_id: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)

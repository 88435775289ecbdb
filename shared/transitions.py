"""The arguments and results of the store's transitions. All frozen."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field

from .limits import Limits, Usage
from .record_base import Record
from .rubric import PER_MESSAGE, Rubric
from .text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .bells import Bell
    from .context import Claim
    from .grades import Grade
    from .notification import Notification
    from .records import Interrupt, Run, Task
    from .statuses import EndedAs, Phase, RunStatus, Status


#: An event that a run's worker writes: its type and its data.
Event: TypeAlias = tuple[str, dict[str, Any]]


def flat(events: Sequence[Event]) -> list[str]:
    """Events as scripts are given them: type, data as JSON, …."""
    return [part for kind, data in events for part in (kind, json.dumps(data))]


@dataclass(frozen=True, slots=True)
class Facts:
    """What of a task never changes; enough to compute its keys."""

    task_id: str
    agent: str
    title: str = ""
    parent_id: str | None = None
    ancestors: tuple[str, ...] = ()  #: root first, parent last
    webhook: bool = False  #: whether it has one, which is told of its ends

    @property
    def root_id(self) -> str:
        """The task at the top of the tree."""
        return self.ancestors[0] if self.ancestors else self.task_id

    @classmethod
    def of(cls, task: Task) -> Facts:
        """The facts of a task that was read."""
        return cls(task.task_id, task.agent, task.title, task.parent_id, task.ancestors, task.webhook is not None)


class Submission(Record):
    """A task as it is submitted, checked by the caller."""

    task_id: str
    run_id: str
    agent: str
    title: str
    queue: str  #: of this run
    input: dict[str, Any]  #: `{"text": …, "state": {…}}`, what the run gives to its agent
    mode: str = "isolated"  #: `fork`: a snapshot of the parent's conversation goes along
    limits: Limits = Limits()
    metadata: dict[str, Any] = Field(default_factory=dict)
    context: dict[str, Any] | None = None
    configurable: dict[str, Any] = Field(default_factory=dict)
    own_queue: str | None = None  #: where the caller wants all runs of this task
    wake_queue: str = "parents"  #: where the runs go that wake this task; those of follow-ups go to `queue`
    parent_id: str | None = None
    ancestors: tuple[str, ...] = ()  #: root first, parent last
    notify_parent: bool = True
    answer_within_ms: int | None = None  #: how long a question of the task waits for its answer
    webhook: str | None = None  #: URL that is told of its ends
    rubric: Rubric | None = None
    grade_queue: str | None = None  #: where the runs go that grade this task; `None`: its work is not graded
    max_attempts: int | None = None
    idempotency_key: str | None = None

    @property
    def request(self) -> str:
        """What a grader reads as the request: the text, with one character more than it shows: so a cut is noticed."""
        text = self.input.get("text")
        return clean(text)[: PER_MESSAGE + 1] if self.rubric and self.grade_queue and isinstance(text, str) else ""

    def payload_hash(self) -> str:
        """Hash of the request, without the ids that were made for it."""
        asked = self.model_dump(
            mode="json",
            exclude={"task_id", "run_id", "idempotency_key", "wake_queue", "grade_queue", "max_attempts"},
        )
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


class SubmitReply(Record):
    """The answer to a submit."""

    task_id: str
    run_id: str
    created: bool  #: `False`: the idempotency key was used before, and this is what it made


@dataclass(frozen=True, slots=True)
class UpdateReply:
    """The answer to an update."""

    run_id: str | None  #: that it started; `None`: it waits for the end of the active one
    overtaken: str | None = None  #: the run that it stopped
    dropped: tuple[Interrupt, ...] = ()  #: questions that nobody needs to answer any more
    bells: tuple[Bell, ...] = ()


@dataclass(frozen=True, slots=True)
class Claimed:
    """A run that this process holds now, with what it needs."""

    claim: Claim
    task: Task
    run: Run
    input: dict[str, Any]
    notifications: tuple[Notification, ...] = ()  #: that this run was given, the same for every attempt
    context: dict[str, Any] | None = None  #: of all runs of the task
    configurable: dict[str, Any] = field(default_factory=dict)  #: of all runs of the task
    snapshot: tuple[bytes, ...] = ()  #: what this run begins with, where it is the first of a fork


@dataclass(frozen=True, slots=True)
class NotClaimed:
    """A bell that gives this process nothing to do, and why."""

    why: Literal["dropped", "waits", "early"]  #: not pending; no free slot; its next attempt may not start yet
    detail: str = ""  #: `dropped`: the run's status, if there is such a run; `early`: the type of the last error


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends, and what becomes of its task: it ends too, or waits for a person."""

    run_status: RunStatus
    ended_as: EndedAs
    task_status: Status
    task_phase: Phase | None = None
    interrupts: tuple[Interrupt, ...] = ()  #: what the task asks while it waits
    result: str | None = None  #: JSON text
    error_type: str = ""
    error_message: str = ""
    usage: Usage | None = None  #: of the whole task
    grade: Grade | None = None  #: of a grade run
    feedback: str = ""  #: what the agent is told that is to revise its work
    events: Sequence[Event] = ()  #: that were not written yet


@dataclass(frozen=True, slots=True)
class Settled:
    """A run has ended: the bells of the runs that this started."""

    bells: tuple[Bell, ...] = ()


@dataclass(frozen=True, slots=True)
class Cut:
    """An ancestor was cancelled with its children, and now this task is too: the bells of runs that this started."""

    bells: tuple[Bell, ...] = ()


@dataclass(frozen=True, slots=True)
class CancelReply:
    """The answer to a cancel."""

    task_id: str
    outcome: str  #: `cancelled` or `already_finished`
    status: Status  #: of the task now
    bells: tuple[Bell, ...] = ()  #: of the runs that this started: a parent hears of its child
    follow_ups: int = 0  #: that were still to come, and were dropped
    has_children: bool = False  #: whatever became of them


@dataclass(frozen=True, slots=True)
class AnswerReply:
    """An answer was accepted; a run goes on with the answers once no question of the task is open."""

    task_id: str
    interrupt: str  #: the id of the question that was answered
    open: tuple[str, ...] = ()  #: ids of those that still need an answer
    run_id: str | None = None  #: the run that goes on
    bells: tuple[Bell, ...] = ()  #: of that run


@dataclass(frozen=True, slots=True)
class Remains:
    """What is left of a hidden task."""

    task_id: str
    agent: str
    is_root: bool
    runs: tuple[tuple[str, str], ...]  #: ids and kinds


@dataclass(frozen=True, slots=True)
class Due:
    """What a sweep found: `(task_id, run_id)` pairs."""

    lost: tuple[tuple[str, str], ...]
    overdue: tuple[tuple[str, str], ...]
    unanswered: tuple[tuple[str, str], ...] = ()

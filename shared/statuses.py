"""The lifecycle as data: statuses, phases and the moves between them. The store's scripts enforce it."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Status of a task. The order is the order of the status indexes in the scripts."""

    IDLE = "idle"
    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        """Whether the task has ended."""
        return self in TERMINAL


class Phase(StrEnum):
    """What a task that has not ended is doing."""

    QUEUED = "queued"  #: its run waits for a worker, a slot or a backoff
    WORKING = "working"  #: an agent works
    RESTING = "resting"  #: no run, open children
    GRADING = "grading"  #: a grade run is queued or works
    ASKING = "asking"  #: a person must answer


class RunStatus(StrEnum):
    """Status of a run."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCESS = "success"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"


class RunKind(StrEnum):
    """What a run executes."""

    AGENT = "agent"
    GRADE = "grade"


class EndedAs(StrEnum):
    """How a run ended, where its status alone does not tell."""

    FINISHED = "finished"
    PAUSED = "paused"
    RESTED = "rested"
    GRADED = "graded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    LOST = "lost"
    OVERTAKEN = "overtaken"  #: by a message that did not wait for its end


class Strategy(StrEnum):
    """What a message to a task does about its active run."""

    INTERRUPT = "interrupt"  #: stops it, and starts at once
    ENQUEUE = "enqueue"  #: waits for its end


TERMINAL = frozenset({Status.SUCCESS, Status.ERROR, Status.TIMEOUT, Status.CANCELLED})

#: Which phases a status has. A status without an entry has none.
PHASES: dict[Status, frozenset[Phase]] = {
    Status.PENDING: frozenset({Phase.QUEUED}),
    Status.RUNNING: frozenset({Phase.WORKING, Phase.RESTING, Phase.GRADING}),
    Status.WAITING: frozenset({Phase.ASKING}),
}

#: Where a task can be: a status and, where it has phases, one of them.
State = tuple[Status, Phase | None]

QUEUED: State = (Status.PENDING, Phase.QUEUED)
WORKING: State = (Status.RUNNING, Phase.WORKING)
RESTING: State = (Status.RUNNING, Phase.RESTING)
GRADING: State = (Status.RUNNING, Phase.GRADING)
ASKING: State = (Status.WAITING, Phase.ASKING)
IDLE: State = (Status.IDLE, None)
ENDED: tuple[State, ...] = tuple((status, None) for status in Status if status in TERMINAL)
OPEN: tuple[State, ...] = (IDLE, QUEUED, WORKING, RESTING, GRADING, ASKING)

#: Every move a task can make: its name, from where, to where. Nothing else ever happens to a task.
MOVES: tuple[tuple[str, tuple[State, ...], tuple[State, ...]], ...] = (
    ("claim", (QUEUED,), (WORKING,)),
    ("claim", (GRADING,), (GRADING,)),
    ("finish", (WORKING,), ((Status.SUCCESS, None), (Status.ERROR, None), (Status.TIMEOUT, None))),
    ("finish", (GRADING,), ((Status.SUCCESS, None),)),
    ("pause", (WORKING,), (ASKING,)),
    ("rest", (WORKING, GRADING), (RESTING,)),
    ("grade", (WORKING,), (GRADING,)),
    ("revise", (GRADING,), (QUEUED,)),
    ("give back", (WORKING,), (QUEUED,)),
    ("give back", (GRADING,), (GRADING,)),
    ("answer", (ASKING,), (QUEUED,)),
    ("expire", (ASKING,), ((Status.TIMEOUT, None),)),
    ("cancel", OPEN, ((Status.CANCELLED, None),)),
    ("update", (IDLE, QUEUED, WORKING, RESTING, GRADING, ASKING, *ENDED), (QUEUED,)),
    ("wake", (IDLE, RESTING, (Status.SUCCESS, None), (Status.ERROR, None)), (QUEUED,)),
)

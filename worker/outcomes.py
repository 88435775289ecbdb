"""How a run can end, as values, and what the store writes for each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from ..shared.events import GRADE_FINISHED
from ..shared.statuses import EndedAs, Phase, RunStatus, Status
from ..shared.text import clean, clip, one_line
from ..shared.transitions import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from ..shared.grades import Grade
    from ..shared.limits import Usage
    from ..shared.records import Interrupt
    from ..shared.transitions import Event

MAX_ERROR = 10_000  #: characters of an error's message in the record
MAX_TYPE = 200  #: of the name of its type

INVALID_ANSWER = "InvalidAnswer"  #: the type of the error that a waiting task shows whose agent did not take an answer


@dataclass(frozen=True, slots=True)
class Finished:
    """The agent came to its end."""

    result: str  #: JSON text


@dataclass(frozen=True, slots=True)
class Paused:
    """The agent asks a person."""

    interrupts: tuple[Interrupt, ...]
    refused: str = ""  #: why it asks again: what was wrong with an answer


@dataclass(frozen=True, slots=True)
class Graded:
    """The work of the run before was graded, or its grader failed; `feedback` is for the agent that is to revise it."""

    grade: Grade
    result: str  #: JSON text: what was graded
    feedback: str = ""
    type: str = ""  #: of the error of a grader that failed
    message: str = ""

    def after(self, attempts: int) -> Graded:
        """The same, where its grader failed in more attempts than one."""
        return replace(self, message=_after(self.message, attempts))


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent ended in an error, or a limit of turns or tokens ended it."""

    type: str
    message: str
    result: str | None = None  #: JSON text: what it had so far

    @classmethod
    def by(cls, error: BaseException) -> Failed:
        """Name an error by its own type, with its message made safe and short."""
        return cls(type_of(error), message_of(error))

    def after(self, attempts: int) -> Failed:
        """The same, where it was met in more attempts than one."""
        return replace(self, message=_after(self.message, attempts))


@dataclass(frozen=True, slots=True)
class Retry:
    """The agent ended in an error that is worth another attempt, if one is left."""

    failed: Failed | Graded  #: what it comes to where no attempt is left
    least_seconds: float  #: before the next attempt


@dataclass(frozen=True, slots=True)
class Retried:
    """The run waits for another attempt: its record says until when."""

    type: str  #: of the error
    seconds: float = 0.0  #: from when it was written; 0 where it was written before


@dataclass(frozen=True, slots=True)
class TimedOut:
    """Its working time was over."""

    seconds: float
    result: str | None = None  #: JSON text: what it had so far


@dataclass(frozen=True, slots=True)
class GivenBack:
    """The worker shuts down: the run is pending again and goes on elsewhere, from its last step."""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The record was cancelled while this process held the run, or before."""


@dataclass(frozen=True, slots=True)
class NotOurs:
    """There was nothing to do: a doubled or late bell, or a claim that was replaced."""


@dataclass(frozen=True, slots=True)
class Waits:
    """No slot of its agent is free: the run is pending until its turn comes, and is rung for then."""


Outcome: TypeAlias = (
    Finished | Paused | Graded | Failed | Retry | Retried | TimedOut | GivenBack | Cancelled | NotOurs | Waits
)
Settling: TypeAlias = Finished | Paused | Graded | Failed | TimedOut


def grade_event(grade: Grade) -> dict[str, Any]:
    """The data of the event of a grade."""
    return {
        "grading_run_id": grade.grading_run_id,
        "iteration": grade.iteration,
        "unverified": grade.unverified,
        **grade.noted().to_json(),
    }


def ending(outcome: Settling, usage: Usage | None = None, events: Sequence[Event] = ()) -> Ending:
    """What the store writes for an outcome. `usage` is the whole task's; without it that of the record stays."""
    match outcome:
        case Finished(result):
            return Ending(
                RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result=result, usage=usage, events=events
            )
        case Paused(interrupts, refused):
            return Ending(
                RunStatus.SUCCESS,
                EndedAs.PAUSED,
                Status.WAITING,
                Phase.ASKING,
                interrupts=interrupts,
                error_type=INVALID_ANSWER if refused else "",
                error_message=refused,
                usage=usage,
                events=events,
            )
        case Graded(grade, result, feedback, kind, message):
            return Ending(
                RunStatus.ERROR if kind else RunStatus.SUCCESS,
                EndedAs.FAILED if kind else EndedAs.GRADED,
                Status.PENDING if feedback else Status.SUCCESS,
                Phase.QUEUED if feedback else None,
                result=result,
                error_type=kind,
                error_message=message,
                usage=usage,
                grade=grade,
                feedback=feedback,
                events=[*events, (GRADE_FINISHED, grade_event(grade))],
            )
        case TimedOut(seconds, result):
            return Ending(
                RunStatus.TIMEOUT,
                EndedAs.TIMED_OUT,
                Status.TIMEOUT,
                result=result,
                error_type="timeout",
                error_message=f"its working time of {seconds:g} s is over (raise limits.timeout_seconds)",
                usage=usage,
                events=events,
            )
        case Failed(kind, message, result):
            return Ending(
                RunStatus.ERROR,
                EndedAs.FAILED,
                Status.ERROR,
                result=result,
                error_type=kind,
                error_message=message,
                usage=usage,
                events=events,
            )


def _after(message: str, attempts: int) -> str:
    return f"{message} (after {attempts} attempts)" if attempts > 1 else message


def type_of(error: BaseException) -> str:
    """The name of an error's type, as one short line: parents, logs and Flower show it."""
    try:
        return one_line(type(error).__name__, MAX_TYPE)
    except Exception:  # noqa: BLE001 an agent's exception may fail at this too
        return "Exception"


def message_of(error: BaseException) -> str:
    """An error's message, made safe and short."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 an agent's exception may fail at being shown
        text = "(the error cannot be shown as text)"
    return clip(clean(text), MAX_ERROR)

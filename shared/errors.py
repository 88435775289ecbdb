"""The one error tree. Each error carries its facts and names the remedy in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from .text import one_line

if TYPE_CHECKING:
    from .statuses import Status


class OutriderError(Exception):
    """The root of every error that outrider raises by itself."""


class BadInput(OutriderError, ValueError):
    """An argument, a file or a setting is not usable. Nothing was written."""


class ConfigError(BadInput):
    """`langgraph.json` or a setting is missing, malformed or contradictory."""


class UnknownAgent(BadInput):
    """An agent was named that the configuration does not have."""

    def __init__(self, agent: str, known: list[str]) -> None:
        self.agent, self.known = agent, known
        names = ", ".join(known) if known else "none"
        shown = one_line(repr(agent), 80)
        super().__init__(f'unknown agent {shown}: langgraph.json names {names} (add it under "graphs")')


class BrokenAgent(OutriderError):
    """An agent is named in the configuration but cannot be built."""

    def __init__(self, agent: str, reason: str) -> None:
        self.agent, self.reason = agent, reason
        super().__init__(f"agent {agent!r} is broken: {reason}")


class UnknownTask(OutriderError, LookupError):
    """No task has this id."""

    def __init__(self, task_id: str) -> None:
        self.task_id = task_id
        super().__init__(f"no task {task_id} (see `outrider list`)")


class TaskActive(OutriderError):
    """A message came for a task whose run is active, and did not say what to do about that."""

    def __init__(self, task_id: str, run_id: str, status: Status) -> None:
        self.task_id, self.run_id, self.status = task_id, run_id, status
        super().__init__(
            f"task {task_id} is {status}: its run {run_id} is active, so the update was refused "
            f"(see `outrider follow {task_id}` for its end; or use the strategy interrupt or enqueue)"
        )


class IdempotencyConflict(OutriderError):
    """The same idempotency key came with another payload."""

    def __init__(self, key: str, task_id: str) -> None:
        self.key, self.task_id = key, task_id
        super().__init__(
            f"idempotency key {key!r} already belongs to task {task_id} with another payload: "
            f"use another key, or see `outrider show {task_id}`"
        )


class ParentClosed(OutriderError):
    """A child was submitted under a parent that is cancelled, cut or unknown."""

    UNKNOWN: ClassVar = "there is no such task"

    def __init__(self, parent_id: str, reason: str) -> None:
        self.parent_id, self.reason = parent_id, reason
        seen_by = "list" if reason == self.UNKNOWN else f"show {parent_id}"
        super().__init__(f"parent {parent_id} takes no children: {reason} (see `outrider {seen_by}`)")


class LimitReached(OutriderError):
    """A submit came when there were as many tasks as a limit allows. Nothing was written."""

    def __init__(self, limit: str, most: int, parent_id: str | None, ancestors: tuple[str, ...]) -> None:
        self.limit, self.most, self.parent_id = limit, most, parent_id
        root_id = ancestors[0] if ancestors else None
        messages = {
            "open": f"parent {parent_id} has as many open children as its limits.max_open_children = {most} allows: "
            "wait until one has ended, or cancel one",
            "depth": f"parent {parent_id} is on the lowest level that limits.max_depth = {most} of its root {root_id} "
            "allows: do the work in this task instead of handing it on",
            "descendants": f"task {root_id} has had as many tasks below it as its limits.max_descendants = {most} "
            "allows: do the rest in the tasks that there are",
            "pending": f"as many tasks are pending as OUTRIDER_MAX_PENDING = {most} allows: "
            "submit again when workers have caught up (see `outrider doctor`)",
        }
        super().__init__(messages[limit])


class NotWaiting(OutriderError):
    """An answer came for a task that has no open question."""

    def __init__(self, task_id: str, status: Status) -> None:
        self.task_id, self.status = task_id, status
        super().__init__(f"task {task_id} is {status}: it asks nothing (see `outrider show {task_id}`)")


class SeveralQuestions(OutriderError):
    """An answer named no question, and the task asks several."""

    def __init__(self, task_id: str, interrupts: tuple[str, ...]) -> None:
        self.task_id, self.interrupts = task_id, interrupts
        super().__init__(
            f"task {task_id} asks {len(interrupts)} questions: name the one that this answers, "
            f"of {', '.join(interrupts)} (interrupt=, or --interrupt)"
        )


class AnswerConflict(OutriderError):
    """An answer named a question that the task does not ask, or not any more."""

    def __init__(self, task_id: str, interrupt: str, interrupts: tuple[str, ...]) -> None:
        self.task_id, self.interrupt, self.interrupts = task_id, interrupt, interrupts
        super().__init__(
            f"task {task_id} does not ask {interrupt}, or it was answered before: "
            f"open are {', '.join(interrupts)} (see `outrider show {task_id}`)"
        )


class InboxLost(OutriderError):
    """Another reader has taken an inbox over."""

    def __init__(self, parent_id: str) -> None:
        self.parent_id = parent_id
        super().__init__(
            f"the inbox of {parent_id} has another reader now, since this one did not renew its lease in time (was its "
            "loop blocked?): what was not acknowledged comes again there; to wait for its end, read the inbox again"
        )


class ClaimLost(OutriderError):
    """A write came from a claim that a later claim or a cancel has replaced."""

    def __init__(self, task_id: str, run_id: str) -> None:
        self.task_id, self.run_id = task_id, run_id
        super().__init__(f"the claim on task {task_id}, run {run_id}, was replaced: its writes are refused")


class RedisUnreachable(OutriderError):
    """Redis does not answer, or cannot serve. The URL is shown with its password masked."""

    REMEDY = "start it, run `outrider dev` in this folder, or set OUTRIDER_REDIS_URL to one that is up"

    def __init__(self, url: str, reason: str, remedy: str = REMEDY) -> None:
        self.url, self.reason = url, reason
        super().__init__(f"cannot reach Redis at {url}: {reason.rstrip('.')} ({remedy})")


class WaitTimeout(OutriderError, TimeoutError):
    """A wait ended before its task did. The task goes on."""

    def __init__(self, task_id: str, status: Status, seconds: float) -> None:
        self.task_id, self.status = task_id, status
        super().__init__(
            f"task {task_id} is still {status} after {seconds:g} s; it goes on (see `outrider follow {task_id}`)"
        )


def no_place_for_text(agent: str) -> BadInput:
    """The error for a text to an agent without `messages` that names no other key for it."""
    example = f'{{"outrider": {{"agents": {{"{agent}": {{"input": "question"}}}}}}}}'
    return BadInput(
        f"agent {agent!r} has no messages, so the text has no place: name the state key that takes it, as {example} "
        "in langgraph.json"
    )


def no_fork(agent: str) -> BadInput:
    """The error for a fork of an agent without `messages`."""
    return BadInput(f"agent {agent!r} has no messages, so it cannot be a fork: submit it isolated")

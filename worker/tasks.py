"""Celery's entry points. The job's thread only waits; then its Celery task ends as the run did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import structlog
from celery.exceptions import Ignore, Retry
from celery.worker.request import Request
from redis.exceptions import RedisError

from ..shared.broker import TASK_NAMES, BrokerUnreachable, bell_in, ring
from .outcomes import Cancelled, Failed, Finished, GivenBack, Graded, NotOurs, Paused, Retried, TimedOut, Waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from .outcomes import Outcome
    from .process import WorkerProcess

REVOKED: Final = "revoked"  #: what the Celery task of a cancelled run returns

log = structlog.get_logger("outrider.worker")


class AgentFailed(Exception):
    """An agent's run did not end well. Carries the type of its error and nothing else: monitors show it."""


class BellRequest(Request):  # type: ignore[misc]  # Celery ships no types
    """A bell as Celery has it: of a cancelled run monitors hear that it was revoked, not that it succeeded.

    Raising `Ignore` after an event of our own says the same, and takes ten times as long: Celery formats the traceback
    twice. Where many runs are cancelled at once, the code of the later ones would wait for that (measured).
    """

    def send_event(self, type: str, **fields: Any) -> None:  # noqa: A002 Celery's signature
        """Send an event to monitors."""
        if type == "task-succeeded" and fields["result"] == repr(REVOKED):
            super().send_event("task-revoked", terminated=True, signum=None, expired=False)
        else:
            super().send_event(type, **fields)


def add_tasks(app: Celery, process: Callable[[], WorkerProcess]) -> None:
    """Register the tasks; `process` gives the worker process when the first bell comes."""

    def run(task_id: str, run_id: str) -> str | None:
        return _end_celery_task(_answer(app, process(), task_id, run_id))

    for name in TASK_NAMES.values():
        app.task(run, name=name, Request=BellRequest, throws=(AgentFailed,), ignore_result=True)


def _answer(app: Celery, process: WorkerProcess, task_id: str, run_id: str) -> Outcome:
    def pass_on() -> None:
        task = app.current_worker_task
        log.warning("bell.passed_on", task_id=task_id, run_id=run_id)
        ring(app, bell_in(task.name, task.request))

    try:
        outcome = GivenBack() if process.draining else process.run(task_id, run_id, pass_on)
        if isinstance(outcome, GivenBack):
            process.ring(task_id, run_id)
    except (BrokerUnreachable, RedisError) as error:
        # The record stands as it was, or under a lease that runs out: a sweeper rings.
        log.warning("run.put_off", run_id=run_id, error=type(error).__name__)
        return GivenBack()
    return outcome


def _end_celery_task(outcome: Outcome) -> str | None:
    """End the Celery task as the run ended. Not inside an `except`: monitors would show the error that it handles."""
    match outcome:
        case Finished() | Paused() | Graded(type=""):
            pass
        case Cancelled():
            return REVOKED
        case GivenBack():
            raise Retry(message="given back")
        case Waits():
            raise Retry(message="waits for a slot")
        case Retried(kind):
            raise Retry(message=f"another attempt after {kind}")
        case Failed(kind) | Graded(type=kind):
            raise AgentFailed(kind)
        case TimedOut():
            raise AgentFailed("timeout")
        case NotOurs():
            raise Ignore
    return None

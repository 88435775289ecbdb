"""Celery's entry points. The job's thread only waits; how a run ended is told in Celery's own words."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from celery.exceptions import Ignore, Retry
from redis.exceptions import RedisError

from ..shared.broker import BROKER_ERRORS, TASK_NAMES, BrokerUnreachable
from .outcomes import Cancelled, Failed, Finished, GivenBack, Graded, NotOurs, Paused, Retried, TimedOut, Waits

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery, Task

    from .outcomes import Outcome
    from .process import WorkerProcess

log = structlog.get_logger("outrider.worker")


class AgentFailed(Exception):
    """An agent's run did not end well. Carries the type of its error and nothing else: monitors show it."""


def add_tasks(app: Celery, process: Callable[[], WorkerProcess]) -> None:
    """Register the tasks; `process` gives the worker process when the first bell comes."""

    def run(self: Task, task_id: str, run_id: str) -> None:
        _tell(self, run_id, _answer(process(), task_id, run_id))

    for name in TASK_NAMES.values():
        app.task(run, name=name, bind=True, throws=(AgentFailed,), ignore_result=True)


def _answer(process: WorkerProcess, task_id: str, run_id: str) -> Outcome:
    try:
        outcome = GivenBack() if process.draining else process.run(task_id, run_id)
        if isinstance(outcome, GivenBack):
            process.ring(task_id, run_id)
    except (BrokerUnreachable, RedisError) as error:
        # The record stands as it was, or under a lease that runs out: a sweeper rings.
        log.warning("run.put_off", run_id=run_id, error=type(error).__name__)
        return GivenBack()
    return outcome


def _tell(task: Task, run_id: str, outcome: Outcome) -> None:
    """End the Celery task as the run ended. Never raised inside an `except`: monitors would show what it handled."""
    match outcome:
        case Finished() | Paused() | Graded(type=""):
            return
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
        case Cancelled():
            _tell_revoked(task, run_id)
            raise Ignore
        case NotOurs():
            raise Ignore


def _tell_revoked(task: Task, run_id: str) -> None:
    """Tell monitors that a run was cancelled."""
    try:
        task.send_event("task-revoked", retry=False, terminated=True, signum=None, expired=False)
    except BROKER_ERRORS as error:
        log.warning("revoked.not_told", run_id=run_id, error=type(error).__name__)

"""Bells: the contents of Celery messages, made in this one place."""

from __future__ import annotations

from .record_base import Record
from .statuses import RunKind


class Bell(Record):
    """What a Celery message carries, and where it goes. The label is for people who look at Flower."""

    task_id: str
    run_id: str
    kind: RunKind = RunKind.AGENT
    queue: str
    label: str  #: agent, title and task id; never a description


def bell_for(task_id: str, run_id: str, *, queue: str, agent: str, title: str, kind: RunKind = RunKind.AGENT) -> Bell:
    """The bell of a run."""
    label = f"{agent} · {task_id}" if title == agent else f"{agent} · {title} · {task_id}"
    return Bell(task_id=task_id, run_id=run_id, kind=kind, queue=queue, label=label)


def bells_of(*replies: list[bytes]) -> tuple[Bell, ...]:
    """The bells to ring now, from what scripts reply about the runs that they started; an empty reply has none."""
    return tuple(_bell_of(reply) for reply in replies if reply)


def _bell_of(reply: list[bytes]) -> Bell:
    task_id, run_id, queue, agent, title, kind = (part.decode() for part in reply)
    return bell_for(task_id, run_id, queue=queue, agent=agent, title=title, kind=RunKind(kind))

"""The names of the queues, apart from the broker: whoever only writes or reads records need not import Celery."""

from __future__ import annotations

SUBAGENTS, PARENTS, GRADERS = "subagents", "parents", "graders"
QUEUES = (SUBAGENTS, PARENTS, GRADERS)

"""Bare Celery, the yardstick: a worker with outrider's own broker settings, and tasks that do nothing."""

from __future__ import annotations

import redis

from outrider.shared.broker import make_app
from outrider.shared.settings import Settings

settings = Settings.load()
app = make_app(settings)
marks = redis.Redis.from_url(settings.redis_url)


@app.task(name="bare.noop")
def noop(task_id: str, run_id: str) -> None:
    """Take what a bell carries, and do nothing."""


@app.task(name="bare.mark")
def mark(task_id: str, key: str) -> None:
    """Tell the client that waits at `key`."""
    marks.lpush(key, task_id)

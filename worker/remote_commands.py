"""Celery's remote commands, as monitors and `celery control` send them: `revoke` and `terminate` cancel runs.

Celery's own do nothing useful on threads, and kill whole children on prefork. Also they would make workers throw a
run's bells away, whatever its record says. Its `shutdown` would wait without limit for what does not stop.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import structlog
from celery.worker.control import Panel
from redis.exceptions import RedisError

from ..shared.broker import ring
from ..shared.connections import connect
from ..shared.errors import OutriderError
from ..shared.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from celery import Celery

    from ..shared.settings import Settings

log = structlog.get_logger("outrider.worker")


def replace_commands(app: Celery, settings: Settings) -> None:
    """Put our commands in the place of Celery's, for this process."""

    def revoke(state: Any, task_id: str | list[str], *_: Any, **__: Any) -> dict[str, str]:
        run_ids = [task_id] if isinstance(task_id, str) else list(task_id)
        dispatcher = state.consumer.event_dispatcher

        def told(run_id: str) -> None:
            dispatcher.send("task-revoked", uuid=run_id, terminated=True, signum=None, expired=False)

        # The consumer's thread must not wait for Redis.
        threading.Thread(target=lambda: asyncio.run(_cancel(app, settings, run_ids, told)), daemon=True).start()
        return {"ok": f"cancelling {', '.join(run_ids)}"}

    def terminate(state: Any, _signal: Any, task_id: str | list[str], **_: Any) -> dict[str, str]:
        return revoke(state, task_id)

    def shutdown(_state: Any, *_: Any, **__: Any) -> dict[str, str]:
        os.kill(os.getpid(), signal.SIGTERM)
        return {"ok": "draining, as by SIGTERM"}

    Panel.data["revoke"] = revoke
    Panel.data["terminate"] = terminate
    Panel.data["shutdown"] = shutdown


async def _cancel(app: Celery, settings: Settings, run_ids: Iterable[str], told: Callable[[str], None]) -> None:
    try:
        async with connect(settings, size=1) as redis:
            store = Store(redis, settings.namespace, **settings.for_store)
            for run_id in run_ids:
                run = await store.get_run(run_id)
                task = None if run is None else await store.peek(run.task_id)
                # A run that is over leaves its task alone: that may be at work on the next one.
                if task is None or task.run_id != run_id:
                    continue
                answer = await store.cancel(task.task_id)
                if answer.outcome == "cancelled":
                    told(run_id)
                for bell in answer.bells:
                    await asyncio.to_thread(ring, app, bell)
    except (RedisError, OutriderError) as error:
        log.warning("revoke.failed", run_ids=list(run_ids), error=type(error).__name__)

"""Warnings at a worker's start about its Redis; `outrider doctor` has the same findings, and more."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import structlog
from redis.exceptions import RedisError

from ..shared.connections import connect
from ..shared.redis_checks import check_redis

if TYPE_CHECKING:
    from ..shared.settings import Settings

log = structlog.get_logger("outrider.worker")


def warn_of_findings(settings: Settings) -> None:
    """Log one `check.finding` for each, from a thread: the worker does not wait for it."""
    threading.Thread(target=lambda: asyncio.run(_warn(settings)), name="outrider-checkup", daemon=True).start()


async def _warn(settings: Settings) -> None:
    try:
        async with connect(settings, size=1) as redis:
            info = await redis.info()
    except (RedisError, OSError):
        return  # whoever needs Redis reports that it is away
    for finding in check_redis(info):
        log.warning("check.finding", severity=finding.level.value, what=finding.what, remedy=finding.remedy)

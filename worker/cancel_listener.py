"""The listener stops cancelled runs at once, by a subscription. The heartbeat finds what it missed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import structlog
from redis.exceptions import RedisError

from ..shared.connections import connect_blocking
from ..shared.pauses import doubling
from .control import Stop

if TYPE_CHECKING:
    from ..shared.keys import Keys
    from ..shared.settings import Settings
    from .control import Held

PAUSE_SECONDS = (0.1, 5.0)  #: first and longest, between two tries to listen again

log = structlog.get_logger("outrider.worker")


async def listen(settings: Settings, keys: Keys, held: Held) -> None:
    """Stop the runs of this process whose ids are published, for ever."""
    pauses, told = doubling(*PAUSE_SECONDS), False
    while True:
        try:
            async with connect_blocking(settings) as redis, redis.pubsub(ignore_subscribe_messages=True) as channel:
                await channel.subscribe(keys.control())
                pauses, told = doubling(*PAUSE_SECONDS), False
                async for message in channel.listen():
                    held.stop(message["data"].decode(), Stop.CANCELLED)
        except (RedisError, OSError) as error:
            if not told:
                log.warning("cancels.not_heard", error=type(error).__name__)
            told = True
        await asyncio.sleep(next(pauses))

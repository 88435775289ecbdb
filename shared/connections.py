"""How Redis clients are made, and the error for a Redis that is out of reach."""

from __future__ import annotations

import asyncio
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff
from redis.exceptions import AuthenticationError, BusyLoadingError, InvalidResponse, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from .batching import BatchingRedis
from .errors import RedisUnreachable
from .refusals import REFUSALS, TooLarge, refusal
from .settings import mask_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from redis.asyncio.connection import AbstractConnection

    from .settings import Settings

POOL_SIZE = 64  #: connections of one client; a caller beyond it waits for a free one


# After a restart of Redis every pooled connection is dead, and notices only when it fails. Transitions and checkpoints
# are written so that they may be repeated. A server that does not answer in time is not asked again.
HURRY = Retry(ExponentialBackoff(cap=0.2, base=0.02), 3, (RedisConnectionError,))
#: A run that is at work waits for as long as Redis is away.
PATIENCE = Retry(
    ExponentialBackoff(cap=2, base=0.05),
    retries=-1,
    supported_errors=(RedisConnectionError, BusyLoadingError, RedisTimeoutError),
)


def connect(
    settings: Settings, *, size: int = POOL_SIZE, patient: bool = False, linger: Callable[[], float] | None = None
) -> redis.asyncio.Redis:
    """A client for short commands, to be made on the loop that uses it. It connects at the first command.

    A `patient` one waits as long as Redis is out of reach, or up and cannot serve. `linger` is asked for the seconds
    for which commands gather before they go together.
    """
    pool = redis.asyncio.BlockingConnectionPool.from_url(
        settings.redis_url,
        max_connections=size,
        timeout=None,
        socket_connect_timeout=5,
        health_check_interval=30,
        retry=PATIENCE if patient else HURRY,
    )
    pool.connection_class = _heeding(pool.connection_class)
    client = cast("BatchingRedis", BatchingRedis.from_pool(pool))
    client.patient = patient
    if linger is not None:
        client.linger = linger
    return client


def _heeding(base: type[AbstractConnection]) -> type[AbstractConnection]:
    """The connection class, changed so that no cancel is lost.

    redis-py sends within `asyncio.wait_for`. In Python 3.11 that swallows a cancel which comes as the send ends: the
    run, or the wait, that was to end would go on for ever.
    """
    if sys.version_info >= (3, 12):
        return base

    class Heeding(base):  # type: ignore[valid-type,misc]  # TCP, TLS or a Unix socket, as the URL says
        async def send_packed_command(self, *args: Any, **kwargs: Any) -> None:
            task = asyncio.current_task()
            before = task.cancelling() if task else 0
            await super().send_packed_command(*args, **kwargs)
            if task and task.cancelling() > before:
                await self.disconnect(nowait=True)  # its answer would else be taken for that of the next command
                raise asyncio.CancelledError

    return Heeding


def connect_blocking(settings: Settings) -> redis.asyncio.Redis:
    """A client for one blocking read or a subscription: a connection of its own, with no read timeout."""
    client = redis.asyncio.Redis.from_url(
        settings.redis_url, single_connection_client=True, socket_timeout=None, socket_connect_timeout=5
    )
    client.connection_pool.connection_class = _heeding(client.connection_pool.connection_class)
    return client


@contextmanager
def reachable(settings: Settings) -> Iterator[None]:
    """Turn the client's connection errors, and answers of a Redis that cannot serve, into one `RedisUnreachable`."""
    try:
        yield
    except (
        RedisConnectionError,
        RedisTimeoutError,
        AuthenticationError,
        BusyLoadingError,
        InvalidResponse,
        ResponseError,
        OSError,
    ) as error:
        url = mask_url(settings.redis_url)
        code = refusal(error)
        if code is not None:
            raise RedisUnreachable(url, *REFUSALS[code]) from None
        if isinstance(error, ResponseError) and not isinstance(error, TooLarge):
            raise
        raise RedisUnreachable(url, f"{error}".replace(settings.redis_url, url) or type(error).__name__) from None

"""A Redis client for many callers on one loop: what they ask in one turn of the loop goes in one round trip.

The runs of a worker ask Redis for many small things, and most of what each costs is work of the pool, the socket and
the timer. Sent together, they halve what a trivial task takes of a worker's time.
"""

from __future__ import annotations

import asyncio
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import redis.asyncio
from redis.connection import HiredisRespSerializer
from redis.exceptions import BusyLoadingError, RedisError, ResponseError
from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import TimeoutError as TimedOut

from .pauses import doubling
from .refusals import TooLarge, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LARGE = 2**20  #: bytes of a batch; a larger command goes alone. No setting of Redis refuses less.
TRIES = 5  #: exchanges that lose their connection, before the commands themselves are taken for the cause
PAUSES = (0.05, 2.0)  #: first and longest pause, in seconds, before a command is asked again


#: Redis' protocol, put together in C: in Python it would be a tenth of what a short run costs.
_pack = HiredisRespSerializer().pack


class _Asked(NamedTuple):
    name: str
    packed: bytes
    options: dict[str, Any]
    reply: asyncio.Future[Any]

    @property
    def size(self) -> int:
        return len(self.packed)


class BatchingRedis(redis.asyncio.Redis):
    """A client that sends single commands in batches; pipelines and subscriptions are those of any client.

    Each caller gets its own reply or error. After a lost connection the whole batch is sent again, as each of its
    commands would have been; one that loses its connection each time is taken apart, so that no command can keep
    others from their replies. A caller that is cancelled does not disturb the others. A `patient` client waits while
    Redis is up and cannot serve: `refusals.REFUSALS`. `linger` gives the seconds for which commands gather before they
    go: 0 is one turn of the loop.
    """

    patient = False
    linger: Callable[[], float] = staticmethod(lambda: 0.0)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asked: list[_Asked] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command with what else is asked in this turn of the loop; returns its reply or raises its error."""
        # Here, so that a text that cannot be encoded fails its own caller alone.
        packed = b"".join(_pack(*args))
        pauses = doubling(*PAUSES)
        while True:
            try:
                return await self._reply(args[0], packed, options)
            except (ResponseError, BusyLoadingError) as error:
                if not self.patient or refusal(error) is None:
                    raise
            await asyncio.sleep(next(pauses))

    def _reply(self, name: str, packed: bytes, options: dict[str, Any]) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        if not self._asked:
            seconds = self.linger()
            if seconds > 0:
                loop.call_later(seconds, self._send)
            else:
                loop.call_soon(self._send)
        asked = _Asked(name, packed, options, loop.create_future())
        self._asked.append(asked)
        return asked.reply

    def _send(self) -> None:
        asked, self._asked = self._asked, []
        for batch in _batches(asked):
            self._start(batch)

    def _start(self, batch: list[_Asked]) -> None:
        task = asyncio.create_task(self._ask(batch))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, batch: list[_Asked]) -> None:
        replies: list[Any] | None
        try:
            replies = await self._replies(batch)
        except BaseException as error:  # noqa: BLE001 whatever it is, the callers must get it
            replies = [error] * len(batch)
        if replies is None:
            for asked in batch:
                self._start([asked])
            return
        for asked, reply in zip(batch, replies, strict=True):
            if asked.reply.done():  # its caller was cancelled
                continue
            if isinstance(reply, BaseException):
                asked.reply.set_exception(_own(reply))
            else:
                asked.reply.set_result(reply)

    async def _replies(self, batch: list[_Asked]) -> list[Any] | None:
        """The replies to a batch; `None` where it loses its connection each time and can be taken apart."""
        losses = (ConnectionLost, TimedOut) if self.patient else (ConnectionLost,)
        lost: BaseException | None = None
        for pause, _ in zip(doubling(*PAUSES), range(TRIES), strict=False):
            if lost is not None:
                await asyncio.sleep(pause)
            # Where Redis is away this waits, or raises.
            connection: Any = await self.connection_pool.get_connection()  # type: ignore[no-untyped-call]
            try:
                return await self._exchange(connection, batch)
            except BaseException as error:
                await connection.disconnect(nowait=True)
                if not isinstance(error, losses):
                    raise
                lost = error
            finally:
                await self.connection_pool.release(connection)
        if len(batch) > 1:
            return None
        (asked,) = batch
        raise TooLarge.of(asked.name, asked.size) if asked.size > LARGE or lost is None else lost

    async def _exchange(self, connection: Any, batch: list[_Asked]) -> list[Any]:
        await connection.send_packed_command([asked.packed for asked in batch])
        replies: list[Any] = []
        for asked in batch:
            try:
                replies.append(await self.parse_response(connection, asked.name, **asked.options))
            except (ResponseError, BusyLoadingError) as error:
                # Redis tells why it closes the connection, if the whole command was sent by then.
                too_large = str(error).startswith("Protocol error")
                replies.append(TooLarge.of(asked.name, asked.size) if too_large else error)
        if any(isinstance(reply, RedisError) and refusal(reply) for reply in replies):
            await connection.disconnect()  # after a failover its name may lead to another server
        return replies


def _batches(asked: list[_Asked]) -> Iterator[list[_Asked]]:
    """What goes together, in the order of asking."""
    batch: list[_Asked] = []
    size = 0
    for one in asked:
        if batch and size + one.size > LARGE:
            yield batch
            batch, size = [], 0
        batch.append(one)
        size += one.size
    yield batch


def _own(error: BaseException) -> BaseException:
    """A copy of an error for one caller: in one that callers shared, the frames of all would gather."""
    try:
        return copy(error)
    except Exception:  # noqa: BLE001 not every error can be made from its arguments
        return error

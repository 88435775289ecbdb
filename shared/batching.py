"""A Redis client for many callers on one loop: what they ask in one turn of the loop goes in one round trip.

The runs of a worker ask Redis for many small things. Most of what such a command costs is the pool's, the socket's and
the timer's, not its own: asked together they take half the worker's time for a trivial task.
"""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import redis.asyncio


class _Asked(NamedTuple):
    command: list[Any]
    options: dict[str, Any]
    reply: asyncio.Future[Any]


class BatchingRedis(redis.asyncio.Redis):
    """A client that sends single commands in batches; pipelines and subscriptions are those of any client.

    Each caller gets its own reply or error. After a lost connection the whole batch is sent again, as each of its
    commands would have been. A caller that is cancelled leaves the others alone.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._asked: list[_Asked] = []
        self._under_way: set[asyncio.Task[None]] = set()

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command with what else is asked in this turn of the loop; returns its reply or raises its error."""
        # Encoded here, so that a text that cannot be encoded fails its own caller alone.
        command = [args[0], *[arg.encode() if type(arg) is str else arg for arg in args[1:]]]
        loop = asyncio.get_running_loop()
        if not self._asked:
            loop.call_soon(self._send)
        asked = _Asked(command, options, loop.create_future())
        self._asked.append(asked)
        return await asked.reply

    def _send(self) -> None:
        batch, self._asked = self._asked, []
        task = asyncio.create_task(self._ask(batch))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _ask(self, batch: list[_Asked]) -> None:
        replies: list[Any]
        try:
            async with self.pipeline(transaction=False) as pipe:
                for asked in batch:
                    pipe.execute_command(*asked.command, **asked.options)
                replies = await pipe.execute(raise_on_error=False)
        except BaseException as error:  # noqa: BLE001 whatever it is, the callers must hear of it
            replies = [error] * len(batch)
        for asked, reply in zip(batch, replies, strict=True):
            if asked.reply.done():  # its caller was cancelled
                continue
            if isinstance(reply, BaseException):
                asked.reply.set_exception(reply)
            else:
                asked.reply.set_result(reply)

"""The store's deliveries to webhooks: each is written in one step with the end of its task; any worker sends it."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .record_base import from_ms, rfc3339
from .records import DeliveryStatus
from .store_base import StoreBase, pairs_of

if TYPE_CHECKING:
    from datetime import datetime

    from .transitions import Facts

PAGE = 100  #: deliveries that are looked at together
# The pause before another attempt doubles each time; a random part of it, at least half, is waited. In all: some hours.
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 2_000, 3_600_000
MAX_TRIES = 16
LATE_SECONDS = 60  #: a delivery that nobody tried for so long is late


@dataclass(frozen=True, slots=True)
class Attempt:
    """A delivery that this process tries to send now."""

    task_id: str
    run_id: str  #: by which the end is told
    number: int  #: from 1
    url: str
    ended_at: datetime
    delivery_id: str  #: the same on each attempt
    facts: str  #: JSON: those of a notification

    @property
    def body(self) -> bytes:
        """The same bytes on each attempt."""
        return f'{{"type":"task.settled","timestamp":"{rfc3339(self.ended_at)}","data":{self.facts}}}'.encode()


@dataclass(frozen=True, slots=True)
class Troubles:
    """What is wrong with deliveries. Of those to come only the first page is looked at."""

    given_up: int
    failing: int
    error: str  #: of one that is failing
    waiting: int  #: that nobody has tried yet


def delivery_of(facts: Facts, run_id: str, note: str) -> dict[str, str]:
    """What scripts get of a delivery: its run, its id, and the facts as JSON; all empty where no webhook is told.

    The facts are those of a parent's notification, with the number of media instead of the media, and with the command
    that prints the whole result.
    """
    if not facts.webhook or not note:
        return {"told_by": "", "delivery_id": "", "told": ""}
    told = json.loads(note)
    whole = f"outrider show {facts.task_id} --result"
    return {
        "told_by": run_id,
        "delivery_id": told["id"],
        "told": json.dumps({**told, "media": len(told["media"]), "whole_result": whole}),
    }


class Deliveries(StoreBase):
    """The part of the store that keeps deliveries to webhooks."""

    async def due_deliveries(self) -> tuple[tuple[str, str], ...]:
        """`(task_id, run_id)` of deliveries whose next attempt is due, a page of them."""
        now = await self.now_ms()
        return pairs_of(await self.redis.zrangebyscore(self.keys.deliveries(), "-inf", now, start=0, num=PAGE))

    async def take_delivery(self, task_id: str, run_id: str, *, lease_ms: int) -> Attempt | None:
        """Take a delivery for one attempt; `None` where it is not due, or another process has it."""
        reply = await self._scripts(
            "take_delivery",
            [self.keys.deliveries(), self.keys.delivery(run_id), self.keys.task(task_id)],
            [f"{task_id}/{run_id}", lease_ms],
        )
        if not reply:
            return None
        number, ended_ms, delivery_id, facts, url = reply
        ended_at = from_ms(int(ended_ms))
        return Attempt(task_id, run_id, int(number), url.decode(), ended_at, delivery_id.decode(), facts.decode())

    async def delivered(self, attempt: Attempt) -> bool:
        """Note that the receiver took it. `False`: another attempt has replaced this one."""
        return await self._end_delivery(attempt, DeliveryStatus.DELIVERED, "")

    async def not_delivered(self, attempt: Attempt, why: str) -> DeliveryStatus | None:
        """Note that the receiver did not take it: `pending`, for another attempt after a pause, or `failed` for good.

        `None`: another attempt has replaced this one.
        """
        status = DeliveryStatus.PENDING if attempt.number < MAX_TRIES else DeliveryStatus.FAILED
        return status if await self._end_delivery(attempt, status, why) else None

    async def _end_delivery(self, attempt: Attempt, status: DeliveryStatus, why: str) -> bool:
        pause = min(FIRST_PAUSE_MS * 2 ** (attempt.number - 1), LONGEST_PAUSE_MS)
        reply = await self._scripts(
            "end_delivery",
            [self.keys.deliveries(), self.keys.delivery(attempt.run_id), self.keys.undelivered()],
            [
                f"{attempt.task_id}/{attempt.run_id}",
                attempt.number,
                status.value,
                why,
                round(pause * random.uniform(0.5, 1)),  # noqa: S311 no secret
            ],
        )
        return bool(reply)

    async def troubles(self) -> Troubles:
        """Look for what is wrong with deliveries."""
        late = await self.now_ms() - LATE_SECONDS * 1000
        due = await self.redis.zrange(self.keys.deliveries(), 0, PAGE - 1, withscores=True)
        async with self.redis.pipeline(transaction=False) as pipe:
            pipe.zcard(self.keys.undelivered())
            for member, _ in due:
                pipe.hmget(self.keys.delivery(member.decode().partition("/")[2]), "tries", "error")
            given_up, *rows = await pipe.execute()
        errors = [error.decode() for _, error in rows if error]
        waiting = sum(at < late and tries == b"0" for (_, at), (tries, _) in zip(due, rows, strict=True))
        return Troubles(given_up, len(errors), errors[-1] if errors else "", waiting)

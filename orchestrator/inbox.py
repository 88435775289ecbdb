"""Reading the inbox of an external parent: each notification comes again until it was dealt with."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..shared.connections import reachable
from ..shared.errors import InboxLost, OutriderError, RedisUnreachable
from ..shared.ids import check_id, new_token
from ..shared.store_external import Busy

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from ..shared.notification import Notification
    from ..shared.settings import Settings
    from ..shared.store_external import ExternalParents, Read
    from .session import Session


async def notes(session: Session, parent_id: str) -> AsyncGenerator[Notification, None]:
    """The notifications of a parent, oldest first, also those to come; each is dealt with when the next is asked for.

    Ends when the parent was cancelled and all is read. While another reader has the inbox, it waits for that one's end.
    """
    async with session.watch() as watch:
        # Whatever comes after this event wakes a read that found nothing.
        with session.reachable():
            after = await session.store.last_event_id(parent_id)
        lease = Lease(parent_id, session.store, session.settings)
        session.leases.add(lease)
        try:
            while True:
                read = await watch.patiently(lease.read)
                if isinstance(read, Busy) or not read.notes:
                    if not isinstance(read, Busy) and read.status.terminal:
                        return
                    wait_ms = read.lease_ms if isinstance(read, Busy) else None
                    events = await watch.read(parent_id, after, block=True, at_most_ms=wait_ms)
                    after = events[-1].id if events else after
                    continue
                for note in read.notes:
                    yield note
                    lease.done = note.seq
        finally:
            await lease.leave()
            session.leases.discard(lease)


async def unread(session: Session, parent_id: str, *, saved: int, after: int) -> tuple[Notification, ...]:
    """What came after a number, a page of it, without a lease; all up to `saved` is dealt with."""
    check_id(parent_id, "parent")
    with session.reachable():
        return await session.store.unread(parent_id, saved=saved, after=after)


@dataclass(slots=True, eq=False)
class Lease:
    """A reader's lease of an inbox, renewed until the reader leaves or another one has taken it over."""

    parent_id: str
    store: ExternalParents
    settings: Settings
    token: str = field(default_factory=new_token)
    done: int = 0  #: number of the last notification that was dealt with
    renewing: asyncio.Task[None] | None = None
    leaving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self) -> Read | Busy:
        """What comes next, with the lease taken or renewed."""
        read = await self._read(1)
        if self.renewing is None and not isinstance(read, Busy):
            self.renewing = asyncio.create_task(self._renew())
        return read

    async def leave(self) -> None:
        """Let the next reader begin at once. Where Redis is away it begins when the lease has run out.

        A second call waits for the first and does nothing.
        """
        async with self.leaving:
            if self.renewing is None:
                return
            self.renewing.cancel()
            self.renewing = None
            with suppress(OutriderError), reachable(self.settings):
                await self.store.leave_inbox(self.parent_id, self.token, done=self.done)

    async def _read(self, count: int) -> Read | Busy:
        return await self.store.read_inbox(
            self.parent_id,
            self.token,
            "go on" if self.renewing else "begin",
            lease_ms=self.settings.lease_ms,
            done=self.done,
            count=count,
        )

    async def _renew(self) -> None:
        # The next read raises what is wrong.
        with suppress(InboxLost):
            while True:
                await asyncio.sleep(self.settings.heartbeat_seconds)
                with suppress(RedisUnreachable), reachable(self.settings):
                    await self._read(0)

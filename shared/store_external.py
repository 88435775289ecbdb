"""The store's external parents, which run in a process of the user's own: they have no runs here, only an inbox."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .errors import BadInput, InboxLost, OutriderError, UnknownTask
from .notification import Notification
from .statuses import Status
from .store_base import StoreBase
from .transitions import Facts

if TYPE_CHECKING:
    from .scripts import Argument

EXTERNAL = "external"  #: the `home` of such a task, and its agent's name where none is given
MOST_READ = 100  #: notifications that a reader with a cursor of its own gets at once


@dataclass(frozen=True, slots=True)
class Read:
    """What comes next in an inbox."""

    status: Status  #: of the parent
    notes: tuple[Notification, ...] = ()


@dataclass(frozen=True, slots=True)
class Busy:
    """Another reader has the inbox."""

    lease_ms: int  #: how long, unless it renews


class ExternalParents(StoreBase):
    """The part of the store that serves external parents."""

    async def register(self, task_id: str, agent: str, title: str) -> None:
        """Write the `idle` task of an external parent; an external parent that has this id stays as it is.

        Raise `BadInput` where the task of this id runs in workers, and `OutriderError` while an old task is removed.
        """
        facts = Facts(task_id, agent, title)
        keys = [self.keys.tasks(), self.keys.agent(agent), self.keys.trees(), self.keys.remains(task_id)]
        fields = {"task_id": task_id, "agent": agent, "title": title, "home": EXTERNAL}
        (answer,) = await self._scripts(
            "register",
            [*self._task_keys(facts, None), *keys],
            [
                task_id,
                json.dumps({"agent": agent, "title": title}),
                *(part for pair in fields.items() for part in pair),
            ],
        )
        if answer == b"worker":
            raise _at_home_here(task_id)
        if answer == b"remains":
            raise OutriderError(f"an old task {task_id} is being removed: try again in a moment, or use another id")

    async def read_inbox(
        self, task_id: str, token: str, how: Literal["begin", "go on"], *, lease_ms: int, done: int, count: int = 1
    ) -> Read | Busy:
        """Take or renew the one lease of an inbox, note that all up to `done` was dealt with, and read what comes next.

        Raise `InboxLost` where another reader took over, `UnknownTask`, and `BadInput` where the task runs in workers.
        """
        return await self._inbox(task_id, token=token, how=how, lease_ms=lease_ms, done=done, after=done, count=count)

    async def leave_inbox(self, task_id: str, token: str, *, done: int) -> None:
        """Give the lease up, so that the next reader need not wait for its end."""
        await self._inbox(task_id, token=token, how="end", lease_ms=0, done=done, after=done, count=0)

    async def unread(self, task_id: str, *, saved: int, after: int) -> tuple[Notification, ...]:
        """What comes after a number in an inbox, a page at most; the reader's saved state has all up to `saved`."""
        read = await self._inbox(task_id, token="", how="go on", lease_ms=0, done=saved, after=after, count=MOST_READ)
        return read.notes if isinstance(read, Read) else ()

    async def _inbox(self, task_id: str, **args: Argument) -> Read | Busy:
        answer, *rest = await self._scripts(
            "inbox",
            [*self._task_keys(Facts(task_id, EXTERNAL), None), self.keys.inbox(task_id)],
            args,
        )
        match answer:
            case b"read":
                return Read(Status(rest[0].decode()), tuple(Notification.from_entry(entry) for entry in rest[1]))
            case b"busy":
                return Busy(int(rest[0]))
            case b"lost":
                raise InboxLost(task_id)
            case b"worker":
                raise _at_home_here(task_id)
        raise UnknownTask(task_id)


def _at_home_here(task_id: str) -> BadInput:
    return BadInput(
        f"task {task_id} runs in workers, which read its inbox: register a parent of your own, with another id"
    )

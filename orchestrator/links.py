"""A client's links to the outside: the store, Redis connections for blocking reads, and the broker."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from ..shared.connections import connect, connect_blocking
from ..shared.store import Store

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import redis.asyncio
    from celery import Celery

    from ..shared.bells import Bell
    from ..shared.context import Host
    from ..shared.settings import Settings


@dataclass(frozen=True, slots=True)
class Links:
    """Made when a client is entered, on the loop that uses it."""

    store: Store
    reader: Callable[[], redis.asyncio.Redis]  #: a fresh client for one caller's blocking reads
    ring: Callable[[Bell], Awaitable[None]]  #: raises where the broker does not take the bell


def open_links(settings: Settings) -> Links:
    """The links of these settings. Nothing connects before it is used."""
    store = Store(connect(settings), settings.namespace, **settings.for_store)
    return Links(store, lambda: connect_blocking(settings), _Ringer(settings).ring)


def links_of(host: Host) -> Links:
    """The links of a worker process, for the code of its runs."""
    return Links(host.store, lambda: connect_blocking(host.settings), host.ring)


class _Ringer:
    """Rings from worker threads. Celery is imported at the first bell: reading records does not need it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._app: Celery | None = None
        self._making = Lock()

    async def ring(self, bell: Bell) -> None:
        await asyncio.to_thread(self._ring, bell)

    def _ring(self, bell: Bell) -> None:
        from ..shared.broker import make_app, ring  # noqa: PLC0415

        with self._making:
            self._app = self._app or make_app(self._settings)
        ring(self._app, bell)

"""What a client's methods share: settings, `langgraph.json`, the workers' catalogue, and links while it is open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ..shared.catalogue import CachedCatalogue
from ..shared.config import Config
from ..shared.connections import reachable
from ..shared.errors import OutriderError
from . import links
from .waiting import Watch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from ..shared.bells import Bell
    from ..shared.catalogue import Catalogue
    from ..shared.context import Host
    from ..shared.settings import Settings
    from ..shared.store import Store
    from .inbox import Lease


class Session:
    """The state of one client. It may be opened and closed several times, on the loop that uses it."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.links: links.Links | None = None  #: `None`: it is not open
        self.leases: set[Lease] = set()  #: of the inboxes that are being read
        self._config: Config | None = None
        self._catalogue = CachedCatalogue()

    @classmethod
    def inside(cls, host: Host) -> Session:
        """A session on the settings and connections of a worker process, for the code of its runs. Never closed."""
        session = cls(host.settings)
        session.links, session._config = links.links_of(host), host.config
        return session

    async def open(self) -> None:
        """Make the links; nothing connects before it is used."""
        self.links = links.open_links(self.settings)

    async def close(self) -> None:
        """Leave the inboxes and close the connections; a second call does nothing."""
        # A loop that was left by `break` has not left its inbox yet: its generator is closed some time later.
        for lease in tuple(self.leases):
            await lease.leave()
        opened, self.links = self.links, None
        if opened is not None:
            await opened.store.redis.aclose()

    @property
    def store(self) -> Store:
        """The records in Redis."""
        return self._open.store

    def reachable(self) -> AbstractContextManager[None]:
        """Within it a Redis that does not answer raises `RedisUnreachable`."""
        return reachable(self.settings)

    def watch(self) -> Watch:
        """A reader of events on a connection of its own."""
        return Watch(self.store, self._open.reader, self.settings)

    async def config(self) -> Config:
        """`langgraph.json`, read once."""
        if self._config is None:
            self._config = await asyncio.to_thread(Config.load, self.settings.config)
        return self._config

    async def catalogue(self) -> Catalogue:
        """What live workers have published about agents and queues."""
        return await self._catalogue.read(self.store.redis, self.store.keys)

    async def ring(self, *bells: Bell) -> list[str]:
        """Ring bells. Returns a note for each that the broker did not take."""
        notes = []
        for bell in bells:
            try:
                await self._open.ring(bell)
            except OutriderError as error:
                notes.append(f"{error}; the task stands, and a worker's sweeper will ring for it")
        return notes

    @property
    def _open(self) -> links.Links:
        if self.links is None:
            raise OutriderError("the client is not open: use `async with Outrider() as o:`")
        return self.links

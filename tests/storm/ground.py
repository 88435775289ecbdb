"""The ground of a storm: a Redis that keeps what it acknowledged, workers, and the history that all write."""

import asyncio
import json
import random
import time
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

import sites
import workers
from outrider import Outrider
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.errors import RedisUnreachable
from outrider.shared.settings import Settings
from outrider.shared.store import Store

CONFIG = Path(__file__).parent / "langgraph.json"
NAMESPACE = "storm"
LEASE_SECONDS = 3.0
QUICK = {
    "OUTRIDER_LEASE_SECONDS": str(LEASE_SECONDS),
    "OUTRIDER_HEARTBEAT_SECONDS": "0.5",
    "OUTRIDER_SWEEP_SECONDS": "0.5",
    "OUTRIDER_RING_AGAIN_SECONDS": "1",
    "OUTRIDER_GRACE_SECONDS": "5",
    "OUTRIDER_MAX_ATTEMPTS": "1000",  # who dies is chance here, not an agent's fault
    "OUTRIDER_LOG_LEVEL": "warning",
}
AGAIN_SECONDS = 0.1
CHILDREN = 2  #: of a prefork worker


@dataclass(frozen=True)
class Plan:
    """How large a storm is. The same seed makes the same choices, as far as the machine's timing allows."""

    seed: int = 0
    tasks: int = 2000  #: with children
    at_once: int = 60  #: roots that are not awaited yet
    threads: int = 3  #: workers
    prefork: int = 1
    between_seconds: float = 2.0  #: two faults, on average
    patience_seconds: float = 180.0  #: for the last ones to end, when the weather is fair again


class LastingRedis(EmbeddedRedis):
    """A server of which a `kill -9` loses nothing that it acknowledged."""

    def _options(self):
        return super()._options() | {"appendfsync": "always"}


@dataclass
class Storm:
    """What all actors share."""

    plan: Plan
    folder: Path
    server: EmbeddedRedis
    o: Outrider
    redis: object  #: a patient client
    site: sites.Site
    crew: "Crew"
    file: TextIO  #: of the history
    over: asyncio.Event = field(default_factory=asyncio.Event)
    ended: list = field(default_factory=list)  #: roots that were awaited
    aged: dict = field(default_factory=dict)  #: runs by tasks that may be removed
    faults: dict = field(default_factory=dict)  #: how often each came

    @property
    def store(self):
        return self.site.desk.store

    def chance(self, name):
        return random.Random(f"{self.plan.seed}/{name}")  # noqa: S311 no secret

    def note(self, who, what, **facts):
        self.file.write(json.dumps({"who": who, "what": what, "at": time.monotonic(), **facts}) + "\n")

    def fault(self, name):
        self.faults[name] = self.faults.get(name, 0) + 1
        self.note("weather", name)

    async def tasks(self):
        """How many there are, and were."""
        return await self.redis.zcard(self.store.keys.tasks()) + len(await self.removed())

    async def removed(self):
        """Those of the tasks that may be removed which are not there any more."""
        aged = list(self.aged)
        there = await self.redis.zmscore(self.store.keys.tasks(), aged) if aged else ()
        return {task_id for task_id, score in zip(aged, there, strict=True) if score is None}

    async def rest(self, seconds):
        """Wait so long, or until the storm is over; whether it goes on."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.over.wait(), seconds)
        return not self.over.is_set()

    def history(self):
        """All lines that were written, by anyone."""
        self.file.flush()
        return [json.loads(line) for file in self.folder.glob("*.jsonl") for line in file.read_text().splitlines()]


async def insist(call, *args, **kwargs):
    """Call until Redis is there to answer."""
    while True:
        try:
            return await call(*args, **kwargs)
        except RedisUnreachable:
            await asyncio.sleep(AGAIN_SECONDS)


class Crew:
    """The workers of a storm. One that is gone is replaced by another."""

    def __init__(self, site, plan, folder):
        self._site, self._folder = site, folder
        self._kinds = ["threads"] * plan.threads + ["prefork"] * plan.prefork
        self.up = []

    async def start(self, store):
        """Start all, and return when they are up."""
        for kind in self._kinds:
            await self.add(kind)
        children = sum(CHILDREN if kind == "prefork" else 1 for kind in self._kinds)
        while await store.redis.hlen(store.keys.catalogue()) < children:  # noqa: ASYNC110 other processes fill it
            await asyncio.sleep(AGAIN_SECONDS)

    def victim(self, chance):
        """One of those that were up longest: the others may have nothing to lose yet."""
        return chance.choice(self.up[: len(self.up) // 2 + 1])

    async def add(self, kind):
        options = ("-P", "prefork", "-c", str(CHILDREN)) if kind == "prefork" else ("-c", "32")
        worker = self._site.worker(*options, **QUICK, OUTRIDER_CONFIG=str(CONFIG), STORM_FOLDER=str(self._folder))
        worker.kind = kind
        await asyncio.to_thread(worker.__enter__)
        self.up.append(worker)

    async def replace(self, worker, end):
        """Let a worker end, by `end`, while another one of its kind takes its place."""
        self.up.remove(worker)
        end(worker.process)
        await self.add(worker.kind)
        await asyncio.to_thread(worker.__exit__, None, None, None)
        return worker

    async def close(self):
        await asyncio.gather(*(asyncio.to_thread(worker.__exit__, None, None, None) for worker in self.up))


@asynccontextmanager
async def ground(plan, folder):
    """A server, a site and workers, for one storm."""
    async with AsyncExitStack() as stack:
        server = stack.enter_context(LastingRedis())
        settings = Settings(redis_url=server.url, namespace=NAMESPACE, config=str(CONFIG))
        o = await stack.enter_async_context(Outrider(settings))
        redis = await stack.enter_async_context(workers.plain(server.url))
        site = sites.Site(workers.Desk(Store(redis, NAMESPACE), redis), settings)
        stack.callback(site.app.close)
        crew = Crew(site, plan, folder)
        stack.push_async_callback(crew.close)
        await crew.start(site.desk.store)
        file = stack.enter_context((folder / "storm.jsonl").open("a"))
        yield Storm(plan, folder, server, o, redis, site, crew, file)

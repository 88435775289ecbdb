"""How work is shared by several processes and queues, what it asks of Redis, and what many finished tasks cost.

python benchmarks/scale.py [--quick] [--json FILE]

All on a Redis server of its own.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import listing
import redis.asyncio
from command import about, options, table, target, tell
from common import HERE, Counters, WorkerProcess, attended, machine
from measures import sleepers
from sides import Ours

from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from outrider import Outrider

APP = "outrider.worker.main"
DEFAULT_THREADS = 250  #: of `outrider worker`
THREADS = 100  #: of each process that agents share which sleep
FEW_THREADS = 10  #: of the worker that two queues share


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done of each."""

    processes: tuple[int, ...] = (1, 2, 4)
    sleeping: int = 300  #: agents for each process
    computing: int = 200  #: in all
    large_queue: int = 200
    small_queue: int = 10
    few: int = 200  #: finished tasks
    many: int = 200_000
    rounds: int = 50  #: of pages
    at_once: int = 200  #: one-second agents at default settings


QUICK = Sizes((1, 2), sleeping=10, computing=8, large_queue=20, small_queue=3, few=60, many=500, rounds=3, at_once=10)


def main() -> None:
    """Measure, print the tables, and write the JSON where it is asked for."""
    asked = options("Measure how outrider scales.")
    report = asyncio.run(_measure(QUICK if asked.quick else Sizes()))
    tell(report, asked.json, *_shown(report))


async def _measure(sizes: Sizes) -> dict[str, Any]:
    with EmbeddedRedis() as server, tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        async with redis.asyncio.Redis.from_url(server.url, socket_timeout=None) as client:
            bench = _Bench(server.url, Path(folder), client, sizes)
            figures = {
                "at_once": await bench.at_once(),
                "processes": [await bench.processes(count) for count in sizes.processes],
                "queues": await bench.queues(),
                **await bench.finished(),
            }
            facts = await machine(client)
    return {"machine": facts, "sizes": asdict(sizes), "figures": figures, "targets": _targets(figures)}


class _Bench:
    """The measures, each in a namespace of its own."""

    def __init__(self, url: str, folder: Path, client: redis.asyncio.Redis, sizes: Sizes) -> None:
        self._url, self._folder, self._client, self._sizes = url, folder, client, sizes

    async def at_once(self) -> dict[str, Any]:
        """One-second agents in one process of the default size, from the first submit to the last end."""
        settings = self._settings("at-once")
        with self._workers(settings, 1, DEFAULT_THREADS) as (worker,):
            async with Ours(settings, worker, self._client, "sleeper") as side:
                await attended(side.one(), worker)
                return await attended(sleepers(side, self._sizes.at_once), worker)

    async def processes(self, count: int) -> dict[str, Any]:
        """Tasks per second of so many processes: of agents that sleep, and of agents that compute."""
        sizes, sleeping, computing = self._sizes, self._settings(f"sleep-{count}"), self._settings(f"compute-{count}")
        with self._workers(sleeping, count, THREADS) as workers:
            slept = await self._rate(sleeping, workers, "sleeper", sizes.sleeping * count)
        with self._workers(computing, 1, count, pool="prefork") as workers:
            computed = await self._rate(computing, workers, "computer", sizes.computing)
        return {"processes": count, "sleeping_per_s": slept, "computing_per_s": computed}

    async def _rate(self, settings: Settings, workers: list[WorkerProcess], agent: str, count: int) -> float:
        async with Ours(settings, workers[0], self._client, agent, len(workers)) as side:
            # As many as there are processes, several times over: each has loaded its agents then.
            await attended(side.submit_in_flight(4 * len(workers)), *workers)
            await attended(side.all_done(), *workers)
            side.hold()
            await side.submit_in_flight(count)
            side.go()
            started = time.perf_counter()
            await attended(side.all_done(), *workers)
            return round(count / (time.perf_counter() - started), 1)

    async def queues(self) -> dict[str, Any]:
        """How long the tasks of two queues wait that one worker shares, the small one filled last."""
        settings, sizes = self._settings("queues"), self._sizes
        with self._workers(settings, 1, FEW_THREADS, queues="large,small") as (worker,):
            async with Ours(settings, worker, self._client, "sleeper") as side:
                await attended(side.one(queue="large"), worker)
                large = await side.submit_in_flight(sizes.large_queue, queue="large")
                small = await side.submit_in_flight(sizes.small_queue, queue="small")
                await attended(side.all_done(), worker)
                return {
                    "large": await _waits(side.outrider, large),
                    "small": await _waits(side.outrider, small),
                }

    async def finished(self) -> dict[str, Any]:
        """What a task asks of Redis and leaves there, and pages of few finished tasks and of many."""
        settings, sizes, agent = self._settings("finished"), self._sizes, "trivial"
        with self._workers(settings, 1, THREADS) as (worker,):
            async with Ours(settings, worker, self._client, agent) as side:
                await attended(side.one(), worker)
                before, cpu = await Counters.read(self._client), await self._redis_cpu()
                ids = await side.submit_in_flight(sizes.few)
                await attended(side.all_done(), worker)
                load = (await Counters.read(self._client)).since(before, sizes.few)
                load["cpu_ms"] = round((await self._redis_cpu() - cpu) * 1000 / sizes.few, 2)
        async with Ours(settings, worker, self._client, agent) as side:
            few = await listing.pages(side.outrider, agent, sizes.rounds)
            dataset = (await Counters.read(self._client)).dataset
            await listing.fill(self._client, settings.namespace, ids[0], agent, sizes.many)
            bytes_of_record = round(((await Counters.read(self._client)).dataset - dataset) / sizes.many)
            many = await listing.pages(side.outrider, agent, sizes.rounds)
        return {"redis_per_task": load, "bytes_of_record": bytes_of_record, "pages_ms": {"few": few, "many": many}}

    async def _redis_cpu(self) -> float:
        info = await self._client.info("cpu")
        return float(info["used_cpu_user"] + info["used_cpu_sys"])

    @contextmanager
    def _workers(
        self, settings: Settings, count: int, concurrency: int, pool: str = "threads", queues: str = "subagents"
    ) -> Iterator[list[WorkerProcess]]:
        with ExitStack() as stack:
            logs = [self._folder / f"{settings.namespace}-{number}.log" for number in range(count)]
            workers = [WorkerProcess(APP, settings, concurrency, log, pool=pool, queues=queues) for log in logs]
            yield [stack.enter_context(worker) for worker in workers]

    def _settings(self, name: str) -> Settings:
        return Settings(
            redis_url=self._url,
            broker_url=self._url,
            namespace=f"scale-{name}",
            config=str(HERE / "agents" / "langgraph.json"),
        )


async def _waits(outrider: Outrider, ids: list[str]) -> dict[str, float]:
    """Seconds from submit to claim."""
    runs = [((await outrider.get(task_id)).runs or ())[0] for task_id in ids]
    waited = [(run.started_at - run.created_at).total_seconds() for run in runs if run.started_at]
    return {"tasks": len(waited), "p50": round(statistics.median(waited), 2), "max": round(max(waited), 2)}


def _targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    few, many = figures["pages_ms"]["few"], figures["pages_ms"]["many"]
    at_once, queues = figures["at_once"], figures["queues"]
    return [
        target(f"{at_once['count']} one-second agents at default settings, s", at_once["wall_s"], 2),
        target(
            "slowest page of many finished tasks, times that of few", max(many[kind] / few[kind] for kind in few), 2
        ),
        target(
            "small queue's longest wait, share of the large one's", queues["small"]["max"] / queues["large"]["max"], 0.5
        ),
    ]


def _shown(report: dict[str, Any]) -> tuple[RenderableType, ...]:
    sizes, figures = report["sizes"], report["figures"]
    rates = table("Processes", "", *(f"{row['processes']}" for row in figures["processes"]))
    for kind, name in (
        ("sleeping_per_s", f"one-second agents per second, {THREADS} threads each"),
        ("computing_per_s", "agents per second that compute for 50 ms, prefork"),
    ):
        rates.add_row(name, *(f"{row[kind]:,.1f}" for row in figures["processes"]))
    waits = table("Two queues, one worker", "", "tasks", "wait p50, s", "longest, s")
    for name, row in figures["queues"].items():
        waits.add_row(name, f"{row['tasks']}", f"{row['p50']:.1f}", f"{row['max']:.1f}")
    load = table("Redis, per task", "", "figure")
    for key, name in (
        ("commands", "commands, with those in scripts"),
        ("reads", "socket reads"),
        ("bytes_in", "bytes to Redis"),
        ("bytes_out", "bytes from Redis"),
        ("cpu_ms", "processor time of Redis, ms"),
        ("dataset", "bytes that stay, of a finished task"),
    ):
        load.add_row(name, f"{figures['redis_per_task'][key]:,.1f}")
    load.add_row("  of these its record and its places in indexes", f"{figures['bytes_of_record']:,}")
    lists = table("A page of 50, p50, ms", "finished tasks", f"{sizes['few']:,}", f"{sizes['many']:,}")
    for kind, few in figures["pages_ms"]["few"].items():
        lists.add_row(kind, f"{few:.1f}", f"{figures['pages_ms']['many'][kind]:.1f}")
    return about(report["machine"]), rates, waits, load, lists


if __name__ == "__main__":
    main()

"""How soon runs go on whose worker was killed, how soon a cancel is heard, and what a storm breaks.

python benchmarks/recovery.py [--quick] [--json FILE]

Each measure has a Redis server of its own. The storm is that of `make faults`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis.asyncio
from command import about, options, table, target, tell
from common import HERE, WorkerProcess, machine, percentiles

from outrider import Outrider
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.settings import Settings
from outrider.shared.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

STORM = HERE.parent / "tests" / "storm"
LOOK_SECONDS = 0.1
ROOM = 20  #: threads of a worker beyond what it has to hold
#: How runs are cancelled that are all in flight.
IN_TURN, AT_ONCE = "one after the other", "all at once"
#: Seconds of lease, heartbeat and sweep.
FAST = {"lease_seconds": 6, "heartbeat_seconds": 1, "sweep_seconds": 1}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done of each."""

    storm_tasks: int = 2000
    storm_between_seconds: float = 2
    storm_workers: tuple[int, int] = (3, 1)  #: on threads and prefork
    killed: int = 100  #: runs in flight
    cancelled: int = 200
    default_settings: bool = True  #: a kill with those, too


QUICK = Sizes(
    storm_tasks=20, storm_between_seconds=4, storm_workers=(2, 0), killed=5, cancelled=10, default_settings=False
)


class Bench:
    """A server, a client and workers of one measure."""

    def __init__(self, settings: Settings, client: redis.asyncio.Redis, outrider: Outrider, folder: Path) -> None:
        self.settings, self.client, self.outrider, self._folder = settings, client, outrider, folder
        self.store = Store(client, settings.namespace)
        self._workers = 0

    async def worker(self, stack: AsyncExitStack, holds: int) -> WorkerProcess:
        """A worker that is up, besides those that are."""
        self._workers += 1
        log = self._folder / f"worker-{self._workers}.log"
        worker = stack.enter_context(WorkerProcess("outrider.worker.main", self.settings, holds + ROOM, log))
        while await self.client.hlen(self.store.keys.catalogue()) < self._workers:
            worker.check()
            await asyncio.sleep(LOOK_SECONDS)
        return worker

    async def in_flight(self, count: int) -> list[str]:
        """So many runs that are at work."""
        ids = [(await self.outrider.submit("held", str(self.notes))).task_id for _ in range(count)]
        await self.noted("started", count)
        return ids

    @property
    def notes(self) -> Path:
        """Where agents note that they started and stopped."""
        return self._folder / "notes.txt"

    async def noted(self, what: str, count: int) -> dict[str, float]:
        """When each of so many tasks noted this."""
        while True:
            text = self.notes.read_text() if self.notes.exists() else ""
            lines = [line.split() for line in text.split("\n")[:-1]]  # what stands after the last end is no whole line
            at = {task_id: float(moment) for word, task_id, moment in lines if word == what}
            if len(at) == count:
                return at
            await asyncio.sleep(LOOK_SECONDS)

    async def claimed_again_ms(self, task_id: str) -> int:
        """When a task's run was claimed once more, by Redis' clock."""
        while True:
            events = await self.store.events(task_id, "0-0", reader=self.client)
            claims = [int(event.id.split("-")[0]) for event in events if event.type == "run.claimed"]
            if len(claims) > 1:
                return claims[1]
            await asyncio.sleep(LOOK_SECONDS)


async def _bench(stack: AsyncExitStack, **settings: Any) -> Bench:
    server = stack.enter_context(EmbeddedRedis())
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-bench-")))
    made = Settings(
        redis_url=server.url,
        broker_url=server.url,
        namespace="bench-recovery",
        config=str(HERE / "agents" / "held.json"),
        **settings,
    )
    client = await stack.enter_async_context(redis.asyncio.Redis.from_url(server.url, socket_timeout=None))
    return Bench(made, client, await stack.enter_async_context(Outrider(made)), folder)


def main() -> None:
    """Measure, print the table, and write the JSON where it is asked for."""
    asked = options("Measure what happens when something dies.")
    sizes = QUICK if asked.quick else Sizes()
    report = asyncio.run(_measure(sizes))
    report["figures"]["storm"] = _storm(sizes)
    report["targets"] = _targets(report["figures"])
    tell(report, asked.json, *_shown(report))


async def _measure(sizes: Sizes) -> dict[str, Any]:
    async with AsyncExitStack() as stack:
        facts = await machine((await _bench(stack)).client)
    kills = [await _kill(sizes.killed, FAST)]
    if sizes.default_settings:
        kills.append(await _kill(sizes.killed, {}))
    return {
        "machine": facts,
        "sizes": asdict(sizes),
        "figures": {"kills": kills, "cancels": [await _cancel(sizes.cancelled, how) for how in (IN_TURN, AT_ONCE)]},
    }


async def _kill(count: int, settings: dict[str, int]) -> dict[str, float]:
    """Seconds from the `kill -9` of a worker until all its runs are at work on another one that was up."""
    async with AsyncExitStack() as stack:
        bench = await _bench(stack, **settings)
        victim = await bench.worker(stack, count)
        ids = await bench.in_flight(count)
        await bench.worker(stack, count)
        seconds, micros = await bench.client.time()
        victim.kill()
        again = [await bench.claimed_again_ms(task_id) for task_id in ids]
        used = bench.settings
        return {
            "runs": count,
            "lease_s": used.lease_seconds,
            "sweep_s": used.sweep_seconds,
            "all_running_after_s": round((max(again) - seconds * 1000 - micros / 1000) / 1000, 2),
        }


async def _cancel(count: int, how: str) -> dict[str, Any]:
    """Milliseconds from each call of `cancel` until the coroutine was stopped."""
    async with AsyncExitStack() as stack:
        bench = await _bench(stack)
        await bench.worker(stack, count)
        ids, called = await bench.in_flight(count), {}

        async def cancel(task_id: str) -> None:
            called[task_id] = time.monotonic()
            await bench.outrider.cancel(task_id)

        if how == AT_ONCE:
            await asyncio.gather(*map(cancel, ids))
        else:
            for task_id in ids:
                await cancel(task_id)
        stopped = await bench.noted("stopped", count)
    return percentiles([stopped[task_id] - at for task_id, at in called.items()]) | {"count": count, "how": how}


def _storm(sizes: Sizes) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        file = Path(folder) / "storm.json"
        threads, prefork = sizes.storm_workers
        options = ("--tasks", sizes.storm_tasks, "--between", sizes.storm_between_seconds, "--threads", threads)
        options += ("--prefork", prefork, "--json", file)
        # It ends with 1 where a promise was broken, which the figures tell.
        subprocess.run([sys.executable, STORM, *map(str, options)], stdout=subprocess.DEVNULL, check=False)
        figures: dict[str, Any] = json.loads(file.read_text())
    return figures


def _targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    storm = figures["storm"]
    targets = [target(f"storm of {storm['tasks']:,} tasks: {name}", n, 0) for name, n in storm["broken"].items()]
    for kill in figures["kills"]:
        name = f"kill -9 with {kill['runs']} runs in flight, all running again, s (lease {kill['lease_s']:g} s)"
        targets.append(target(name, kill["all_running_after_s"], kill["lease_s"] + 2 * kill["sweep_s"]))
    return [
        *targets,
        *(
            target(f"{cancel['count']} runs in flight, cancelled {cancel['how']}, stopped, p99, ms", cancel["p99"], 250)
            for cancel in figures["cancels"]
        ),
    ]


def _shown(report: dict[str, Any]) -> Iterator[RenderableType]:
    storm = report["figures"]["storm"]
    faults = ", ".join(f"{name} {times}" for name, times in sorted(storm["faults"].items()))
    yield f"{about(report['machine'])}; storm of {storm['seconds']:.0f} s: {faults}"
    stopped = table("From the call of a cancel until the coroutine was stopped", "", "p50, ms", "p99, ms")
    for cancel in report["figures"]["cancels"]:
        stopped.add_row(f"{cancel['count']} runs, {cancel['how']}", f"{cancel['p50']:g}", f"{cancel['p99']:g}")
    yield stopped


if __name__ == "__main__":
    main()

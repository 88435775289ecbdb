"""What outrider costs over bare Celery, in one run, on a Redis server of its own.

python benchmarks/overhead.py [--quick] [--json FILE]
"""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measures
import redis.asyncio
from command import options, tell
from common import HERE, WorkerProcess, attended, machine
from measures import QUICK, STEP_BYTES, Sizes
from report import shown, targets
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sides import Bare, Ours, Side

from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

CONCURRENCY = 100
FEW = 8  #: messages of the conversation that has few big ones
OUTRIDER = "outrider.worker.main"

STAGES = 11  #: of the bar, besides the tasks that are sent one at a time


def main() -> None:
    """Run all measures, print the table, and write the JSON where it is asked for."""
    asked = options("Measure outrider against bare Celery.")
    sizes = QUICK if asked.quick else Sizes()
    columns = (TextColumn("{task.description:24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("workers start", total=sizes.one_at_a_time + STAGES)

        def tick(stage: str = "") -> None:
            progress.update(bar, advance=1, description=stage or None)

        report = asyncio.run(_measure(sizes, tick))
    tell(report, asked.json, *shown(report))


async def _measure(sizes: Sizes, tick: Callable[..., None]) -> dict[str, Any]:
    with EmbeddedRedis() as server, tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        async with redis.asyncio.Redis.from_url(server.url, socket_timeout=None) as client:
            facts = await machine(client)
            bench = _Bench(server.url, Path(folder), client, sizes, tick)
            figures = await bench.side_by_side() | await bench.sleepers()
            tick("outrider --help")
            figures["help_s"] = await measures.help_seconds()
    return {"machine": facts, "sizes": asdict(sizes), "figures": figures, "targets": targets(figures)}


class _Bench:
    """The measures in their order, each with the workers that it needs."""

    def __init__(
        self, url: str, folder: Path, client: redis.asyncio.Redis, sizes: Sizes, tick: Callable[..., None]
    ) -> None:
        self._url, self._folder, self._client, self._sizes, self._tick = url, folder, client, sizes, tick

    async def side_by_side(self) -> dict[str, Any]:
        """What needs both workers, and what an ordinary one of ours is enough for."""
        bare, ours = self._settings("bare"), self._settings("outrider")
        with self._worker("bare", bare) as bare_worker, self._worker(OUTRIDER, ours) as our_worker:
            async with (
                Ours(ours, our_worker, self._client, "trivial") as trivial,
                Ours(ours, our_worker, self._client, "talker") as talker,
            ):
                sides: dict[str, Side] = {"bare": Bare(bare, bare_worker, self._client), "outrider": trivial}
                compared = await attended(self._compare(sides), bare_worker, our_worker)
                return compared | await attended(self._conversations(talker), our_worker)

    async def _compare(self, sides: dict[str, Side]) -> dict[str, Any]:
        for side in sides.values():
            await side.one()
            self._tick("one at a time")
        figures: dict[str, Any] = {
            "one_at_a_time_ms": await measures.one_at_a_time(sides, self._sizes.one_at_a_time, self._tick)
        }
        for name, side in sides.items():
            self._tick(f"backlog, {name}")
            figures[name] = await measures.backlog(side, self._client, self._sizes.tasks, self._tick)
        return figures

    async def _conversations(self, side: Ours) -> dict[str, Any]:
        talks = []
        for messages in (self._sizes.conversation // STEP_BYTES, FEW):
            self._tick("conversations")
            talks.append(await measures.conversation(side, self._client, self._sizes, messages))
        return {"conversations": talks}

    async def sleepers(self) -> dict[str, Any]:
        """Many agents that wait at the same time, in a worker process of their own."""
        settings, count = self._settings("sleepers"), self._sizes.sleepers
        with self._worker(OUTRIDER, settings, count) as worker:
            async with Ours(settings, worker, self._client, "sleeper") as side:
                await attended(side.one(), worker)
                self._tick("one-second agents")
                return {"sleepers": await attended(measures.sleepers(side, count), worker)}

    def _settings(self, name: str) -> Settings:
        return Settings(
            redis_url=self._url,
            broker_url=self._url,
            namespace=f"bench-{name}",
            config=str(HERE / "agents" / "langgraph.json"),
        )

    def _worker(self, app: str, settings: Settings, concurrency: int = CONCURRENCY) -> WorkerProcess:
        return WorkerProcess(app, settings, concurrency, self._folder / f"{settings.namespace}.log")


if __name__ == "__main__":
    main()

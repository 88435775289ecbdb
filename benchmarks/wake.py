"""How soon a parent is woken, and how a thousand children that end together are told, on a Redis server of its own.

python benchmarks/wake.py [--quick] [--json FILE]

All times are those of Redis: of the events that the store's transitions write.
"""

from __future__ import annotations

import asyncio
import tempfile
from bisect import bisect
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis.asyncio
from command import about, options, table, target, tell
from common import HERE, WorkerProcess, attended, machine, percentiles

from outrider import Outrider
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from outrider.shared.records import Event, Task

#: The agents that lead many children, and what each does as they end.
CROWDS = {"works": "works", "leaves": "rests"}
PATIENCE_SECONDS = 300  #: for one parent with all its children


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done of each."""

    parents: int = 20  #: one after the other
    wakes: int = 20  #: of each
    children: int = 1000


QUICK = Sizes(parents=2, wakes=5, children=50)


def main() -> None:
    """Measure, print the table, and write the JSON where it is asked for."""
    asked = options("Measure how parents are woken.")
    report = asyncio.run(_measure(QUICK if asked.quick else Sizes()))
    tell(report, asked.json, *_shown(report))


async def _measure(sizes: Sizes) -> dict[str, Any]:
    with EmbeddedRedis() as server, tempfile.TemporaryDirectory(prefix="outrider-bench-") as folder:
        async with redis.asyncio.Redis.from_url(server.url, socket_timeout=None) as client:
            facts = await machine(client)
        settings = Settings(
            redis_url=server.url,
            broker_url=server.url,
            namespace="bench-wake",
            config=str(HERE / "agents" / "family.json"),
        )
        worker = WorkerProcess("outrider.worker.main", settings, sizes.children + 10, Path(folder) / "wake.log")
        with worker:
            async with Outrider(settings) as outrider:
                figures = await attended(_figures(outrider, sizes), worker)
    return {"machine": facts, "sizes": asdict(sizes), "figures": figures, "targets": _targets(figures)}


async def _figures(outrider: Outrider, sizes: Sizes) -> dict[str, Any]:
    await _led(outrider, "relay", 1)  # the worker starts, and the scripts are known
    wakes = await _wakes(outrider, sizes)
    return {"wake_ms": wakes} | {agent: await _crowd(outrider, agent, sizes.children) for agent in CROWDS}


async def _led(outrider: Outrider, agent: str, number: int) -> Task:
    """Let a parent lead so many children to its end."""
    submitted = await outrider.submit(agent, str(number))
    task = await outrider.wait(submitted.task_id, timeout=PATIENCE_SECONDS)
    if task.error:
        raise RuntimeError(f"parent {task.task_id} is {task.status}: {task.error}")
    return task


async def _events(outrider: Outrider, task_id: str) -> list[Event]:
    return [event async for event in outrider.follow(task_id)]


async def _children(outrider: Outrider, task_id: str) -> list[str]:
    return [child.task.task_id for child in (await outrider.tree(task_id)).children]


def _ms(events: list[Event], kind: str) -> list[int]:
    return [int(event.id.split("-")[0]) for event in events if event.type == kind]


async def _wakes(outrider: Outrider, sizes: Sizes) -> dict[str, float]:
    """Milliseconds from a child's end until the wake of its parent, which was at rest, is claimed."""
    took: list[float] = []
    for _ in range(sizes.parents):
        parent = await _led(outrider, "relay", sizes.wakes)
        events = await _events(outrider, parent.task_id)
        rests, claims = _ms(events, "task.resting"), _ms(events, "run.claimed")
        for child in await _children(outrider, parent.task_id):
            (ended,) = _ms(await _events(outrider, child), "task.settled")
            # On a busy machine a child may end while its parent still works: such an end wakes nobody.
            if bisect(claims, ended) == bisect(rests, ended):
                took.append((claims[bisect(claims, ended)] - ended) / 1000)
    return percentiles(took) | {"count": len(took)}


async def _crowd(outrider: Outrider, agent: str, count: int) -> dict[str, Any]:
    """So many children that end together while their parent works, or while it rests."""
    parent = await _led(outrider, agent, count)
    children = await _children(outrider, parent.task_id)
    ended = [ms for child in children for ms in _ms(await _events(outrider, child), "task.settled")]
    messages = (await outrider.state(parent.task_id))["messages"]
    notes = Counter(
        message.additional_kwargs["outrider_notification"]["task_id"]
        for message in messages
        if "outrider_notification" in message.additional_kwargs
    )
    events = await _events(outrider, parent.task_id)
    return {
        "children": count,
        "told_once": sum(notes[child] == 1 for child in children),
        "further_runs": len(parent.runs or ()) - 1,
        "settled_within_s": (max(ended) - min(ended)) / 1000,
        "told_all_after_s": (_ms(events, "task.settled")[-1] - max(ended)) / 1000,
    }


def _targets(figures: dict[str, Any]) -> list[dict[str, Any]]:
    wake = figures["wake_ms"]
    targets = [
        target("child settled to wake claimed, p50, ms", wake["p50"], 30),
        target("child settled to wake claimed, p99, ms", wake["p99"], 150),
    ]
    for agent, parent in CROWDS.items():
        crowd = figures[agent]
        untold = crowd["children"] - crowd["told_once"]
        targets += [
            target(
                f"{crowd['children']:,} children settle while their parent {parent}, within s",
                crowd["settled_within_s"],
                5,
            ),
            target("  of them not told exactly once", untold, 0),
            target("  further runs of their parent", crowd["further_runs"], 3),
        ]
    return targets


def _shown(report: dict[str, Any]) -> Iterator[RenderableType]:
    figures = report["figures"]
    yield f"{about(report['machine'])}; {figures['wake_ms']['count']} wakes, one at a time"
    after = table("Last child settled to the end of its parent", "", "s")
    for agent, parent in CROWDS.items():
        after.add_row(f"a parent that {parent}", f"{figures[agent]['told_all_after_s']:g}")
    yield after


if __name__ == "__main__":
    main()

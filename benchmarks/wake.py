"""How soon a parent is woken, and how a thousand children that end together are told, on a Redis server of its own.

python benchmarks/wake.py [--quick] [--json FILE]

All times are those of Redis: of the events that the store's transitions write.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from bisect import bisect
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import redis.asyncio
from common import HERE, WorkerProcess, attended, machine, percentiles
from rich.console import Console
from rich.table import Table

from outrider import Outrider
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.settings import Settings

if TYPE_CHECKING:
    from outrider.shared.records import Event, Task

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
    parser = argparse.ArgumentParser(description="Measure how parents are woken.")
    parser.add_argument("--quick", action="store_true", help="small numbers: shows that it works, measures little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args()
    report = asyncio.run(_measure(QUICK if options.quick else Sizes()))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    _show(report)


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
    return {"wake_ms": wakes} | {agent: await _crowd(outrider, agent, sizes.children) for agent in ("works", "leaves")}


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
        _target("child settled to wake claimed, p50, ms", wake["p50"], 30),
        _target("child settled to wake claimed, p99, ms", wake["p99"], 150),
    ]
    for agent, parent in (("works", "while their parent works"), ("leaves", "while their parent rests")):
        crowd = figures[agent]
        untold = crowd["children"] - crowd["told_once"]
        targets += [
            _target(f"{crowd['children']:,} children settle {parent}, within s", crowd["settled_within_s"], 5),
            _target("  of them not told exactly once", untold, 0),
            _target("  further runs of their parent", crowd["further_runs"], 3),
        ]
    return targets


def _target(name: str, value: float, bound: float) -> dict[str, Any]:
    return {"name": name, "value": value, "bound": bound, "reached": value <= bound}


def _show(report: dict[str, Any]) -> None:
    machine_, figures = report["machine"], report["figures"]
    console = Console(width=None if Console().is_terminal else 110)
    console.print(
        f"{machine_['cpu']}, {machine_['cores']} cores, load {machine_['load']} before; Redis {machine_['redis']}; "
        f"{figures['wake_ms']['count']} wakes, one at a time"
    )
    table = Table(title="How parents are woken", title_justify="left", title_style="bold")
    for name, justify in (("", "left"), ("measured", "right"), ("target", "right"), ("", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # rich names four words
    for target in report["targets"]:
        judged = "[green]reached[/green]" if target["reached"] else "[red]not reached[/red]"
        table.add_row(target["name"], f"{target['value']:g}", f"≤ {target['bound']:g}", judged)
    for agent in ("works", "leaves"):
        after = figures[agent]["told_all_after_s"]
        table.add_row(f"last child settled to the end of the parent that {agent}, s", f"{after:g}", "", "")
    console.print(table)


if __name__ == "__main__":
    main()

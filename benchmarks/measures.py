"""The measures. Each returns plain figures; nothing here judges them."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from common import Counters, percentiles

if TYPE_CHECKING:
    from collections.abc import Callable

    import redis.asyncio
    from sides import Ours, Side

STEP_BYTES = 1024  #: what a step adds to the conversation; the agent has the same number
HELP_RUNS = 5
HELP = "from outrider.orchestrator.cli.main import main; main()"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done of each."""

    tasks: int = 5000  #: in the backlog
    one_at_a_time: int = 200
    sleepers: int = 1000
    conversation: int = 2_000_000  #: bytes
    steps: int = 100


QUICK = Sizes(tasks=100, one_at_a_time=10, sleepers=20, conversation=100_000, steps=10)


async def one_at_a_time(sides: dict[str, Side], count: int, tick: Callable[[], None]) -> dict[str, dict[str, float]]:
    """Milliseconds from submit until the client knows the end. The sides take turns, so both see the same machine."""
    took: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(count):
        for name, side in sides.items():
            started = time.perf_counter()
            await side.one()
            took[name].append(time.perf_counter() - started)
        tick()
    return {name: percentiles(seconds) for name, seconds in took.items()}


async def backlog(side: Side, client: redis.asyncio.Redis, count: int, tick: Callable[[], None]) -> dict[str, Any]:
    """Queue so many while the worker is held, then let it go: submits and tasks per second, and Redis' share."""
    side.hold()
    before = await Counters.read(client)
    submits = await side.submit(count)
    tick()
    side.go()
    started = time.perf_counter()
    await side.all_done()
    seconds = time.perf_counter() - started
    tick()
    return {
        "submits_per_s": {way: round(rate, 1) for way, rate in submits.items()},
        "tasks_per_s": round(count / seconds, 1),
        "redis_per_task": (await Counters.read(client)).since(before, count),
    }


async def sleepers(side: Ours, count: int) -> dict[str, Any]:
    """So many agents that sleep for a second, in one process: seconds from the first submit to the last end."""
    started = time.perf_counter()
    await side.submit_in_flight(count)
    submitted = time.perf_counter() - started
    await side.all_done()
    return {
        "count": count,
        "submit_s": round(submitted, 2),
        "wall_s": round(time.perf_counter() - started, 2),
        "peak_rss_bytes": side.worker.peak_rss(),
    }


async def conversation(side: Ours, client: redis.asyncio.Redis, sizes: Sizes, messages: int) -> dict[str, Any]:
    """What steps of 1 KB cost in a long conversation: the difference between a task with such steps and one without."""
    message_bytes = sizes.conversation // messages
    state = {"messages_before": messages, "message_bytes": message_bytes}
    await side.one(state=state | {"messages_before": 1, "steps": sizes.steps})  # Redis gets to know the scripts
    start = await Counters.read(client)
    await side.one(state=state | {"steps": 0})
    middle = await Counters.read(client)
    await side.one(state=state | {"steps": sizes.steps})
    end = await Counters.read(client)
    return {
        "messages": messages,
        "message_bytes": message_bytes,
        "steps": sizes.steps,
        "bytes_in_per_step": round((end.bytes_in - middle.bytes_in - (middle.bytes_in - start.bytes_in)) / sizes.steps),
        "memory_ratio": round(
            (end.dataset - middle.dataset) / (messages * message_bytes + sizes.steps * STEP_BYTES), 2
        ),
    }


async def help_seconds() -> float:
    """Seconds that `outrider --help` takes, the median of a few runs."""
    return round(statistics.median([await asyncio.to_thread(_help) for _ in range(HELP_RUNS)]), 3)


def _help() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", HELP, "--help"], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - started

"""What breaks in a storm: processes are killed, frozen and told to stop, and Redis dies."""

import asyncio
import contextlib
import os
import signal
from pathlib import Path

from storm.ground import LEASE_SECONDS


async def blow(storm):
    """Break something again and again, one thing at a time; what is frozen thaws while the next thing breaks."""
    chance = storm.chance("weather")
    async with asyncio.TaskGroup() as beside:
        while await storm.rest(chance.expovariate(1 / storm.plan.between_seconds)):
            fault = chance.choices(list(FAULTS), list(FAULTS.values()))[0]
            await fault(storm, chance, beside)


async def kill(storm, chance, beside):
    """A worker is gone at once."""
    worker = storm.crew.victim(chance)
    storm.fault("worker killed")
    await _replaced(storm, beside, worker, lambda process: process.kill())


async def drain(storm, chance, beside):
    """A worker is told to stop."""
    worker = storm.crew.victim(chance)
    storm.fault("worker drained")
    await _replaced(storm, beside, worker, lambda process: process.terminate())


async def _replaced(storm, beside, worker, end):
    beside.create_task(storm.crew.replace(worker, end))


async def freeze(storm, chance, beside):
    """A worker's process stands still for longer than its lease, and goes on as if nothing was."""
    worker = storm.crew.victim(chance)
    executing = _executing(worker)
    if not executing:  # its children just ended
        return
    pid = chance.choice(executing)
    storm.fault("worker frozen")
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
        beside.create_task(_thaw(storm, pid, LEASE_SECONDS * chance.uniform(0.5, 2)))


async def _thaw(storm, pid, seconds):
    await storm.rest(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


def _executing(worker):
    """The process that runs agents: the worker itself, or its children."""
    pid = worker.process.pid
    if worker.kind == "threads":
        return [pid]
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in children.read_text().split()] if children.exists() else [pid]


async def lose_redis(storm, chance, _beside):
    """Redis dies, once or three times in a row, and comes back with what it acknowledged."""
    for _ in range(chance.choice((1, 1, 3))):
        storm.fault("Redis killed")
        await asyncio.to_thread(storm.server.kill)
        await asyncio.sleep(chance.choice((0, 0, 0, 1, LEASE_SECONDS + 1)))
        await asyncio.to_thread(storm.server.restart)


async def hang_redis(storm, chance, _beside):
    """Redis, the broker too, stands still, for longer than a lease or than anyone waits for an answer, and goes on.

    What was sent meanwhile is done then, also for those who gave up.
    """
    storm.fault("Redis frozen")
    os.kill(storm.server.pid, signal.SIGSTOP)
    await asyncio.sleep(LEASE_SECONDS * chance.uniform(0.3, 3))
    os.kill(storm.server.pid, signal.SIGCONT)


FAULTS = {kill: 4, freeze: 3, drain: 3, lose_redis: 2, hang_redis: 2}

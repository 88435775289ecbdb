"""A storm from its first task to the verdict."""

import asyncio
import time
from asyncio import FIRST_COMPLETED
from contextlib import suppress
from dataclasses import dataclass

from outrider.shared.statuses import EndedAs, Status
from outrider.shared.store_queries import CHUNK
from outrider.shared.thread_state import read_state
from storm import actors, provider, weather
from storm.checker import TERMINAL, violations
from storm.ground import ground

#: Act until the storm is over, beside those who submit.
ACTORS = (
    weather.blow,
    actors.cancel,
    actors.update,
    actors.answer,
    actors.watch,
    actors.double_bells,
    actors.drop_bells,
    actors.age,
)
LOOK_SECONDS = 0.3


@dataclass(frozen=True)
class Report:
    """What came of a storm."""

    tasks: int
    seconds: float
    faults: dict
    violations: list


def _to_nobody(_what, _done):
    """Tell nobody."""


async def brew(plan, folder, tell=_to_nobody):
    """Let it storm, wait until all is done in fair weather, and hold the history against the promises.

    `tell` hears what goes on and how many tasks there are.
    """
    started = time.monotonic()
    async with ground(plan, folder) as storm:
        submitting = asyncio.create_task(actors.submit(storm))
        await _rage(storm, submitting, tell)
        await _calm(storm, submitting, tell)
        await _read(storm)
        tasks, history = await storm.tasks(), storm.history()
    return Report(tasks, time.monotonic() - started, storm.faults, violations(history))


async def _rage(storm, submitting, tell):
    """Let all act until everything is submitted."""
    acting = [asyncio.create_task(actor(storm)) for actor in ACTORS]
    try:
        while (tasks := await storm.tasks()) < storm.plan.tasks:
            tell("storm", tasks)
            done, _ = await asyncio.wait([submitting, *acting], timeout=LOOK_SECONDS, return_when=FIRST_COMPLETED)
            for task in done:
                task.result()
                raise AssertionError("an actor left before the storm was over")
    finally:
        storm.over.set()
        await asyncio.gather(*acting)


async def _calm(storm, submitting, tell):
    """Wait until nothing moves any more, at most as long as the plan's patience; what is open then, is lost."""
    keys = storm.store.keys
    busy = [keys.status(status) for status in Status if status not in TERMINAL]
    until = time.monotonic() + storm.plan.patience_seconds
    while time.monotonic() < until:
        await actors.answer_all(storm)
        open_tasks = sum([await storm.redis.zcard(key) for key in busy])
        if submitting.done() and not open_tasks and not await storm.redis.exists(*held_by(keys)):
            break
        tell(f"calm, {open_tasks} open", storm.plan.tasks)
        await asyncio.sleep(LOOK_SECONDS)
    submitting.cancel()
    with suppress(asyncio.CancelledError):
        await submitting


def held_by(keys):
    """Where stands what somebody is still to deal with."""
    return keys.leases(), keys.ring_at(), keys.condemned()


async def _read(storm):
    """Write down how all stands at the end."""
    redis, keys = storm.redis, storm.store.keys
    for at in range(0, await redis.zcard(keys.tasks()), CHUNK):
        for task_id in await redis.zrange(keys.tasks(), at, at + CHUNK - 1):
            await _read_task(storm, task_id.decode())
    held = {"lease": keys.leases(), "bell": keys.ring_at()} | {f"slot of {a}": keys.slots(a) for a in actors.AGENTS}
    members = [f"{name} {one.decode()}" for name, key in held.items() for one in await redis.zrange(key, 0, -1)]
    removed = await storm.removed()
    ids = removed.union(*(storm.aged[task_id] for task_id in removed))
    async for key in redis.scan_iter(count=1000):
        members += [f"key {key.decode()}" for part in key.decode().replace("/", ":").split(":") if part in ids]
    storm.note("reader", "left", members=members)


async def _read_task(storm, task_id):
    task = await storm.store.get(task_id)
    events = await storm.store.events(task_id, "0-0", reader=storm.redis, count=100_000)
    storm.note(
        "reader",
        "record",
        **actors.facts(task),
        agent=task.agent,
        parent=task.parent_id,
        ancestors=task.ancestors,
        # Of one that paused the end is told by what came of its question.
        runs=[[run.run_id, run.status] for run in task.runs if run.ended_as is not EndedAs.PAUSED],
        graded={run.run_id: run.of_run for run in task.runs if run.of_run},
        stopped=task.stopped_at is not None,
    )
    storm.note("reader", "stream", task=task_id, events=[[event.type, event.run_id, event.data] for event in events])
    state = await read_state(storm.redis, storm.store.keys, task_id)
    messages = state.get("messages", [])
    notes = [note["id"] for one in messages if (note := one.additional_kwargs.get("outrider_notification"))]
    storm.note("reader", "state", task=task_id, notes=notes, shape=provider.shape(messages), done=state.get("done", []))

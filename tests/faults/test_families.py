"""Workers are killed, one after the other, while parents start children, rest and are woken: each is told once."""

import asyncio
import contextlib
import random

import pytest

import puppets
from outrider.shared.statuses import Status

AGENTS = ("swift", "swift_deep", "swift_graph")
ROUNDS = 6
SURVIVES = {"OUTRIDER_MAX_ATTEMPTS": "30"}
#: Events of a parent after one of which its worker is killed.
MOMENTS = ("run.claimed", "step", "tool.started", "inbox.arrived", "task.resting", "task.woken")


@pytest.mark.faults
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", range(2))
async def test_whatever_worker_is_killed_each_child_is_told_once(redis_url, namespace, seed):
    chance = random.Random(seed)  # noqa: S311 no secret
    parents = []
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(worker(redis_url, namespace)) for _ in range(2)]
        async with puppets.site(redis_url, namespace) as site:
            for _ in range(ROUNDS):
                new = [await site.parent(agent) for agent in AGENTS * 4]
                parents += new
                await first_of(site.until(chance.choice(new), moment) for moment in chance.sample(MOMENTS, 2))
                workers.pop(0).process.kill()
                workers.append(stack.enter_context(worker(redis_url, namespace)))
            for parent in parents:
                task = await site.o.wait(parent)
                assert (task.status, task.cursor, task.given, task.seq) == (Status.SUCCESS, 5, 5, 5), task
                children = await site.children(parent)
                assert len(children) == 5
                assert sorted(await site.notes(parent)) == sorted(children)


def worker(url, namespace):
    return puppets.worker(url, namespace, **puppets.QUICK, **SURVIVES)


async def first_of(waits):
    """Return when the first of these has come."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

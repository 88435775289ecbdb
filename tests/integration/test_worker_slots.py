"""No more runs of an agent at once than it has slots, on all workers together, whoever dies."""

import asyncio

from outrider.shared.settings import Settings
from outrider.worker.control import Stop
from outrider.worker.outcomes import Finished, Waits
from sites import Monitor, open_site

SLOTS = 2


async def full(bench):
    """Two runs at work and one that waits: their task ids, and the two under way."""
    first, second, third = [await bench.submit("bounded") for _ in range(3)]
    working = [asyncio.create_task(bench.runner.run(*one)) for one in (first, second)]
    for task_id, _ in (first, second):
        await bench.at(task_id, "bounded")
    assert await bench.runner.run(*third) == Waits()
    return [task_id for task_id, _ in (first, second, third)], working


async def test_the_end_of_a_run_rings_for_the_one_that_waits_and_no_sweeper_is_needed(bench):
    (first, second, third), working = await full(bench)
    await bench.open(first, "bounded")
    assert isinstance(await working[0], Finished)
    assert [bell.task_id for bell in bench.bells] == [third]
    await bench.open(third, "bounded")
    assert isinstance(await bench.runner.run(third, bench.bells[0].run_id), Finished)
    await bench.open(second, "bounded")
    await working[1]
    assert len(bench.bells) == 1


async def test_a_cancelled_run_rings_for_the_next_when_its_code_has_ended(bench):
    (first, second, third), working = await full(bench)
    await bench.store.cancel(first)
    bench.held.stop((await bench.store.get(first)).runs[0].run_id, Stop.CANCELLED)
    await working[0]
    assert [bell.task_id for bell in bench.bells] == [third]
    await bench.open(second, "bounded")
    await working[1]


async def test_one_that_was_cancelled_before_its_bell_was_answered_hands_its_slot_on(bench):
    (first, second, third), working = await full(bench)
    fourth = await bench.submit("bounded")
    assert await bench.runner.run(*fourth) == Waits()
    await bench.open(first, "bounded")
    await working[0]
    await bench.store.cancel(third)
    await bench.runner.run(third, bench.bells[0].run_id)
    assert [bell.task_id for bell in bench.bells] == [third, fourth[0]]
    await bench.open(second, "bounded")
    await working[1]


async def test_a_sweeper_rings_for_those_that_nobody_rang_for(bench):
    (first, second, third), working = await full(bench)
    await bench.open(second, "bounded")
    await working[1]
    bench.bells.clear()
    await bench.redis.zadd(bench.store.keys.slots("bounded"), {f"{third}/{(await bench.store.peek(third)).run_id}": 1})
    await bench.redis.zadd(bench.store.keys.slots("bounded"), {f"{third}/{(await bench.store.peek(third)).run_id}": -1})
    await bench.sweeper(bounded=SLOTS).sweep()
    assert [bell.task_id for bell in bench.bells] == [third]
    await bench.open(first, "bounded")
    await working[0]


def most_at_once(log):
    """How many were at work at once, by a log of who enters, leaves and is killed."""
    there, most = set(), 0
    for line in log:
        what, pid, *task_id = line.split()
        if what == "enters":
            there.add((pid, *task_id))
        elif what == "leaves":
            there.remove((pid, *task_id))
        else:
            there = {one for one in there if one[0] != pid}
        most = max(most, len(there))
    return most


async def test_never_more_than_the_slots_though_a_worker_is_killed(redis_url, broker_url, namespace, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    log = f"{namespace}:test:log"
    settings = Settings(redis_url=redis_url, broker_url=broker_url, namespace=namespace)
    async with open_site(settings) as site:
        with site.worker("-c", "8") as one, site.worker("-c", "8") as other, Monitor(site.app) as monitor:
            tasks = [await site.submit("bounded") for _ in range(20)]
            entered = [(await site.desk.redis.blpop(f"{log}:entered"))[1].decode().split() for _ in range(SLOTS)]
            for task_id, run_id in tasks:
                if task_id not in [there for _, there in entered]:
                    await site.desk.until(task_id, "run.waits")
                    await monitor.hears("task-retried", run_id)
            pid = entered[0][0]
            killed = next(worker for worker in (one, other) if worker.process.pid == int(pid))
            killed.process.kill()
            killed.process.wait()
            await site.desk.redis.rpush(log, f"killed {pid}")
            for task_id, _ in tasks:
                await site.desk.open(task_id, "bounded")
            ended = [await site.settled(task_id) for task_id, _ in tasks]
        assert [task.status for task in ended] == ["success"] * 20
        assert sum(task.attempt for task in ended) >= 1
        assert most_at_once([line.decode() for line in await site.desk.redis.lrange(log, 0, -1)]) == SLOTS
        assert await site.desk.redis.exists(site.desk.store.keys.slots("bounded")) == 0

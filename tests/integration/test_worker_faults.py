"""What real workers do when they are frozen, blocked, cancelled, told to stop, or left without Redis."""

import asyncio
import contextlib
import os
import signal

import pytest

from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.keys import Keys
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, Status
from outrider.shared.thread_state import read_state
from sites import Monitor, open_site

LEASE_SECONDS = 2
LOOK_SECONDS = 0.02
QUICK = {"OUTRIDER_LEASE_SECONDS": str(LEASE_SECONDS)}
POOLS = {"threads": ("-c", "8"), "prefork": ("-P", "prefork", "-c", "2")}


@pytest.fixture
async def site(redis_url, namespace, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    async with open_site(Settings(redis_url=redis_url, namespace=namespace)) as site:
        yield site


@pytest.fixture(params=POOLS)
def pool(request):
    """The options of a worker on each pool."""
    return POOLS[request.param]


async def told(site, task_id):
    return [event.type for event in await site.desk.events(task_id)]


async def shown(site, task_id):
    """The record as people see it: the lease of whoever has the run now is renewed meanwhile."""
    return (await site.desk.store.get(task_id)).to_json()


async def state(site, task_id):
    return await read_state(site.desk.redis, site.desk.store.keys, task_id)


async def bells(site):
    return await site.desk.redis.llen(f"{{{site.settings.namespace}}}:subagents")


async def asks_for_bells(site):
    """Return when a worker's request for a bell is open."""
    while True:
        clients = await site.desk.redis.client_list()
        if any((client["cmd"], client["flags"]) == ("brpop", "b") for client in clients):
            return
        await asyncio.sleep(LOOK_SECONDS)


async def taken(site):
    """Return when all bells are with workers."""
    while await bells(site):  # noqa: ASYNC110 other processes take them
        await asyncio.sleep(LOOK_SECONDS)


async def stopped(site, task_id):
    """Return the task when the code of its last run is known to have ended, which a record tells and no event."""
    while (task := await site.desk.store.get(task_id)).stopped_at is None:  # noqa: ASYNC110 other processes write it
        await asyncio.sleep(LOOK_SECONDS)
    return task


# --- frozen, blocked -------------------------------------------------------------------------------------------------


async def test_a_frozen_worker_that_comes_back_leaves_no_trace(site):
    with site.worker("-c", "4", "-Q", "subagents,first", **QUICK) as frozen:
        task_id, _ = await site.submit("diehard", queue="first")
        await site.desk.at(task_id, "first")
        with site.worker("-c", "4", "-Q", "first", **QUICK) as other:
            await other.says("ready")
            frozen.process.send_signal(signal.SIGSTOP)
            await site.desk.at(task_id, "second")  # its lease ran out, and the other one has it now
            before = await shown(site, task_id), await told(site, task_id)
            await site.desk.open(task_id, "first")
            frozen.process.send_signal(signal.SIGCONT)
            await frozen.says("NotOurs")
            assert await site.desk.did(task_id) == ["ClaimLost"]  # it was told to stop, and went on all the same
            after = await shown(site, task_id), await told(site, task_id)
            assert after == before
            # It works on at what it holds.
            mine, _ = await site.submit("compiled")
            assert (await site.settled(mine)).status is Status.SUCCESS
            await site.desk.open(task_id, "second")
            task = await site.settled(task_id)
    assert (task.status, task.attempt, task.result["done"]) == (Status.SUCCESS, 1, ["second", "after"])
    assert (await state(site, task_id))["done"] == ["second", "after"]
    assert await site.desk.did(task_id) == ["ClaimLost", "after"]
    assert (await site.desk.store.list(parent_id=task_id)).tasks == ()
    assert "custom" not in await told(site, task_id)


async def test_an_agent_that_blocks_its_loop_costs_its_neighbours_no_claim(site):
    with site.worker("-c", "4", **QUICK), site.worker("-c", "4", "-Q", "nothing", **QUICK) as sweeping:
        await sweeping.says("ready")
        neighbour, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(neighbour, "b")
        blocking, _ = await site.submit("blocks", str(1.5 * LEASE_SECONDS))
        await site.settled(blocking)
        await site.desk.open(neighbour, "b")
        await site.settled(neighbour)
    for task_id in (neighbour, blocking):
        assert (await site.desk.store.get(task_id)).attempt == 0
        assert "run.lost" not in await told(site, task_id)


async def test_a_bell_that_comes_while_an_agent_blocks_its_loop_is_passed_on(site):
    env = {"OUTRIDER_LEASE_SECONDS": "300", "OUTRIDER_RING_AGAIN_SECONDS": "300"}
    with site.worker("-c", "3", **env) as blocked:
        await blocked.says("ready")
        blocking, _ = await site.submit("blocks", "3600")
        while await site.desk.did(blocking) != ["blocks"]:
            await site.desk.until(blocking, "run.claimed")
        task_id, _ = await site.submit("compiled")
        await blocked.says("bell.passed_on")
        with site.worker("-c", "3", **env):
            assert (await site.settled(task_id)).status is Status.SUCCESS
        blocked.process.kill()


async def test_hosts_whose_clocks_differ_by_minutes_take_over_from_each_other(site, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\n"
        "wall, wall_ns, ahead = time.time, time.time_ns, int(os.environ['AHEAD_SECONDS'])\n"
        "time.time = lambda: wall() + ahead\n"
        "time.time_ns = lambda: wall_ns() + ahead * 10**9\n"
    )

    def host(ahead_seconds):
        return site.worker("-c", "4", AHEAD_SECONDS=str(ahead_seconds), PYTHONPATH=str(tmp_path), **QUICK)

    with host(600) as ahead:
        task_id, _ = await site.submit("compiled", state={"gates": ["b", "c"]})
        await site.desk.at(task_id, "b")
        with host(-600) as behind:
            await behind.says("ready")
            beside, _ = await site.submit("compiled")
            await site.settled(beside)  # both sweep
            assert (await site.desk.store.get(task_id)).attempt == 0
            ahead.process.kill()
            for gate in "bc":
                await site.desk.at(task_id, gate)
                await site.desk.open(task_id, gate)
            task = await site.settled(task_id)
    assert (task.status, task.attempt) == (Status.SUCCESS, 1)
    assert (await state(site, task_id))["done"] == ["a", "b", "c"]
    assert await site.desk.did(task_id) == ["a", "b", "b", "c"]


# --- cancelled -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("heard", [True, False], ids=["heard", "unheard"])
async def test_a_cancel_in_the_middle_of_a_model_call(site, pool, heard, monkeypatch):
    """By the control channel or, where a worker does not hear it, by its heartbeat."""
    with site.worker(*pool, **QUICK):
        chatting, _ = await site.submit("held_chat", "look around", limits={"timeout_seconds": 600})
        stubborn, _ = await site.submit("stubborn")
        await site.desk.at(chatting, "model")
        await site.desk.at(stubborn, "stubborn")
        if not heard:
            monkeypatch.setattr(Keys, "control", lambda _: "nobody-listens-here")
        for task_id in (chatting, stubborn):
            answer = await site.desk.store.cancel(task_id)
            assert (answer.outcome, answer.status) == ("cancelled", Status.CANCELLED)
        await site.desk.at(stubborn, "still")  # it swallowed the cancel, and is at work
        assert (await site.desk.store.get(stubborn)).stopped_at is None
        task = await stopped(site, chatting)
        assert (task.status, task.runs[0].ended_as, task.usage.turns) == (Status.CANCELLED, EndedAs.CANCELLED, 1)
        # What comes late changes nothing.
        await site.desk.open(chatting, "model")
        await site.desk.open(stubborn, "still")
        assert (await stopped(site, stubborn)).status is Status.CANCELLED
        after, _ = await site.submit("compiled")
        assert (await site.settled(after)).status is Status.SUCCESS
        again = await site.desk.store.cancel(after)
        assert (again.outcome, again.status) == ("already_finished", Status.SUCCESS)
    assert [message.type for message in (await state(site, chatting))["messages"]] == ["human"]
    assert "done" not in await state(site, stubborn)
    assert await site.desk.did(stubborn) == []


async def test_a_deep_tree_goes_in_one_call(site):
    with site.worker("-c", "8", **QUICK), site.worker("-c", "8", **QUICK):
        tree = []
        for _ in range(7):
            fields = {"parent_id": tree[-1], "ancestors": tuple(tree)} if tree else {}
            tree.append((await site.submit("compiled", state={"gates": ["b"]}, **fields))[0])
        for task_id in tree:
            await site.desk.at(task_id, "b")
        await site.desk.store.cancel(tree[0])
        tasks = [await stopped(site, task_id) for task_id in tree]
    assert {task.status for task in tasks} == {Status.CANCELLED}
    assert [await site.desk.did(task_id) for task_id in tree] == [["a", "b"]] * len(tree)


async def test_a_task_that_is_cancelled_while_nobody_works_is_never_begun(site):
    task_id, _ = await site.submit("compiled")
    await site.desk.store.cancel(task_id)
    with site.worker("-c", "1"):
        after, _ = await site.submit("compiled")
        await site.settled(after)
    assert await site.desk.did(task_id) == []


async def test_a_task_of_a_killed_worker_that_is_cancelled_comes_to_rest(site):
    with site.worker("-c", "1", **QUICK) as first:
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        first.process.kill()
        first.process.wait()
    assert (await site.desk.store.cancel(task_id)).outcome == "cancelled"
    with site.worker("-c", "1", **QUICK):
        assert (await stopped(site, task_id)).status is Status.CANCELLED
    assert not await site.desk.redis.exists(site.desk.store.keys.leases())
    assert await site.desk.did(task_id) == ["a", "b"]


# --- told to stop ----------------------------------------------------------------------------------------------------


async def test_what_is_given_back_is_retried_in_the_eyes_of_monitors(site, pool):
    with Monitor(site.app) as monitor, site.worker(*pool) as worker:
        task_id, run_id = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        worker.process.send_signal(signal.SIGTERM)
        await worker.says("worker.drains")
        await site.desk.open(task_id, "b")
        await monitor.hears("task-retried", run_id)
        assert await worker.ends() == 0
    assert await bells(site) == 1  # it was rung, and the worker did not take it along
    with site.worker(*pool):
        task = await site.settled(task_id)
    assert (task.status, task.attempt, [run.attempt for run in task.runs]) == (Status.SUCCESS, 0, [0])
    assert await site.desk.did(task_id) == ["a", "b", "c"]


async def test_a_bell_that_was_taken_and_not_begun_is_rung_again(site):
    with site.worker("-P", "prefork", "-c", "1", OUTRIDER_GRACE_SECONDS="1") as worker:
        first, _ = await site.submit("caches")
        child = int((await site.settled(first)).result["done"][0])
        await asks_for_bells(site)
        os.kill(child, signal.SIGSTOP)  # it takes nothing that Celery gives it
        task_id, _ = await site.submit("compiled")
        await taken(site)
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ends() == 1
    assert await bells(site) == 1
    with site.worker("-c", "1"):
        assert (await site.settled(task_id)).status is Status.SUCCESS


async def test_a_bell_that_comes_as_a_worker_is_told_to_stop_is_not_lost(site, pool):
    with site.worker(*pool) as worker:
        await asks_for_bells(site)
        worker.process.send_signal(signal.SIGSTOP)  # Redis hands the bell to the request that is open
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        worker.process.send_signal(signal.SIGTERM)
        worker.process.send_signal(signal.SIGCONT)
        await site.desk.open(task_id, "b")
        assert await worker.ends() == 0
    if (await site.desk.store.get(task_id)).status is not Status.SUCCESS:
        assert await bells(site) == 1


@pytest.mark.parametrize("how", ["grace", "second signal"])
async def test_prefork_children_that_do_not_stop_are_left_behind(site, how):
    grace = "0.5" if how == "grace" else "60"
    with site.worker(*POOLS["prefork"], OUTRIDER_GRACE_SECONDS=grace) as worker:
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        worker.process.send_signal(signal.SIGTERM)
        if how == "second signal":
            await worker.says("worker.drains")
            worker.process.send_signal(signal.SIGTERM)
        assert await worker.ends() == 1  # also its children: they hold its output open
    assert (await site.desk.store.get(task_id)).status is Status.RUNNING


@pytest.mark.slow
async def test_a_rolling_restart_under_load_loses_and_repeats_nothing(site, pool):
    with contextlib.ExitStack() as stack:
        up = [stack.enter_context(site.worker(*pool)) for _ in range(2)]
        for worker in up:
            await worker.says("ready")
        gated, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(gated, "b")
        holder = (await site.desk.store.get(gated)).runs[-1].worker
        ids = []
        for worker in up:
            ids += [(await site.submit("paced"))[0] for _ in range(12)]
            while not await site.desk.did(ids[-12]):  # some of them are at work
                await site.desk.until(ids[-12], "run.claimed")
            worker.process.send_signal(signal.SIGTERM)
            successor = stack.enter_context(site.worker(*pool))
            await successor.says("ready")
            if f"-{worker.process.pid}@" in holder:
                await worker.says("worker.drains")
                await site.desk.open(gated, "b")
            assert await worker.ends() == 0
        tasks = [await site.settled(task_id) for task_id in (gated, *ids)]
        assert await site.desk.did(gated) == list("abc")
        assert [await site.desk.did(task_id) for task_id in ids] == [list("abcde")] * len(ids)
    assert {(task.status, task.attempt, len(task.runs)) for task in tasks} == {(Status.SUCCESS, 0, 1)}
    assert (await told(site, gated)).count("run.given_back") == 1


# --- Redis is away ---------------------------------------------------------------------------------------------------


async def test_redis_away_for_longer_than_a_lease_loses_no_run(namespace, monkeypatch):
    with EmbeddedRedis() as server:
        monkeypatch.setenv("OUTRIDER_REDIS_URL", server.url)
        async with open_site(Settings(redis_url=server.url, namespace=namespace)) as site:
            with site.worker("-c", "4", **QUICK), site.worker("-c", "4", **QUICK) as other:
                await other.says("ready")
                task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
                await site.desk.at(task_id, "b")
                chat, _ = await site.submit("held_chat", "look around")
                await site.desk.at(chat, "model")
                await asyncio.to_thread(server.kill)
                await asyncio.sleep(1.5 * LEASE_SECONDS)  # this is the fault
                await asyncio.to_thread(server.restart)
                await site.desk.open(task_id, "b")
                await site.desk.open(chat, "model")
                for each in (task_id, chat):
                    task = await site.settled(each)
                    assert (task.status, task.attempt) == (Status.SUCCESS, 0)
                    assert "run.lost" not in await told(site, each)
                assert await site.desk.did(task_id) == ["a", "b", "c"]


async def test_a_restart_of_redis_while_all_is_idle_is_sat_out(namespace):
    with EmbeddedRedis() as server:
        async with open_site(Settings(redis_url=server.url, namespace=namespace)) as site:
            with site.worker("-c", "2") as worker:
                await worker.says("ready")
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.restart)
                task_id, _ = await site.submit("compiled")
                assert (await site.settled(task_id)).status is Status.SUCCESS
                revoked, _ = await site.submit("sleeper")
                while await site.desk.did(revoked) != ["started"]:
                    await site.desk.until(revoked, "run.claimed")
                await site.desk.store.cancel(revoked)  # heard: its channel is listened to again
                assert (await stopped(site, revoked)).status is Status.CANCELLED


async def test_a_primary_that_becomes_a_replica_for_a_while_is_sat_out(namespace):
    with EmbeddedRedis() as server:
        async with open_site(Settings(redis_url=server.url, namespace=namespace)) as site:
            with site.worker("-c", "2") as worker:
                await worker.says("ready")
                await site.desk.redis.replicaof("127.0.0.1", 1)
                await worker.says("Connection to broker lost")
                await site.desk.redis.replicaof("no", "one")
                task_id, _ = await site.submit("compiled")
                assert (await site.settled(task_id)).status is Status.SUCCESS


async def test_a_run_longer_than_any_visibility_timeout_is_not_delivered_again(site):
    """On Redis a bell is gone when it was heard: nothing is left that the broker could deliver again."""
    with site.worker("-c", "1"):
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        kept = [key.decode() async for key in site.desk.redis.scan_iter(f"*{site.settings.namespace}*unacked*")]
        assert kept == []
        await site.desk.open(task_id, "b")
        await site.settled(task_id)
    assert (await told(site, task_id)).count("run.claimed") == 1


async def test_a_worker_that_is_told_to_stop_as_redis_dies_stops(namespace):
    with EmbeddedRedis() as server:
        async with open_site(Settings(redis_url=server.url, namespace=namespace)) as site:
            with site.worker("-c", "2", OUTRIDER_GRACE_SECONDS="5") as worker:
                await worker.says("ready")
                await asks_for_bells(site)
                worker.process.send_signal(signal.SIGSTOP)
                await asyncio.to_thread(server.kill)
                worker.process.send_signal(signal.SIGTERM)
                worker.process.send_signal(signal.SIGCONT)
                assert await worker.ends() in {0, 1}
                assert not [line for line in worker.lines if "Traceback" in line]


async def test_a_worker_that_is_told_to_stop_gives_its_runs_back_though_its_broker_hangs(
    redis_url, namespace, monkeypatch
):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    with EmbeddedRedis() as broker:
        async with open_site(Settings(redis_url=redis_url, broker_url=broker.url, namespace=namespace)) as site:
            with site.worker("-c", "4") as worker:
                task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
                await site.desk.at(task_id, "b")
                os.kill(broker.pid, signal.SIGSTOP)
                worker.process.send_signal(signal.SIGTERM)
                await worker.says("worker.drains")
                await site.desk.open(task_id, "b")
                await site.desk.until(task_id, "run.given_back")
                os.kill(broker.pid, signal.SIGCONT)

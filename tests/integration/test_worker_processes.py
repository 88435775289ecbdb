"""Real workers: Celery, threads and children, signals, and what is lost and found."""

import asyncio
import json
import os
import signal
import socket

import pytest

import workers
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared import catalogue
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, Phase, Status
from outrider.worker.failed_starts import FAILED_STARTS
from sites import Monitor, open_site

SECRET = "sk-SECRET-in-a-description"


@pytest.fixture
async def site(redis_url, broker_url, namespace, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    async with open_site(Settings(redis_url=redis_url, broker_url=broker_url, namespace=namespace)) as site:
        yield site


async def test_tasks_on_threads_from_start_to_stop(site):
    with Monitor(site.app) as monitor, site.worker("-c", "4", "-Q", "subagents,slow") as worker:
        first, first_run = await site.submit("compiled", SECRET)
        assert (await site.settled(first)).result["done"] == ["a", "b", "c"]
        # a broken agent beside working ones, an agent that fails, one that ends its process' loop
        broken, broken_run = await site.submit("broken")
        assert (await site.settled(broken)).error.type == "BrokenAgent"
        failed, failed_run = await site.submit("raises", "value")
        assert (await site.settled(failed)).error.type == "ValueError"
        left, _ = await site.submit("raises", "exit")
        assert (await site.settled(left)).error.type == "SystemExit"
        asked, asked_run = await site.submit("asks")
        await site.desk.until(asked, "task.waiting")
        # a doubled bell, and one of a task that is not there
        await site.ring(first, first_run)
        await site.ring("no-such-task", "no-such-run")
        # stopped by Celery's own command, on threads; the worker goes on
        revoked, revoked_run = await site.submit("sleeper")
        while await site.desk.did(revoked) != ["started"]:
            await site.desk.until(revoked, "run.claimed")
        site.app.control.revoke(revoked_run, terminate=True)
        await site.desk.until(revoked, "task.cancelled")
        await monitor.hears("task-revoked", revoked_run)
        after, after_run = await site.submit("compiled")
        assert (await site.settled(after)).status is Status.SUCCESS
        assert (await catalogue.read(site.desk.redis, site.desk.store.keys)).queues == {"subagents", "slow"}
        # cancelled while it waited in the queue: never called
        pending, pending_run = await site.desk.submit("compiled")
        await site.desk.store.cancel(pending)
        await site.ring(pending, pending_run)
        await monitor.hears("task-revoked", pending_run)
        assert await site.desk.did(pending) == []
        for run_id, last in ((after_run, "succeeded"), (asked_run, "succeeded"), (failed_run, "failed")):
            await monitor.hears(f"task-{last}", run_id)
        worker.process.send_signal(signal.SIGTERM)
        assert await worker.ends() == 0
    assert (await catalogue.read(site.desk.redis, site.desk.store.keys)).queues == set(), "it has gone"
    assert (await site.desk.store.get(revoked)).status is Status.CANCELLED
    assert (await site.desk.store.get(first)).status is Status.SUCCESS
    # secrets: neither in the monitor's events nor in logs
    assert "task-failed" in monitor.of(broken_run)
    for seen in (json.dumps(monitor.events, default=str), "\n".join(worker.lines)):
        assert first in seen or first_run in seen
        assert "SECRET" not in seen


async def test_what_a_killed_worker_leaves_another_finishes_once(site):
    with site.worker("-c", "4") as first:
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        first.process.kill()
        first.process.wait()
    with site.worker("-c", "4"):
        events = await site.desk.until(task_id, "run.claimed", 2)
        await site.desk.open(task_id, "b")
        task = await site.settled(task_id)
        assert (task.status, task.attempt, task.runs[0].attempt) == (Status.SUCCESS, 1, 1)
        assert "run.lost" in [event.type for event in events]
        # `a` had its checkpoint; `b` was at work and began again
        assert await site.desk.did(task_id) == ["a", "b", "b", "c"]
        told = [event.type for event in await site.desk.events(task_id)]
        assert told.count("task.settled") == 1


async def test_an_agent_that_kills_its_worker_is_given_up(site):
    task_id, _ = await site.submit("raises", "kill")
    with site.worker("-c", "1", OUTRIDER_MAX_ATTEMPTS="1") as worker:
        assert await worker.ends() == -signal.SIGKILL
    with site.worker("-c", "1", OUTRIDER_MAX_ATTEMPTS="1"):
        task = await site.settled(task_id)
    assert (task.status, task.error.type, task.runs[0].ended_as) == (Status.ERROR, "WorkerLost", EndedAs.LOST)


async def test_sigterm_gives_work_back_and_another_worker_goes_on(site):
    with site.worker("-c", "2") as first:
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        first.process.send_signal(signal.SIGTERM)
        await first.says("worker.drains")
        await site.desk.open(task_id, "b")
        assert await first.ends() == 0
    task = await site.desk.store.get(task_id)
    assert (task.status, task.phase, task.attempt) == (Status.PENDING, Phase.QUEUED, 0)
    with site.worker("-c", "2"):
        assert (await site.settled(task_id)).status is Status.SUCCESS
    assert await site.desk.did(task_id) == ["a", "b", "c"]


@pytest.mark.parametrize("how", ["grace", "second signal", "shutdown command"])
async def test_what_does_not_stop_is_left_behind(site, how):
    grace = "60" if how == "second signal" else "0.5"
    with site.worker("-c", "2", OUTRIDER_GRACE_SECONDS=grace) as first:
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        if how == "shutdown command":  # Flower's button
            site.app.control.shutdown()
        else:
            first.process.send_signal(signal.SIGTERM)
        if how == "second signal":
            await first.says("worker.drains")
            first.process.send_signal(signal.SIGTERM)
        assert await first.ends() == 1
    # Nothing was written in haste: the lease does the rest, as after any loss.
    assert (await site.desk.store.get(task_id)).status is Status.RUNNING


async def test_prefork_runs_in_one_child_with_one_loop_and_drains(site):
    with site.worker("-P", "prefork", "-c", "1", "-Q", "subagents,parents") as worker:
        pids = set()
        for _ in range(3):
            task_id, _ = await site.submit("caches")
            task = await site.settled(task_id)
            assert task.status is Status.SUCCESS
            pids.update(task.result["done"])
            assert task.runs[0].worker == f"outrider-{worker.process.pid}@{socket.gethostname()}"
        assert len(pids) == 1
        assert pids != {str(worker.process.pid)}
        assert (await catalogue.read(site.desk.redis, site.desk.store.keys)).queues == {"subagents", "parents"}
        cancelled, run_id = await site.submit("sleeper")
        while await site.desk.did(cancelled) != ["started"]:
            await site.desk.until(cancelled, "run.claimed")
        site.app.control.terminate(run_id)
        await site.desk.until(cancelled, "task.cancelled")
        task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
        await site.desk.at(task_id, "b")
        worker.process.send_signal(signal.SIGTERM)
        await worker.says("worker.drains")
        await site.desk.open(task_id, "b")
        await site.desk.until(task_id, "run.given_back")
        assert await worker.ends() == 0
    assert (await catalogue.read(site.desk.redis, site.desk.store.keys)).queues == set(), "it has gone"
    assert await site.desk.did(task_id) == ["a", "b"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids.pop()), 0)


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({"OUTRIDER_CONFIG": "no-such.json"}, "no no-such.json in"),
        ({"OUTRIDER_LEASE_SECONDS": "1", "OUTRIDER_HEARTBEAT_SECONDS": "1"}, "must be at least three times"),
    ],
)
async def test_a_bad_start_is_one_line(site, env, said):
    with site.worker(**env) as worker:
        assert await worker.ends() == 1
    assert [line for line in worker.lines if line.startswith("outrider: ") and said in line]
    assert not [line for line in worker.lines if "Traceback" in line]


async def test_a_restart_of_redis_is_sat_out(namespace, monkeypatch):
    with EmbeddedRedis() as server:
        monkeypatch.setenv("OUTRIDER_REDIS_URL", server.url)
        async with open_site(Settings(redis_url=server.url, namespace=namespace)) as site:
            with site.worker("-c", "4"):
                task_id, _ = await site.submit("compiled", state={"gates": ["b"]})
                await site.desk.at(task_id, "b")
                for _ in range(3):
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.restart)
                await site.desk.open(task_id, "b")
                assert (await site.settled(task_id)).status is Status.SUCCESS
                after, _ = await site.submit("compiled")
                assert (await site.settled(after)).status is Status.SUCCESS
            assert [event.type for event in await site.desk.events(task_id)].count("task.settled") == 1


@pytest.mark.parametrize("pool", ["threads", "prefork"])
async def test_a_worker_whose_loop_ends_says_why_and_leaves(redis_url, namespace, tmp_path, pool):
    (tmp_path / "agents.py").write_text("class Odd(BaseException): pass\nraise Odd('cannot go on')")
    (tmp_path / "langgraph.json").write_text('{"graphs": {"odd": "./agents.py:odd"}}')
    config = {"OUTRIDER_CONFIG": str(tmp_path / "langgraph.json")}
    with workers.WorkerProcess(redis_url, namespace, "-P", pool, "-c", "1", **config) as worker:
        assert await worker.ends() == 1
    said = [line for line in worker.lines if "its loop ended with Odd" in line]
    # Celery itself may give up where its first child ends early enough.
    assert 1 <= len(said) <= (1 if pool == "threads" else 1 + FAILED_STARTS)
    gave_up = "prefork children end before their agents are loaded" in "".join(worker.lines)
    assert gave_up == (len(said) == 1 + FAILED_STARTS)

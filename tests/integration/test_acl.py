"""The Redis users of docs/security.md: they are allowed what a worker, a client and Flower do, and no more."""

import asyncio
import re
import sys
from pathlib import Path

import pytest
import redis

import servers
from flowers import CLI, Flower
from outrider import Outrider
from workers import AGENTS, WorkerProcess

DOCUMENT = (Path(__file__).parents[2] / "docs" / "security.md").read_text(encoding="utf-8")
USERS = re.search(r"^```redis\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)[1].splitlines()
# The tests' agents note what they did under keys of their own, and one of them has a queue of its own.
MORE = ("ACL SETUSER outrider-worker ~outrider:test:*", "ACL SETUSER outrider-flower ~{outrider}:slow*")
PASSWORDS = dict(re.findall(r"SETUSER (\S+) .*? >(\S+)", "\n".join(USERS)))


@pytest.fixture
def guarded(tmp_path):
    with servers.GuardedRedis(tmp_path, acl=(*USERS, *MORE)) as server:
        yield server


def url_of(server, user):
    return f"redis://{user}:{PASSWORDS[user]}@127.0.0.1:{server.port}/0"


async def command(server, *words):
    """Run a command as the client's user; its exit code."""
    env = WorkerProcess(url_of(server, "outrider-client"), "outrider").environment
    process = await asyncio.create_subprocess_exec(*words, env=env, stdout=asyncio.subprocess.DEVNULL)
    return await process.wait()


async def test_each_part_is_allowed_what_it_does(guarded, monkeypatch):
    worker_url, client_url, flower_url = (
        url_of(guarded, f"outrider-{part}") for part in ("worker", "client", "flower")
    )
    monkeypatch.setenv("OUTRIDER_REDIS_URL", worker_url)
    admin = redis.Redis.from_url(guarded.url)
    with Flower(flower_url, "outrider") as flower, WorkerProcess(worker_url, "outrider", "-c", "4") as worker:
        await worker.says("ready")
        async with Outrider(redis_url=client_url, namespace="outrider", config=str(AGENTS)) as client:
            done = await client.submit("deep", "a description")
            assert (await client.wait(done.task_id)).status == "success"
            assert [event async for event in client.follow(done.task_id)]
            lead = await client.submit("chat", "hello")
            await client.wait(lead.task_id)
            child = await client.submit("sleeper", "x", parent=lead.task_id)
            await flower.shows(child.run_id, "STARTED")
            await flower.ask(f"/api/task/revoke/{child.run_id}?terminate=true", "POST")
            assert (await client.wait(child.task_id)).status == "cancelled"
            assert len((await client.list()).tasks) == 3
        await flower.knows_workers()
        assert (await flower.ask("/broker"))[0] == 200
        assert await command(guarded, sys.executable, "-m", "outrider.worker.health") == 0
        assert await command(guarded, *CLI, "show", done.task_id, "--transcript") == 0
        assert await command(guarded, *CLI, "doctor") in {0, 1}
        worker.process.terminate()
        assert await worker.ends() == 0
    refusals = [(entry["username"], entry["object"], entry["reason"]) for entry in admin.acl_log()]
    # Redis 6.2 takes all of CLIENT for dangerous: redis-py tells its name by it, and does without.
    assert [refusal for refusal in refusals if refusal[1] != "client"] == []
    records = {
        user: refused(url_of(guarded, user), "HGETALL", f"{{outrider}}:task:{done.task_id}") for user in PASSWORDS
    }
    assert records == {"outrider-worker": False, "outrider-client": False, "outrider-flower": True}


@pytest.mark.parametrize("user", PASSWORDS)
def test_none_is_allowed_more(guarded, user):
    url = url_of(guarded, user)
    for words in (
        ("GET", "{another}:tasks"),
        ("PUBLISH", "{another}:control", "x"),
        ("KEYS", "*"),
        ("SCAN", "0"),
        ("FLUSHALL",),
        ("CONFIG", "GET", "*"),
        ("ACL", "LIST"),
        ("EVAL", "return redis.call('GET', '{another}:tasks')", "0"),
    ):
        assert refused(url, *words), words


def refused(url, *words):
    with redis.Redis.from_url(url) as client:
        try:
            client.execute_command(*words)
        except redis.exceptions.ResponseError as error:
            return bool(re.search(r"NOPERM|no permissions|can't access", str(error)))
        return False

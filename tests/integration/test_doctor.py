"""`outrider doctor` on real servers: what it says, and its exit codes."""

import asyncio
import json
import os
import pty
import subprocess

import pytest
from redis import Redis

from flowers import CLI
from outrider import Outrider
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.settings import Settings
from workers import AGENTS, WorkerProcess

BROKEN = {"retried", "broken", "missing"}


async def doctor(redis_url, namespace, *args, code, **env):
    """The verb's stdout and stderr."""
    asked = await asyncio.create_subprocess_exec(
        *CLI,
        "doctor",
        *args,
        env={**os.environ, "OUTRIDER_REDIS_URL": redis_url, "OUTRIDER_NAMESPACE": namespace, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asked.communicate()
    assert asked.returncode == code, err
    return out.decode(), err.decode()


async def test_without_a_worker_one_thing_is_wrong(redis_url, namespace):
    out, _ = await doctor(redis_url, namespace, "--json", code=1)
    report = json.loads(out)
    assert report["ok"] is False
    assert [finding["what"] for finding in report["findings"]] == ["no worker is online: tasks stay pending"]
    assert report["facts"]["workers"] == []


async def test_workers_queues_agents_and_tasks_are_told(redis_url, broker_url, namespace):
    args = ("-c", "7", "-Q", "subagents,parents,graders,slow")
    broker = {"OUTRIDER_BROKER_URL": broker_url}
    settings = Settings(redis_url=redis_url, broker_url=broker_url, namespace=namespace, config=str(AGENTS))
    with WorkerProcess(redis_url, namespace, *args, **broker) as worker:
        await worker.says("ready")
        async with Outrider(settings) as client:
            await client.wait((await client.submit("compiled", "x")).task_id)
            lonely = await client.submit("compiled", "x", queue="lonely")
        out, _ = await doctor(redis_url, namespace, "--json", code=1, **broker)
        plain, _ = await doctor(redis_url, namespace, code=1, **broker)
    report = json.loads(out)
    facts = report["facts"]
    [seen] = facts["workers"]
    assert (seen["queues"], seen["concurrency"], seen["pool"]) == (
        ["graders", "parents", "slow", "subagents"],
        7,
        "threads",
    )
    queues = {queue["name"]: queue for queue in facts["queues"]}
    assert (queues["lonely"]["bells"], queues["lonely"]["workers"], queues["slow"]["workers"]) == (1, 0, 1)
    assert {agent["name"] for agent in facts["agents"] if agent["broken"]} == BROKEN
    assert facts["tasks"]["oldest_pending"]["task_id"] == lonely.task_id
    assert facts["redis"]["append_only_file"] is True
    found = [finding["what"] for finding in report["findings"]]
    assert "no worker serves the queue lonely, where runs wait" in found
    assert len(found) == 1 + len(BROKEN)
    assert all(finding["remedy"] for finding in report["findings"])
    lines = [line.split("\t") for line in plain.splitlines()]
    assert [
        "error",
        "no worker serves the queue lonely, where runs wait",
        "start one: outrider worker -Q lonely",
    ] in lines
    assert lines[-1] == ["wrong", "4 findings"]
    assert "\x1b" not in plain


async def test_all_is_well(redis_url, namespace, tmp_path):
    (tmp_path / "agents.py").write_text(
        "from langgraph.graph import START, MessagesState, StateGraph\n"
        "echo = StateGraph(MessagesState).add_node('echo', lambda state: {}).add_edge(START, 'echo').compile()\n"
    )
    (tmp_path / "langgraph.json").write_text('{"graphs": {"echo": "./agents.py:echo"}}')
    with WorkerProcess(redis_url, namespace, OUTRIDER_CONFIG=str(tmp_path / "langgraph.json")) as worker:
        await worker.says("ready")
        out, _ = await doctor(redis_url, namespace, code=0)
        assert out.splitlines()[-1] == "ok\tnothing is wrong"
        main, side = pty.openpty()
        asked = await asyncio.create_subprocess_exec(
            *CLI,
            "doctor",
            env={**os.environ, "OUTRIDER_REDIS_URL": redis_url, "OUTRIDER_NAMESPACE": namespace, "TERM": "xterm"},
            stdout=side,
            stderr=side,
        )
        os.close(side)
        shown = await asyncio.to_thread(_read, main)
        assert await asked.wait() == 0
        assert "nothing is wrong" in shown
        assert "\t" not in shown


def _read(descriptor):
    parts = []
    try:
        while part := os.read(descriptor, 4096):
            parts.append(part)
    except OSError:  # the other end was closed
        pass
    os.close(descriptor)
    return b"".join(parts).decode()


async def test_a_redis_that_loses_is_found_by_doctor_and_by_the_workers_start(namespace):
    with EmbeddedRedis(appendonly=False) as server:
        with Redis.from_url(server.url) as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        with WorkerProcess(server.url, namespace) as worker:
            await worker.says("check.finding")
            await worker.says("maxmemory-policy")
            await worker.says("append-only")
            out, _ = await doctor(server.url, namespace, "--json", code=1)
    found = " ".join(finding["what"] for finding in json.loads(out)["findings"])
    assert "append-only" in found
    assert "allkeys-lru" in found


async def test_a_redis_that_does_not_tell_of_itself_is_a_finding(namespace):
    with EmbeddedRedis() as server:
        with Redis.from_url(server.url) as client:
            client.execute_command("ACL", "SETUSER", "ada", "on", ">hush", "~*", "&*", "+@all", "-info")
        url = server.url.replace("//", "//ada:hush@")
        out, _ = await doctor(url, namespace, "--json", code=1)
        plain, _ = await doctor(url, namespace, code=1)
    report = json.loads(out)
    assert report["findings"][0]["remedy"] == "ACL SETUSER NAME +info"
    assert report["facts"]["redis"]["append_only_file"] is None
    assert "hush" not in out + plain


async def test_a_broker_out_of_reach_is_a_finding(redis_url, namespace):
    out, _ = await doctor(redis_url, namespace, "--json", code=1, OUTRIDER_BROKER_URL="redis://user:hush@127.0.0.1:1/0")
    report = json.loads(out)
    [finding] = report["findings"]
    assert "cannot reach the broker at redis://user:***@127.0.0.1:1/0" in finding["what"]
    assert report["facts"]["broker"]["reachable"] is False
    assert "hush" not in out


@pytest.mark.parametrize("args", [(), ("--json",)])
async def test_a_redis_out_of_reach_is_exit_code_3(namespace, args):
    out, err = await doctor("redis://user:hush@127.0.0.1:1/0", namespace, *args, code=3)
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "hush" not in err

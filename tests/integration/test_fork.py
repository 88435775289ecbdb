"""Forks on real workers: a child begins with its parent's conversation, and nothing of it goes through the queue."""

import asyncio
import base64
import json
import re
import statistics
import subprocess
import sys
import time

import pytest

import puppets
from families import DONE
from outrider import Outrider, OutriderError
from outrider.orchestrator.tools import NOT_FOR_FORKS, NOT_TOLD
from outrider.shared.backend import OutriderBackend
from outrider.shared.errors import BadInput, LimitReached, ParentClosed
from outrider.shared.fork import PREAMBLE
from outrider.shared.settings import Settings
from outrider.shared.statuses import Status
from outrider.shared.tree_files import tree_namespace
from puppets import called, started
from workers import AGENTS as AGENTS_FILE
from workers import bench

CLI = "from outrider.orchestrator.cli.main import main; main()"


async def fork(site, parent, text="brief", agent="agent", **fields):
    return (await site.o.submit(agent, text, parent=parent, mode="fork", **fields)).task_id


def said(read):
    """What a model reads, by type and text."""
    return [(message["type"], message["content"]) for message in read.messages]


async def test_a_child_reads_the_conversation_and_then_its_own_brief_alone(site, parent):
    await site.hold(parent, "look b", "look c")
    looks = [called("look", where=where) for where in "abc"]
    await site.let_call(parent, *looks)
    await site.saved(parent, "seen a")
    children = [await fork(site, parent, f"brief {at}") for at in range(2)]
    for at, child in enumerate(children):
        # Three calls, one answered: neither calls nor results go along.
        assert said(await site.read(child)) == [("human", "lead"), ("human", PREAMBLE), ("human", f"brief {at}")]
    task = await site.o.get(children[0])
    assert (task.mode, task.to_json()["mode"], task.parent_id) == ("fork", "fork", parent)
    for child in children:
        await site.say(child, "done")
        assert (await site.o.wait(child)).result == "done"
    await site.answer(parent, "look b")
    await site.answer(parent, "look c")
    before = await site.read(parent)
    later = await fork(site, parent, "later")
    read = await site.read(later)
    assert [message["id"] for message in read.messages[: len(before.messages)]] == [m["id"] for m in before.messages]
    assert said(read)[len(before.messages) :] == [("human", PREAMBLE), ("human", "later")]


async def test_each_attempt_begins_with_the_same_and_the_conversation_goes_on_from_there(site, parent, place):
    child = await fork(site, parent, queue="here")
    await site.hold(child, "opened")
    with puppets.worker(*place, "-Q", "here", OUTRIDER_LEASE_SECONDS="1.5", OUTRIDER_HEARTBEAT_SECONDS="0.3") as doomed:
        await site.pop(child, "opened")
        doomed.process.kill()
    await site.release(child, "opened")
    with puppets.worker(*place, "-Q", "here", OUTRIDER_LEASE_SECONDS="1.5", OUTRIDER_HEARTBEAT_SECONDS="0.3"):
        read = await site.read(child)
        assert said(read) == [("human", "lead"), ("human", PREAMBLE), ("human", "brief")]
        read = await site.call(child, called("look", where="there"))
        assert read.results == ["seen there"]
        await site.say(child)
        assert (await site.o.wait(child)).attempt == 1


async def test_a_snapshot_goes_when_nobody_is_to_begin_with_it_any_more(site, parent):
    key = site.store.keys.snapshots(parent)
    first, second = await fork(site, parent), await fork(site, parent, queue="nobody")
    await site.read(first)
    await site.say(first)
    await site.o.wait(first)
    assert await site.redis.hget(key, "runs") == b"1"
    await site.o.cancel(second)
    updated = await site.store.update(second, {"text": "after all"})
    facts = await site.store.facts(second)
    held = await site.store.claim(facts, updated.run_id, worker="test", lease_ms=60_000)
    assert (len(held.snapshot), held.input["text"]) == (1, "brief\n\nafter all")
    await site.store.settle(held.claim, DONE)
    assert not await site.redis.exists(key)


async def test_a_fork_needs_a_parent_with_a_conversation_and_an_agent_that_takes_one(site, parent):
    unread = await site.parent("agent", queue="nobody")
    wrong = [
        (BadInput, "a fork needs a parent", {"agent": "agent", "parent": None}),
        (BadInput, "'wordless' has no messages", {"agent": "wordless", "parent": parent}),
        (BadInput, "no conversation yet", {"agent": "agent", "parent": unread}),
        (ParentClosed, "there is no such task", {"agent": "agent", "parent": "unknown"}),
        (BadInput, "mode 'copy' must be 'isolated' or 'fork'", {"agent": "agent", "parent": parent, "mode": "copy"}),
    ]
    for kind, told, fields in wrong:
        with pytest.raises(kind, match=told) as refused:
            await site.o.submit(**{"text": "brief", "mode": "fork", **fields})
        assert isinstance(refused.value, OutriderError)
    await site.o.cancel(unread)
    assert await site.children(parent) == []


async def test_a_fork_may_start_no_tasks_unless_its_limits_allow(site, parent):
    barred, free = await fork(site, parent), await fork(site, parent, limits={"max_children": 1})
    for child in barred, free:
        await site.read(child)
    with pytest.raises(ParentClosed, match=r"limits\.max_children = 0"):
        await site.o.submit("leaf", "now", parent=barred)
    read = await site.call(barred, started("now"))
    assert read.last == NOT_FOR_FORKS
    assert await site.children(barred) == []
    read = await site.call(free, started("now"), started("now"))
    assert sorted("Started task" in result for result in read.results) == [False, True]
    assert len(await site.children(free)) == 1


async def test_a_fork_of_a_fork_has_all_above_it_and_each_takes_what_its_own_limits_allow(site, parent):
    child = await fork(site, parent, "one", limits={"max_children": 1})
    above = await site.read(child)
    below = await fork(site, child, "two")
    assert said(await site.read(below)) == [*said(above), ("human", PREAMBLE), ("human", "two")]
    assert (await site.call(below, started("three"))).last == NOT_FOR_FORKS
    with pytest.raises(ParentClosed, match=r"limits\.max_children = 0"):
        await fork(site, below, "three")
    with pytest.raises(ParentClosed, match=r"limits\.max_children = 1"):
        await fork(site, child, "another")
    assert (await site.o.get(below)).parent_id == child
    await site.o.cancel(child)
    assert (await site.o.get(below)).status is Status.CANCELLED


async def test_levels_are_bounded_for_forks_and_what_is_below_them(site):
    parent = await site.parent("forker", limits={"max_depth": 2})
    await site.read(parent)
    child = await fork(site, parent, agent="forker", limits={"max_children": 2})
    await site.read(child)
    below = (await site.o.submit("forker", "isolated", parent=child)).task_id
    await site.read(below)
    refused = [await site.call(below, started("deeper", agent)) for agent in ("leaf", "forker")]
    assert ["limits.max_depth = 2" in read.last for read in refused] == [True, True]
    with pytest.raises(LimitReached, match=r"limits\.max_depth = 2"):
        await fork(site, below, "deeper", limits={"max_depth": 9})
    assert await site.children(below) == []
    await site.o.cancel(parent)


async def test_a_child_keeps_the_tools_and_the_prompt_of_its_parent_to_the_byte(site):
    parent = await site.parent("agent")
    mine = (await site.read(parent)).prefix
    child = await fork(site, parent)
    assert json.dumps((await site.read(child)).prefix) == json.dumps(mine)
    await site.o.cancel(parent)


async def used(redis, namespace):
    """What a namespace takes of the server's memory, the queues too."""
    names = [name async for name in redis.scan_iter(f"*{namespace}*")]
    return sum([await redis.memory_usage(name, 0) for name in names])


async def test_forks_share_their_snapshot_and_the_queue_carries_none_of_it(redis_server, namespace):
    settings = Settings(redis_url=redis_server.url, namespace=namespace, config=str(AGENTS_FILE))
    messages = [{"role": "user", "content": f"{at:2000}"} for at in range(1000)]
    async with bench(redis_server.url, namespace) as worker, Outrider(settings) as o:
        # In a context of its own: what is submitted here is submitted from outside the run.
        _, task = await asyncio.create_task(worker.do("chat", state={"messages": messages}))
        before = await used(worker.redis, namespace)
        for at in range(20):
            await o.submit("chat", f"brief {at}", parent=task.task_id, mode="fork")
            if at == 0:
                one = await used(worker.redis, namespace) - before
        assert one >= 2_000_000
        assert await used(worker.redis, namespace) - before <= 1.2 * one
        queues = [name async for name in worker.redis.scan_iter(f"*{namespace}*subagents", _type="list")]
        bells = [bell for name in queues for bell in await worker.redis.lrange(name, 0, -1)]
        assert len(bells) == 20
        assert max(map(len, bells)) < 2000


async def busy_ms(redis):
    """The time that this process and Redis have worked by now: what a machine does besides is not in it."""
    commands = await redis.info("commandstats")
    return time.process_time() * 1000 + sum(one["usec"] for one in commands.values()) / 1000


@pytest.mark.faults
async def test_a_fork_of_two_megabytes_is_submitted_within_a_tenth_of_a_second(redis_server, namespace):
    settings = Settings(redis_url=redis_server.url, namespace=namespace, config=str(AGENTS_FILE))
    messages = [{"role": "user", "content": f"{at:2000}"} for at in range(1000)]
    async with bench(redis_server.url, namespace) as worker, Outrider(settings) as o:
        _, task = await asyncio.create_task(worker.do("chat", state={"messages": messages}))
        took = []
        for at in range(11):
            before = await busy_ms(worker.redis)
            await o.submit("chat", f"brief {at}", parent=task.task_id, mode="fork")
            took.append(await busy_ms(worker.redis) - before)
        assert statistics.median(took) <= 100, took


async def test_files_of_the_parents_state_and_what_stands_in_them_are_the_childs(site):
    parent = await site.parent(
        "deep", state={"files": {"/large_tool_results/x": {"content": "all of it", "encoding": "utf-8"}}}
    )
    await site.read(parent)
    child = await fork(site, parent, agent="deep")
    await site.read(child)
    read = await site.call(child, called("read_file", file_path="/large_tool_results/x"))
    assert "all of it" in read.last
    without = await fork(site, parent, agent="deep", state={"files": None})
    await site.read(without)
    assert "all of it" in (await site.call(without, called("read_file", file_path="/large_tool_results/x"))).last
    bare = await fork(site, parent, agent="bare")
    await site.read(bare)
    await site.say(bare)
    assert (await site.o.wait(bare)).status is Status.SUCCESS
    await site.o.cancel(parent)


async def test_media_that_a_deep_agent_put_away_are_read_back_from_the_files_of_its_tree(site):
    whole = [image(f"{number:0300}") for number in range(3)]
    parent = await site.parent("album", state={"messages": [{"role": "user", "content": whole}]})
    await site.read(parent)
    assert (await site.call(parent, called("ls", path="/"))).messages[0]["content"] == whole
    kept = (await site.o.state(parent))["messages"][0].content
    names = [block["deepagents_blob"] for block in kept]
    files = OutriderBackend(namespace=lambda _: tree_namespace(parent), store=site.o.store)
    # One is gone, and one was written by somebody else.
    await files.adelete(f"/blobs/{names[1]}")
    await files.aupload_files([(f"/blobs/{names[2]}", b"no image")])
    child = await fork(site, parent, agent="bare")
    mark = {"type": "text", "text": "(image omitted)"}
    assert (await site.read(child)).messages[0]["content"] == [whole[0], mark, mark]
    alike = await fork(site, parent, agent="album")
    read, *lost = (await site.read(alike)).messages[0]["content"]
    assert read == whole[0]
    assert ["no longer available" in block["text"] for block in lost] == [True, True]
    await site.o.cancel(parent)


def image(text):
    return {"type": "image", "base64": base64.b64encode(text.encode()).decode(), "mime_type": "image/png"}


async def test_a_parent_forks_itself_by_its_tool_and_each_child_has_its_own_brief(site):
    parent = await site.parent("forker")
    await site.read(parent)
    before = await site.call(parent, called("look", where="here"))
    await site.call(parent, started("one", "forker"), started("two", "forker"), called("look", where="there"))
    briefs = []
    for child in await site.children(parent):
        read = await site.read(child)
        assert [message["id"] for message in read.messages[:-2]] == [message["id"] for message in before.messages]
        assert said(read)[-2] == ("human", PREAMBLE)
        briefs.append(said(read)[-1][1])
        assert json.dumps(read.prefix) == json.dumps(before.prefix)
        read = await site.call(child, started("three", "forker"), started("four", "leaf"))
        assert read.results == [NOT_FOR_FORKS] * 2
        assert await site.children(child) == []
        assert (await site.o.get(child)).mode == "fork"
    assert sorted(briefs) == ["one", "two"]
    await site.o.cancel(parent)


async def test_a_child_that_does_not_report_keeps_nobody_waiting(site):
    parent = await site.parent("forker")
    await site.read(parent)
    read = await site.call(parent, started("wait"))
    assert NOT_TOLD in read.last
    (child,) = await site.children(parent)
    await site.say(parent)
    assert (await site.o.wait(parent)).result == "done"
    await site.end(child)
    assert (await site.o.get(parent)).seq == 0


async def test_a_fork_of_a_parent_that_was_summed_up_reads_the_summary_and_what_it_stands_for(site):
    parent = await site.parent("summed")
    await site.read(parent)
    for at in range(4):
        before = await site.call(parent, called("look", where=f"{at}"))
    assert "(a summary of " in before.messages[0]["content"]
    assert len((await site.o.state(parent))["messages"]) > len(before.messages)
    await site.call(parent, started("by the tool", "summed"))
    (by_tool,) = await site.children(parent)
    inside = await site.read(by_tool)
    assert said(inside) == [*said(before), ("human", PREAMBLE), ("human", "by the tool")]
    path = re.search(r"/conversation_history/\S+\.md", before.messages[0]["content"])[0]
    read = await site.call(by_tool, called("read_file", file_path=path))
    assert "lead" in read.last
    await site.o.cancel(parent)


async def test_the_command_line_forks_a_task(site, place):
    parent = await site.parent("agent")
    await site.read(parent)
    url, namespace = place
    command = ["submit", "agent", "go on", "--parent", parent, "--fork", "--max-children", "2", "--json"]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CLI, *command],
        env={"OUTRIDER_REDIS_URL": url, "OUTRIDER_NAMESPACE": namespace, "OUTRIDER_CONFIG": str(puppets.CONFIG)},
        capture_output=True,
        text=True,
        check=True,
    )
    task = await site.o.get(json.loads(done.stdout)["task_id"])
    assert (task.mode, task.parent_id, task.limits.max_children) == ("fork", parent, 2)
    assert said(await site.read(task.task_id)) == [("human", "lead"), ("human", PREAMBLE), ("human", "go on")]
    await site.o.cancel(parent)

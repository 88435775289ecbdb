"""The inbox of a parent in a process of the user's own, on a real Redis: readers that die, stall and take over."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import aclosing

import pytest

from outrider import Outrider, connect
from outrider.orchestrator import waiting
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.errors import BadInput, InboxLost, UnknownTask
from outrider.shared.ids import new_token
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, RunStatus, Status
from outrider.shared.transitions import Ending, Facts

READER = """
import asyncio, sys
from outrider import Outrider

async def main():
    async with Outrider() as o:
        async for note in o.inbox("mine"):
            print(note.id, note.result, flush=True)
            if note.result in sys.argv[1:]:
                await asyncio.Event().wait()

asyncio.run(main())
"""


def settings_of(url, namespace, config, **more):
    return Settings.load(redis_url=url, broker_url="", namespace=namespace, config=config, **more)


@pytest.fixture
async def o(redis_url, namespace, config):
    async with Outrider(settings_of(redis_url, namespace, config)) as opened:
        await opened.register(task_id="mine")
        yield opened


@pytest.fixture
def waits(monkeypatch):
    """Events of which one is set for each blocking read that is under way."""
    begun = asyncio.Semaphore(0)
    read = waiting.Watch._read

    async def noted(self, task_id, after, *, block):
        asyncio.get_running_loop().call_soon(begun.release)
        return await read(self, task_id, after, block=block)

    monkeypatch.setattr(waiting.Watch, "_read", noted)
    return begun


async def end(o, *results):
    """Submit children that end at once with these results."""
    for result in results:
        task = await o.submit("agent", "go", parent="mine")
        facts = Facts.of(await o._session.store.peek(task.task_id))
        claimed = await o._session.store.claim(facts, task.run_id, worker="w", lease_ms=30_000)
        done = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result=json.dumps(result))
        assert await o._session.store.settle(claimed.claim, done)


async def read(inbox, count):
    return [(await anext(inbox)).result for _ in range(count)]


async def test_a_program_reads_what_its_children_told_and_what_they_will_tell(o, waits):
    await end(o, "one", "two")
    async with aclosing(o.inbox("mine")) as inbox:
        assert await read(inbox, 2) == ["one", "two"]
        coming = asyncio.create_task(anext(inbox))
        await waits.acquire()
        await end(o, "three")
        note = await coming
    assert (note.result, note.status, note.seq, note.open_children) == ("three", "success", 3, 0)
    assert note.id == f"{note.task_id}:{note.run_id}:success"
    assert "<result>three</result>" in note.text
    message = note.message()
    assert (message.id, message.text) == (note.id, note.text)
    assert message.additional_kwargs["outrider_notification"]["task_id"] == note.task_id


async def test_what_was_at_hand_when_reading_ended_comes_again_unless_it_was_acknowledged(o):
    await end(o, "one", "two", "three")
    async for note in o.inbox("mine"):
        assert note.result == "one"
        break
    async with aclosing(o.inbox("mine")) as inbox:
        assert await read(inbox, 2) == ["one", "two"]
    async with aclosing(o.inbox("mine")) as inbox:
        note = await anext(inbox)
        assert note.result == "two"
        await o.acknowledge("mine", note)
    async with aclosing(o.inbox("mine")) as inbox:
        assert await read(inbox, 1) == ["three"]


async def test_a_client_that_closes_leaves_the_inboxes_that_it_reads(o):
    await end(o, "one")
    async with Outrider(o.settings) as other:
        async for _ in other.inbox("mine"):
            break
    async with Outrider(o.settings) as other:
        kept = other.inbox("mine")
        await read(kept, 1)
    found = await o._session.store.read_inbox("mine", new_token(), "begin", lease_ms=30_000, done=0, count=1)
    assert [note.result for note in found.notes] == ["one"]
    await kept.aclose()


async def test_another_reader_stands_by_until_the_first_leaves(o, waits):
    await end(o, "one", "two")
    async with aclosing(o.inbox("mine")) as first:
        assert await read(first, 1) == ["one"]
        async with aclosing(o.inbox("mine")) as second:
            coming = asyncio.create_task(anext(second))
            await waits.acquire()
            assert not coming.done()
            assert await read(first, 1) == ["two"]
            await first.aclose()
            assert (await coming).result == "two"


async def test_a_reader_that_did_not_renew_learns_that_another_took_over(o):
    await end(o, "one", "two")
    async with aclosing(o.inbox("mine")) as first, aclosing(o.inbox("mine")) as second:
        assert await read(first, 1) == ["one"]
        # As if its loop had been blocked.
        await o._session.store.redis.hset(o._session.store.keys.task("mine"), "reader_until_ms", 1)
        assert await read(second, 1) == ["one"]
        with pytest.raises(InboxLost, match="the inbox of mine has another reader now"):
            await anext(first)
        assert await read(second, 1) == ["two"]


async def test_a_reader_renews_its_lease_while_the_body_works(redis_url, namespace, config):
    slow = settings_of(redis_url, namespace, config, lease_seconds=0.6, heartbeat_seconds=0.1)
    async with Outrider(slow) as o:
        await o.register(task_id="mine")
        await end(o, "one")
        async with aclosing(o.inbox("mine")) as inbox:
            assert await read(inbox, 1) == ["one"]
            key = o._session.store.keys.task("mine")
            before = until = int(await o._session.store.redis.hget(key, "reader_until_ms"))
            while until < before + 600:
                until = int(await o._session.store.redis.hget(key, "reader_until_ms"))


async def test_what_a_killed_program_did_not_deal_with_goes_to_the_next(o, redis_url, namespace, config):
    env = {name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")}
    env |= {"OUTRIDER_REDIS_URL": redis_url, "OUTRIDER_NAMESPACE": namespace, "OUTRIDER_CONFIG": config}
    env |= {"OUTRIDER_LEASE_SECONDS": "0.9", "OUTRIDER_HEARTBEAT_SECONDS": "0.2"}
    await end(o, "one", "two", "three")
    command = [sys.executable, "-W", "ignore", "-c", READER, "two"]
    process = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE)
    said = [(await process.stdout.readline()).decode().split() for _ in range(2)]
    assert [result for _, result in said] == ["one", "two"]
    process.kill()
    await process.wait()
    async with aclosing(o.inbox("mine")) as inbox:
        note = await anext(inbox)
        assert [note.id, note.result] == said[1]
        assert await read(inbox, 1) == ["three"]


async def test_reading_survives_a_restart_of_redis(namespace, config, waits):
    with EmbeddedRedis() as server:
        settings = settings_of(server.url, namespace, config)
        async with Outrider(settings) as o:
            await o.register(task_id="mine")
            await end(o, "one")
            async with aclosing(o.inbox("mine")) as inbox:
                assert await read(inbox, 1) == ["one"]
                coming = asyncio.create_task(anext(inbox))
                await waits.acquire()
                await asyncio.to_thread(server.restart)
                await end(o, "two")
                assert (await coming).result == "two"


async def test_it_ends_when_the_parent_is_cancelled_and_its_children_are(o, waits):
    await end(o, "one")
    child = await o.submit("agent", "go", parent="mine")
    async with aclosing(o.inbox("mine")) as inbox:
        assert await read(inbox, 1) == ["one"]
        rest = asyncio.create_task(anext(inbox, None))
        await waits.acquire()
        assert (await o.cancel("mine")).outcome == "cancelled"
        assert await rest is None
    assert (await o.get(child.task_id)).status is Status.CANCELLED
    assert [note async for note in o.inbox("mine")] == []


async def test_what_cannot_be_read_or_registered_is_refused(o):
    with pytest.raises(UnknownTask):
        await anext(o.inbox("nobody"))
    with pytest.raises(BadInput, match=r"parent '\.\./x' is not valid"):
        o.inbox("../x")
    task = await o.submit("agent", "go")
    with pytest.raises(BadInput, match="runs in workers"):
        await anext(o.inbox(task.task_id))
    with pytest.raises(BadInput, match="runs in workers"):
        await o.register(task_id=task.task_id)
    with pytest.raises(BadInput, match="home 'worker' must be 'external'"):
        await o.register(home="worker")
    with pytest.raises(BadInput, match="agent 'a b' must match"):
        await o.register("a b")
    with pytest.raises(BadInput, match="mine is an external parent"):
        await o.update("mine", "go on")


async def test_a_registered_parent_has_the_id_that_it_was_given_or_a_new_one(o):
    named = await o.register("lead", task_id="lead-1", title="My lead")
    assert (named.task_id, named.agent, named.title, named.home) == ("lead-1", "lead", "My lead", "external")
    assert (await o.register("other", task_id="lead-1")).agent == "lead"
    made = await o.register()
    assert (made.agent, made.title, made.status) == ("external", "external", "idle")
    assert {task.task_id for task in (await o.list(status="idle")).tasks} == {"mine", "lead-1", made.task_id}


async def test_sync_code_reads_it_too(o, redis_url, namespace, config):
    await end(o, "one", "two")
    got = []

    def reading():
        with connect(settings_of(redis_url, namespace, config)) as sync:
            parent = sync.register(task_id="mine")
            for note in sync.inbox(parent.task_id):
                got.append(note.result)
                if note.result == "two":
                    sync.acknowledge("mine", note)
                    break

    thread = threading.Thread(target=reading)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert got == ["one", "two"]
    await end(o, "three")
    async with aclosing(o.inbox("mine")) as inbox:
        assert await read(inbox, 1) == ["three"]

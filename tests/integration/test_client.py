"""The client on a real Redis: waiting and following, which blocking reads carry, also across a restart."""

import asyncio
import json
import threading

import pytest

from outrider import Outrider, OutriderError, connect
from outrider.orchestrator import waiting
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.errors import BadInput, RedisUnreachable, UnknownTask, WaitTimeout
from outrider.shared.records import Interrupt
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.transitions import Ending, Facts


class Worker:
    """Does by hand, through the store, what a worker process does with a task."""

    def __init__(self, outrider, task):
        self.store, self.task, self.facts = outrider._session.store, task, Facts(task.task_id, "agent")

    async def claim(self):
        claimed = await self.store.claim(self.facts, self.task.run_id, worker="w", lease_ms=30_000)
        self.held = claimed.claim

    async def emit(self, *events):
        assert await self.store.emit(self.held, events)

    async def finish(self, result="done"):
        ending = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result=json.dumps(result))
        assert await self.store.settle(self.held, ending)

    async def ask(self):
        ending = Ending(
            RunStatus.SUCCESS,
            EndedAs.PAUSED,
            Status.WAITING,
            task_phase=Phase.ASKING,
            interrupts=(Interrupt(id="q", value="which?"),),
        )
        assert await self.store.settle(self.held, ending)


@pytest.fixture
def settings(redis_url, namespace, config):
    return Settings.load(redis_url=redis_url, broker_url="", namespace=namespace, config=config)


@pytest.fixture
async def outrider(settings):
    async with Outrider(settings) as opened:
        yield opened


@pytest.fixture
def reading(monkeypatch):
    """An event that is set when a blocking read is under way: a wait has begun."""
    begun = asyncio.Event()
    read = waiting.Watch._read

    async def noted(self, task_id, after, *, block):
        asyncio.get_running_loop().call_soon(begun.set)
        return await read(self, task_id, after, block=block)

    monkeypatch.setattr(waiting.Watch, "_read", noted)
    return begun


async def test_a_bell_reaches_the_broker(outrider, real_redis, namespace):
    done = await outrider.submit("agent", "a secret errand")
    [queued] = await real_redis.lrange(f"{{{namespace}}}:subagents", 0, -1)
    bell = json.loads(queued)
    assert bell["headers"]["id"] == done.run_id
    assert done.task_id.encode() in queued
    assert b"errand" not in queued


async def test_wait_returns_the_whole_task_when_it_has_ended(outrider, reading):
    task = await outrider.submit("agent", "text")
    worker = Worker(outrider, task)
    waited = asyncio.create_task(outrider.wait(task.task_id))
    await reading.wait()
    await worker.claim()
    await worker.emit(("step", {"node": "model"}))
    assert not waited.done()
    await worker.finish({"answer": 42})
    ended = await waited
    assert (ended.status, ended.result, len(ended.runs)) == ("success", {"answer": 42}, 1)
    assert await outrider.wait(task.task_id, timeout=0) == ended


async def test_wait_returns_when_a_person_is_asked(outrider, reading):
    task = await outrider.submit("agent", "text")
    worker = Worker(outrider, task)
    waited = asyncio.create_task(outrider.wait(task.task_id))
    await reading.wait()
    await worker.claim()
    await worker.ask()
    asked = await waited
    assert (asked.status, asked.interrupts[0].value) == ("waiting", "which?")


async def test_a_wait_that_ends_leaves_the_task_alone(outrider):
    task = await outrider.submit("agent", "text")
    for timeout in (0, 0.01):
        with pytest.raises(WaitTimeout, match=f"task {task.task_id} is still pending after {timeout:g} s") as caught:
            await outrider.wait(task.task_id, timeout=timeout)
        assert isinstance(caught.value, TimeoutError)
    worker = Worker(outrider, task)
    await worker.claim()
    await worker.finish()
    assert (await outrider.wait(task.task_id)).result == "done"


async def test_cancel_wakes_a_wait(outrider, reading):
    task = await outrider.submit("agent", "text")
    waited = asyncio.create_task(outrider.wait(task.task_id))
    await reading.wait()
    await outrider.cancel(task.task_id)
    assert (await waited).status == "cancelled"


async def test_follow_gives_every_event_and_ends(outrider, reading):
    task = await outrider.submit("agent", "text")
    worker = Worker(outrider, task)
    await worker.claim()
    await worker.emit(("step", {"node": "one"}))
    seen = []

    async def follow():
        seen.extend([event async for event in outrider.follow(task.task_id)])

    following = asyncio.create_task(follow())
    await reading.wait()
    await worker.emit(("step", {"node": "two"}), ("step", {"node": "three"}))
    await worker.finish()
    await following
    steps = [event.data["node"] for event in seen if event.type == "step"]
    assert steps == ["one", "two", "three"]
    assert (seen[0].type, seen[-1].type) == ("task.submitted", "task.settled")
    later = [event async for event in outrider.follow(task.task_id, after=seen[2].id)]
    assert later == seen[3:]


async def test_more_events_than_one_read_gives_all_come(outrider):
    task = await outrider.submit("agent", "text")
    worker = Worker(outrider, task)
    await worker.claim()
    for start in range(0, 1200, 300):
        await worker.emit(*(("step", {"number": start + number}) for number in range(300)))
    await worker.finish()
    numbers = [event.data["number"] async for event in outrider.follow(task.task_id) if event.type == "step"]
    assert numbers == list(range(1200))


async def test_waiting_survives_restarts_of_redis(config):
    with EmbeddedRedis() as server:
        settings = Settings.load(redis_url=server.url, broker_url="", namespace="restart", config=config)
        async with Outrider(settings) as outrider:
            task = await outrider.submit("agent", "text")
            worker = Worker(outrider, task)
            waited = asyncio.create_task(outrider.wait(task.task_id))

            async def last():
                return [event.type async for event in outrider.follow(task.task_id)][-1]

            followed = asyncio.create_task(last())
            for _ in range(2):
                await asyncio.to_thread(server.restart)
            await worker.claim()
            await asyncio.to_thread(server.restart)
            await worker.finish()
            assert (await waited).status == "success"
            assert await followed == "task.settled"


async def test_redis_out_of_reach_is_told_at_once_without_the_password(config):
    with EmbeddedRedis() as server:
        url = server.url.replace("redis://", "redis://:hunter2@")
    async with Outrider(redis_url=url, config=config) as outrider:
        for call in (
            outrider.submit("agent", "text"),
            outrider.get("some-task"),
            outrider.list(),
            outrider.wait("some-task"),
            outrider.cancel("some-task"),
            outrider.state("some-task"),
            anext(outrider.follow("some-task")),
        ):
            with pytest.raises(RedisUnreachable, match=r"redis://:\*\*\*@127.0.0.1") as caught:
                await call
            assert "hunter2" not in str(caught.value)
            assert ". (" not in str(caught.value)


async def test_many_waits_share_one_client(outrider):
    """Each waits on a connection of its own: short commands never queue behind them."""
    tasks = [await outrider.submit("agent", "text") for _ in range(80)]
    waits = [asyncio.create_task(outrider.wait(task.task_id)) for task in tasks]
    for task in tasks:
        worker = Worker(outrider, task)
        await worker.claim()
        await worker.finish(task.task_id)
    assert [task.result for task in await asyncio.gather(*waits)] == [task.task_id for task in tasks]


def test_the_sync_client_does_the_same(settings, tmp_path):
    with connect(settings) as o:
        task = o.submit("agent", "text", title="one")
        assert o.get(task.task_id).title == "one"
        assert [one.task_id for one in o.list().tasks] == [task.task_id]
        with pytest.raises(WaitTimeout):
            o.wait(task.task_id, timeout=0.01)
        waited = []
        thread = threading.Thread(target=lambda: waited.append(o.wait(task.task_id)))
        thread.start()
        assert o.cancel(task.task_id).outcome == "cancelled"
        thread.join()
        assert waited[0].status == "cancelled"
        assert [event.type for event in o.follow(task.task_id)] == ["task.submitted", "task.cancelled"]
        for event in o.follow(task.task_id):
            assert event.type == "task.submitted"
            break
        assert o.result(task.task_id) is None
        assert o.state(task.task_id) == {}
        with pytest.raises(UnknownTask):
            o.get("nobody")
        with pytest.raises(BadInput):
            o.get("../x")
    with pytest.raises(OutriderError, match="closed"):
        o.get(task.task_id)
    o.close()


def test_every_method_has_its_sync_face():
    from outrider.orchestrator.sync import SyncOutrider

    public = {name for name, value in vars(Outrider).items() if not name.startswith("_") and callable(value)}
    assert public <= set(dir(SyncOutrider))


async def test_the_store_of_agents_is_there_for_async_and_for_sync_code(outrider, settings):
    await outrider.store.aput(("memories", "ada"), "/a.md", {"content": "x"})

    def read():
        with connect(settings) as o:
            return o.store.get(("memories", "ada"), "/a.md").value

    assert await asyncio.to_thread(read) == {"content": "x"}


async def test_a_redis_that_is_full_is_still_read(settings):
    with EmbeddedRedis() as server:
        of_server = settings.model_copy(update={"redis_url": server.url})
        async with Outrider(of_server) as outrider:
            task = await outrider.submit("agent", "hello")
            worker = Worker(outrider, task)
            await worker.claim()
            await worker.finish("found")
            redis = outrider._session.store.redis
            await redis.script_flush()  # scripts are loaded then, too
            await redis.config_set("maxmemory", 1)
            assert (await outrider.wait(task.task_id)).result == "found"
            assert [one.task_id for one in (await outrider.list()).tasks] == [task.task_id]
            assert [event.type for event in [event async for event in outrider.follow(task.task_id)]][
                -1
            ] == "task.settled"
            with pytest.raises(RedisUnreachable, match="full"):
                await outrider.submit("agent", "hello")

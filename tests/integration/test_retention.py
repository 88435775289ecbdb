"""Retention: trees that ended long ago go, whole, and nothing of them stays. On fakeredis and on a real server."""

import asyncio
import inspect
from unittest.mock import AsyncMock

import pytest
from langgraph.checkpoint.base import empty_checkpoint

import puppets
from families import submission
from outrider.shared.checkpoints import RedisSaver
from outrider.shared.errors import ParentClosed, UnknownTask
from outrider.shared.filestore import RedisStore
from outrider.shared.keys import Keys
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Ending
from outrider.shared.tree_files import tree_namespace
from outrider.worker.sweeper import Sweeper

DAY_MS = 86_400_000
DONE = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"done"')
ASKS = Ending(RunStatus.SUCCESS, EndedAs.PAUSED, Status.WAITING, task_phase=Phase.ASKING)


class Wood:
    """Trees of tasks, each named by its path, and a sweeper that keeps them for a day."""

    def __init__(self, store):
        self.store = store
        settings = Settings(namespace=store.keys.namespace, retention_days=1)
        self.sweeper = Sweeper(settings, store, AsyncMock(), AsyncMock(), {})
        self.saver, self.files = RedisSaver(store.redis, store.keys), RedisStore(store.redis, store.keys)

    async def submit(self, path, **fields):
        return await self.store.submit(submission(path, **fields))

    async def facts(self, name):
        return await self.store.facts(name)

    async def end(self, name, ending=DONE):
        facts, run_id = await self.facts(name), (await self.store.peek(name)).run_id
        held = await self.store.claim(facts, run_id, worker="w", lease_ms=30_000)
        assert await self.store.settle(held.claim, ending)

    async def grown(self, *paths):
        """Trees of which all has ended, children first."""
        for path in paths:
            await self.submit(path)
        for path in reversed(paths):
            await self.end(path.rpartition("/")[2])
        while pending := (await self.store.list(statuses=[Status.PENDING])).tasks:
            for task in pending:
                await self.end(task.task_id)

    async def age(self, *names, days=2):
        """Let the last thing that happened to a task have happened long ago."""
        for name in names:
            key = self.store.keys.task(name)
            for field in ("created_ms", "updated_ms"):
                await self.store.redis.hincrby(key, field, -days * DAY_MS)
            if await self.store.redis.zscore(self.store.keys.trees(), name):
                await self.store.redis.zincrby(self.store.keys.trees(), -days * DAY_MS, name)

    async def sweep(self):
        while await self.sweeper.sweep():
            pass
        await self.sweeper.sweep()

    async def names(self):
        """What the namespace holds, but the two keys that it has once."""
        keys = await self.store.redis.keys(f"{{{self.store.keys.namespace}}}:*")
        return sorted({key.decode().partition(":")[2] for key in keys} - {"last_sweep", "files:seq"})

    async def there(self, *names):
        return [name for name in names if await self.store.redis.exists(self.store.keys.task(name))]


@pytest.fixture
async def wood(any_redis, namespace):
    return Wood(Store(any_redis, namespace))


async def test_nothing_of_an_old_tree_stays(wood):
    await wood.submit("r", idempotency_key="once", context={"a": 1})
    await wood.submit("r/a")
    await wood.submit("r/a/b", notify_parent=False)
    await wood.end("b", ASKS)
    await wood.store.cancel("b")
    await wood.end("a")
    await wood.end("r")
    for thread, ns in (("r", ""), ("a", ""), ("a", "inner:1")):
        config = {"configurable": {"thread_id": thread, "checkpoint_ns": ns}}
        saved = await wood.saver.aput(config, empty_checkpoint() | {"channel_values": {"x": ["y"]}}, {}, {"x": 1})
        await wood.saver.aput_writes(saved, [("x", "z")], "task")
    await wood.files.aput(tree_namespace("r"), "/a.md", {"text": "x"})
    await wood.store.update("a", {"text": "more", "state": {}})
    await wood.end("a")
    while (await wood.store.peek("r")).run_id:
        await wood.end("r")
    await wood.age("r", "a", "b")
    await wood.sweep()
    assert await wood.names() == []


async def test_what_is_not_old_stays_and_goes_when_it_is(wood):
    await wood.grown("r", "r/a")
    await wood.age("r")
    before = await wood.names()
    await wood.sweep()
    assert await wood.names() == before  # something happened to the child not long ago
    await wood.age("a")
    await wood.sweep()
    assert await wood.there("r", "a") == ["r", "a"]  # nobody looks again before it may be old
    await wood.store.redis.zincrby(wood.store.keys.trees(), -2 * DAY_MS, "r")
    await wood.sweep()
    assert await wood.names() == []


@pytest.mark.parametrize("state", ["pending", "running", "waiting", "resting", "woken"])
async def test_a_tree_with_a_task_that_has_not_ended_stays(wood, state):
    await wood.grown("r", "r/a", "r/a/b", "r/c")
    await wood.submit("r/a/x")
    if state in {"running", "resting"}:
        await wood.store.claim(await wood.facts("x"), "x-1", worker="w", lease_ms=30_000)
    if state == "resting":
        await wood.store.update("r", {"text": "more", "state": {}})
        await wood.end("r")
    if state == "waiting":
        await wood.end("x", ASKS)
    if state == "woken":
        await wood.end("x")  # its parent has a run for it
    await wood.age("r", "a", "b", "c", "x", days=30)
    before = [name for name in await wood.names() if name != "trees"]
    await wood.sweep()
    assert [name for name in await wood.names() if name != "trees"] == before


async def test_idle_counts_as_ended(wood):
    await wood.grown("r")
    await wood.store.redis.hset(wood.store.keys.task("r"), mapping={"status": "idle"})
    await wood.age("r")
    await wood.sweep()
    assert await wood.there("r") == []


async def test_other_trees_and_other_files_stay(wood):
    await wood.grown("r", "r/a")
    await wood.grown("s", "s/b")
    for place in (tree_namespace("r"), tree_namespace("s"), ("memories",), ("trees-of-my-own",)):
        await wood.files.aput(place, "/a.md", {"text": "x"})
    await wood.age("r", "a")
    await wood.sweep()
    assert await wood.there("r", "a", "s", "b") == ["s", "b"]
    assert sorted(await wood.files.alist_namespaces()) == [("memories",), tree_namespace("s"), ("trees-of-my-own",)]
    assert {task.task_id for task in (await wood.store.list()).tasks} == {"s", "b"}


async def test_a_task_that_was_removed_is_unknown_and_its_idempotency_key_is_free(wood):
    await wood.submit("r", idempotency_key="k")
    await wood.end("r")
    await wood.age("r")
    assert await wood.store.condemn("r", older_than_ms=DAY_MS)
    for ask in (
        wood.store.get("r"),
        wood.store.peek("r"),
        wood.store.cancel("r"),
        wood.store.update("r", {"text": "more", "state": {}}),
    ):
        with pytest.raises(UnknownTask):
            await ask
    with pytest.raises(ParentClosed, match="there is no such task"):
        await wood.submit("r/a")
    assert (await wood.submit("again", idempotency_key="k")).created
    await wood.sweep()
    assert not (await wood.submit("once-more", idempotency_key="k")).created


@pytest.mark.parametrize("what", ["submit", "update", "wake"])
async def test_what_happens_between_look_and_removal_keeps_the_tree(wood, what, monkeypatch):
    await wood.grown("r", "r/a")
    if what == "wake":
        await wood.submit("r/x")
    scripts = wood.store._scripts

    async def raced(name, keys, *args):
        if name == "condemn":
            monkeypatch.setattr(wood.store, "_scripts", scripts)
            if what == "submit":
                await wood.submit("r/a/late")
            elif what == "update":
                await wood.store.update("a", {"text": "more", "state": {}})
            else:
                await wood.end("x")
        return await scripts(name, keys, *args)

    await wood.age("r", "a")
    if what == "wake":
        await wood.age("x")
    monkeypatch.setattr(wood.store, "_scripts", raced)
    assert not await wood.store.condemn("r", older_than_ms=DAY_MS)
    assert await wood.there("r", "a") == ["r", "a"]
    assert await wood.store.old_trees(older_than_ms=DAY_MS) == ()


async def test_what_a_sweeper_left_half_done_another_finishes(wood):
    await wood.grown("r", "r/a")
    await wood.files.aput(tree_namespace("r"), "/a.md", {"text": "x"})
    await wood.age("r", "a")
    assert await wood.store.condemn("r", older_than_ms=DAY_MS)
    assert not await wood.store.condemn("r", older_than_ms=DAY_MS)
    remains = await wood.store.remains("a")
    await wood.store.redis.unlink(wood.store.keys.run("a-1"), wood.store.keys.events("a"))
    await asyncio.gather(wood.sweep(), Wood(wood.store).sweep())
    assert await wood.names() == []
    await wood.store.erase(remains)
    assert await wood.names() == []


async def test_code_that_never_stopped_keeps_nothing_of_its_task(wood):
    await wood.submit("r")
    facts = await wood.facts("r")
    held = await wood.store.claim(facts, "r-1", worker="w", lease_ms=30_000)
    await wood.store.cancel("r")
    await wood.age("r")
    await wood.sweep()
    assert await wood.names() == []
    assert await wood.store.heartbeat([held.claim], lease_ms=30_000) == [False]
    assert not await wood.store.stopped(held.claim)
    assert await wood.names() == []


async def test_many_trees_go_page_by_page(wood):
    names = [f"t{number}" for number in range(45)]
    await wood.grown(*names)
    await wood.grown("wide", *(f"wide/w{number}" for number in range(45)))
    await wood.age(*names, "wide", *(f"w{number}" for number in range(45)))
    await wood.sweep()
    assert await wood.names() == []


def test_no_key_of_a_task_is_forgotten():
    keys = Keys("n")
    named = {
        name
        for name, method in inspect.getmembers(Keys, inspect.isfunction)
        if list(inspect.signature(method).parameters)[1:] in (["task_id"], ["root_id"])
    }
    known = {getattr(keys, name)("t") for name in named - {"of_task", "task", "remains"}}
    assert known == set(keys.of_task("t"))


# With agents of real graphs


@pytest.mark.parametrize("agent", ["deep", "no_checkpoints_inside", "asks", "raises", "looper", "bounded"])
async def test_what_a_run_left_behind_goes_too(bench, agent):
    task_id, run_id = await bench.submit(agent, "value")
    if agent == "bounded":
        await bench.open(task_id, "bounded")
    await bench.runner.run(task_id, run_id)
    if agent == "asks":
        question = (await bench.store.get(task_id)).interrupts[0]
        answered = await bench.store.answer(await bench.store.facts(task_id), "yes", interrupt=question.id)
        await bench.runner.run(task_id, answered.bells[0].run_id)
    assert (await bench.store.peek(task_id)).status.terminal
    wood = Wood(bench.store)
    await wood.age(task_id)
    await wood.sweep()
    assert await wood.names() == []


async def talk(site, task_id):
    """Play a model that has nothing to add, for as long as it is asked."""
    while True:
        await site.read(task_id)
        await site.say(task_id)


async def test_a_worker_removes_a_tree_of_parents_and_forks(redis_url, namespace):
    with puppets.worker(redis_url, namespace, OUTRIDER_RETENTION_DAYS="0.00002") as worker:
        async with puppets.site(redis_url, namespace) as site:
            parent = await site.parent("deep")
            await site.read(parent)
            await site.call(parent, puppets.started())
            fork = (await site.o.submit("agent", "go on", parent=parent, mode="fork")).task_id
            (leaf,) = {*await site.children(parent)} - {fork}
            await site.rest(parent)
            await site.answer(leaf, "leaf")
            talks = [asyncio.create_task(talk(site, task_id)) for task_id in (parent, fork)]
            await worker.says("tree.removed")
            for one in talks:
                one.cancel()
            with pytest.raises(UnknownTask):
                await site.o.get(parent)
            wood = Wood(site.store)
            await wood.sweep()
            left = [name for name in await wood.names() if not name.startswith("_kombu")]
            assert left == ["catalogue"]

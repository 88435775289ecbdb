"""Files of deep agents in the store: a real deep agent with a scripted model, and parallel edits."""

import asyncio
from types import SimpleNamespace

import pytest
import redis.asyncio
from deepagents import create_deep_agent
from deepagents.backends import CompositeBackend, StateBackend
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

from outrider.shared import backend as backends
from outrider.shared.backend import OutriderBackend
from outrider.shared.context import running
from outrider.shared.filestore import RedisStore
from outrider.shared.keys import Keys
from outrider.shared.tree_files import tree_namespace

WRITERS = 20
PATH = "/notes.md"
OPEN = "".join(f"- [ ] item {number:02}\n" for number in range(WRITERS))
DONE = OPEN.replace("[ ]", "[x]")


@pytest.fixture
async def store(any_redis, namespace):
    return RedisStore(any_redis, Keys(namespace))


@pytest.fixture
def files(store):
    """Give the backend of a namespace that needs no running task."""
    return OutriderBackend(namespace=lambda _: ("memories", "u1"), store=store)


class Script(GenericFakeChatModel):
    """A model that calls the tools it was told to, one after the other."""

    def bind_tools(self, tools, **kwargs):
        return self


def agent(store, backend, *calls):
    """Build a deep agent that makes these calls, each a tool's name and its arguments, and says that it is done."""
    turns = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{number}"}])
        for number, (name, args) in enumerate(calls)
    ]
    model = Script(messages=iter([*turns, AIMessage("done")]))
    return create_deep_agent(model=model, backend=backend).copy({"store": store})


async def said_to(graph, task_id=None, *ancestors):
    """Run an agent, as a task of its own where one is named, and return what its tools told it."""
    if task_id is not None:
        root_id = ancestors[0] if ancestors else task_id
        running.set(SimpleNamespace(task=SimpleNamespace(root_id=root_id)))
    state = await graph.ainvoke({"messages": [("user", "go on")]})
    return [message.content for message in state["messages"] if message.type == "tool"]


def edit(number):
    return {"file_path": PATH, "old_string": f"[ ] item {number:02}", "new_string": f"[x] item {number:02}"}


async def test_what_one_agent_of_a_tree_writes_another_reads(store):
    write = ("write_file", {"file_path": "/retrieved/one.md", "content": "the evidence"})
    lead = agent(store, OutriderBackend(), write)
    analyst = agent(
        store,
        OutriderBackend(),
        ("ls", {"path": "/retrieved"}),
        ("grep", {"pattern": "evidence"}),
        ("edit_file", {"file_path": "/retrieved/one.md", "old_string": "the", "new_string": "much"}),
        ("read_file", {"file_path": "/retrieved/one.md"}),
    )
    stranger = agent(store, OutriderBackend(), ("read_file", {"file_path": "/retrieved/one.md"}))

    await asyncio.create_task(said_to(lead, "lead"))
    listed, grepped, _, read = await asyncio.create_task(said_to(analyst, "analyst", "lead", "middle"))
    assert "/retrieved/one.md" in listed
    assert "/retrieved/one.md" in grepped
    assert "much evidence" in read
    [denied] = await asyncio.create_task(said_to(stranger, "stranger"))
    assert "not found" in denied
    assert [entry.key for entry in await store.aentries(tree_namespace("lead"))] == ["/retrieved/one.md"]


async def test_only_its_folder_goes_to_the_store(store):
    """A folder whose name merely begins alike stays in the agent's own state."""
    backend = CompositeBackend(StateBackend(), {"/shared/": OutriderBackend()})
    paths = ["/shared/a.md", "/shared-old/b.md", "/c.md"]
    calls = [("write_file", {"file_path": path, "content": "x"}) for path in paths]
    await asyncio.create_task(said_to(agent(store, backend, *calls), "lead"))
    assert [entry.key for entry in await store.aentries(tree_namespace("lead"))] == ["/a.md"]


async def test_of_twenty_parallel_edits_none_is_lost(files):
    await files.awrite(PATH, OPEN)
    results = await asyncio.gather(*(files.aedit(**edit(number)) for number in range(WRITERS)))
    assert [(result.error, result.occurrences) for result in results] == [(None, 1)] * WRITERS
    assert (await files.aread(PATH)).file_data["content"] == DONE


async def test_of_twenty_parallel_sync_edits_none_is_lost(files):
    await files.awrite(PATH, OPEN)
    await asyncio.gather(*(asyncio.to_thread(files.edit, **edit(number)) for number in range(WRITERS)))
    assert (await asyncio.to_thread(files.read, PATH)).file_data["content"] == DONE


async def test_agents_on_several_loops_lose_no_edit(redis_url, namespace):
    """Each loop has a client of its own, as each worker process has."""

    async def process(numbers):
        async with redis.asyncio.Redis.from_url(redis_url) as client:
            store = RedisStore(client, Keys(namespace))
            graphs = [agent(store, OutriderBackend(), ("edit_file", edit(number))) for number in numbers]
            await asyncio.gather(*(said_to(graph, f"task-{id(graph)}", "root") for graph in graphs))

    async with redis.asyncio.Redis.from_url(redis_url) as client:
        store = RedisStore(client, Keys(namespace))
        there = OutriderBackend(namespace=lambda _: tree_namespace("root"), store=store)
        await there.awrite(PATH, OPEN)
        halves = range(0, WRITERS, 2), range(1, WRITERS, 2)
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, process(half)) for half in halves))
        assert (await there.aread(PATH)).file_data["content"] == DONE


async def test_an_edit_that_others_always_forestall_ends_in_a_conflict(files, store, monkeypatch):
    await files.awrite(PATH, OPEN)
    attempts = []

    async def forestalled(namespace, key, value, version):
        attempts.append(version)
        await store.aput(namespace, key, {"content": f"{OPEN}{version}", "encoding": "utf-8"})
        return await RedisStore.aput_if(store, namespace, key, value, version)

    monkeypatch.setattr(store, "aput_if", forestalled)
    result = await files.aedit(**edit(0))
    assert result.error == (
        f"Conflict: {PATH} was changed by others during each of 64 attempts. Nothing was written. "
        "Read the file again, then repeat the edit."
    )
    assert len(set(attempts)) == backends.ATTEMPTS
    assert "[x]" not in (await files.aread(PATH)).file_data["content"]


async def test_an_edit_of_a_file_that_is_deleted_meanwhile_finds_none(files, store, monkeypatch):
    await files.awrite(PATH, OPEN)

    async def deleted(namespace, key, value, version):
        await store.adelete(namespace, key)
        return await RedisStore.aput_if(store, namespace, key, value, version)

    monkeypatch.setattr(store, "aput_if", deleted)
    assert "not found" in (await files.aedit(**edit(0))).error
    assert await store.aentries(("memories", "u1")) == []


async def test_an_edit_that_fits_nowhere_changes_nothing(files, store):
    await files.awrite(PATH, OPEN)
    [before] = await store.aentries(("memories", "u1"))
    assert (await files.aedit(PATH, "no such text", "x")).error
    assert (await files.aedit(PATH, "item", "x")).error  # stands there twenty times
    assert (await files.aedit("/none.md", "x", "y")).error
    assert await store.aentries(("memories", "u1")) == [before]
    assert (await files.aedit(PATH, "item", "x", replace_all=True)).occurrences == WRITERS

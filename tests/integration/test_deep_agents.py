"""Deep agents on two workers: skills, memory, large results and context, over wakes, follow-ups, drains and kills."""

import json
import signal
import uuid

import pytest

import puppets
from outrider.shared.backend import OutriderBackend
from outrider.shared.filestore import RedisStore
from outrider.shared.statuses import Status
from puppets import called, started

ADA, BOB = {"user": "ada"}, {"user": "bob"}
SHOP = "---\nname: shop\ndescription: Sells.\nmetadata:\n  include_tools: shop\n---\nAlways be polite.\n"
AUDIT = "---\nname: audit\ndescription: Counts twice.\n---\nCount twice.\n"
BROKEN = "---\nname: [broken\n---\n"
READ_SHOP = called("read_file", file_path="/skills/shop/SKILL.md", limit=1000)
SHIP = called("ship", what="a book")
MEMORY = "/memories/AGENTS.md"
WRITERS = 20


@pytest.fixture(scope="module")
def place(redis_server):
    namespace = f"deep-{uuid.uuid4().hex[:8]}"
    with puppets.workers(redis_server.url, namespace):
        yield redis_server.url, namespace


@pytest.fixture
async def site(place):
    async with puppets.site(*place) as site:
        await put(site, "skills", {"/shop/SKILL.md": SHOP, "/broken/SKILL.md": BROKEN})
        yield site


def files(site, *namespace):
    store = RedisStore(site.redis, site.store.keys)
    return OutriderBackend(namespace=lambda _: namespace, store=store)


async def put(site, namespace, contents):
    for path, text in contents.items():
        await files(site, namespace).awrite(path, text)


async def keen(site, **fields):
    """A task for Ada whose model is asked for the first time; its id, and what the model reads."""
    task_id = await site.parent("keen", **{"context": ADA, **fields})
    return task_id, await site.read(task_id)


async def finished(site, task_id):
    await site.say(task_id)
    task = await site.o.wait(task_id)
    assert task.status is Status.SUCCESS, task.error
    return task


def offered(read):
    """Names of the tools that a model is offered."""
    return {tool["function"]["name"] for tool in read.prefix[1]}


def system(read):
    return json.dumps(read.prefix[0])


def pinned(read):
    return [m["content"] for m in read.messages if m["additional_kwargs"].get("lc_source") == "pinned_skill"]


# --- skills ----------------------------------------------------------------------------------------------------------


async def test_a_skill_is_named_then_read_and_then_its_tools_are_there(site):
    task_id, read = await keen(site)
    assert "Sells." in system(read)
    assert "polite" not in system(read)
    assert "ship" not in offered(read)
    read = await site.call(task_id, SHIP)
    assert "ship is not a valid tool" in read.last
    assert "ship" not in offered(read)
    read = await site.call(task_id, READ_SHOP)
    assert "Always be polite." in read.last
    assert "ship" in offered(read)
    assert (await site.call(task_id, SHIP)).last == "a book shipped for ada"
    await finished(site, task_id)


async def test_each_user_has_tools_of_their_own_for_one_skill(site):
    task_id, _ = await keen(site, context=BOB)
    read = await site.call(task_id, READ_SHOP)
    assert offered(read) & {"ship", "price"} == {"price"}
    assert (await site.call(task_id, called("price", what="a book"))).last == "a book costs 3"
    await finished(site, task_id)


async def test_a_pinned_skill_is_taken_once_over_wakes_and_follow_ups(site):
    task_id, read = await keen(site, state={"pinned_skills": ["shop"]})
    (text,) = pinned(read)
    assert "Always be polite." in text
    assert "ship" in offered(read)
    await site.call(task_id, started())
    (child,) = await site.children(task_id)
    await site.rest(task_id)
    await site.end(child)
    read = await site.read(task_id)
    assert read.notes == [child]
    assert pinned(read) == [text]
    await finished(site, task_id)
    await site.o.update(task_id, "more")
    assert pinned(await site.read(task_id)) == [text]
    assert (await site.call(task_id, SHIP)).last == "a book shipped for ada"
    await finished(site, task_id)
    await site.o.update(task_id, "as it is now", state={"pinned_skills": ["shop"]})
    assert pinned(await site.read(task_id)) == [text] * 2
    await finished(site, task_id)


async def test_skills_are_looked_for_anew_where_an_update_says_so(site):
    task_id, read = await keen(site)
    assert "audit" not in system(read)
    await finished(site, task_id)
    await put(site, "skills", {"/audit/SKILL.md": AUDIT})
    await site.o.update(task_id, "more")
    assert "audit" not in system(await site.read(task_id))
    await finished(site, task_id)
    await site.o.update(task_id, "more", state={"skills_metadata": None})
    assert "Counts twice." in system(await site.read(task_id))
    await finished(site, task_id)
    await files(site, "skills").adelete("/audit")


# --- memory ----------------------------------------------------------------------------------------------------------


async def test_what_one_task_remembers_the_next_knows_on_another_worker(site):
    teller, read = await keen(site, queue="worker-1")
    assert "No memory loaded" in system(read)
    await site.call(teller, called("write_file", file_path=MEMORY, content="Ada likes tea."))
    first = await finished(site, teller)
    knower, read = await keen(site, queue="worker-2")
    assert "Ada likes tea." in system(read)
    second = await finished(site, knower)
    assert first.runs[0].worker != second.runs[0].worker
    stranger, read = await keen(site, context=BOB)
    assert "Ada likes tea." not in system(read)
    await finished(site, stranger)


async def test_twenty_tasks_that_edit_one_memory_at_once_lose_nothing(site):
    user = {"user": "twenty"}
    await put_memory(site, "twenty", "".join(f"- [ ] {number:02}\n" for number in range(WRITERS)))
    tasks = [(await keen(site, context=user, queue=f"worker-{1 + at % 2}"))[0] for at in range(WRITERS)]
    for number, task_id in enumerate(tasks):
        change = {"old_string": f"[ ] {number:02}", "new_string": f"[x] {number:02}"}
        await site.let_call(task_id, called("edit_file", file_path=MEMORY, **change))
    for task_id in tasks:
        assert "Successfully" in (await site.read(task_id)).last
        await finished(site, task_id)
    memory = await files(site, "memories", "twenty").aread("/AGENTS.md")
    assert memory.file_data["content"] == "".join(f"- [x] {number:02}\n" for number in range(WRITERS))


async def put_memory(site, user, text):
    await files(site, "memories", user).awrite("/AGENTS.md", text)


# --- context ---------------------------------------------------------------------------------------------------------


async def test_the_context_reaches_tools_in_wakes_and_follow_ups(site):
    task_id, _ = await keen(site, configurable={"mark": 7})
    known = {"context": ADA, "mark": 7}
    assert json.loads((await site.call(task_id, called("facts"))).last) == known
    await site.call(task_id, READ_SHOP, started())
    (child,) = await site.children(task_id)
    assert (await site.o.get(child)).parent_id == task_id
    await site.rest(task_id)
    await site.end(child)
    await site.read(task_id)
    assert json.loads((await site.call(task_id, called("facts"))).last) == known
    await finished(site, task_id)
    await site.o.update(task_id, "more")
    await site.read(task_id)
    assert json.loads((await site.call(task_id, called("facts"))).last) == known
    assert (await site.call(task_id, SHIP)).last == "a book shipped for ada"
    await finished(site, task_id)

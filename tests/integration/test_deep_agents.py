"""Deep agents on two workers: skills, memory and context, over wakes and follow-ups."""

import json
import uuid

import pytest

import puppets
from deep_puppets import ADA, BOB, BROKEN, READ_SHOP, SHIP, SHOP, files, finished, keen, offered, pinned, put, system
from outrider import Outrider
from outrider.shared.errors import BrokenAgent
from outrider.shared.settings import Settings
from outrider.shared.statuses import Status
from puppets import called, started
from workers import WorkerProcess

AUDIT = "---\nname: audit\ndescription: Counts twice.\n---\nCount twice.\n"
MEMORY = "/memories/AGENTS.md"
WRITERS = 20


@pytest.fixture(scope="module")
def place(redis_server):
    namespace = f"deep-{uuid.uuid4().hex[:8]}"
    with puppets.workers(redis_server.url, namespace):
        yield redis_server.url, namespace


@pytest.fixture
async def site(site):
    await put(site, "skills", {"/shop/SKILL.md": SHOP, "/broken/SKILL.md": BROKEN})
    return site


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
    open_items = "".join(f"- [ ] {number:02}\n" for number in range(WRITERS))
    await files(site, "memories", "twenty").awrite("/AGENTS.md", open_items)
    tasks = [(await keen(site, context=user, queue=f"worker-{1 + at % 2}"))[0] for at in range(WRITERS)]
    for number, task_id in enumerate(tasks):
        change = {"old_string": f"[ ] {number:02}", "new_string": f"[x] {number:02}"}
        await site.let_call(task_id, called("edit_file", file_path=MEMORY, **change))
    for task_id in tasks:
        assert "Successfully" in (await site.read(task_id)).last
        await finished(site, task_id)
    memory = await files(site, "memories", "twenty").aread("/AGENTS.md")
    assert memory.file_data["content"] == open_items.replace("[ ]", "[x]")


async def test_a_memory_that_cannot_be_read_ends_the_task(site):
    await site.o.store.aput(("memories", "eve"), "/AGENTS.md", {"no": "content"})
    # LangGraph has no labels with a period.
    for user, error in {"eve": "ValueError", "eve@example.com": "InvalidNamespaceError"}.items():
        task = await site.o.wait(await site.parent("keen", context={"user": user}))
        assert (task.status, task.error.type, task.attempt) == (Status.ERROR, error, 0)


# --- forks -----------------------------------------------------------------------------------------------------------


async def test_a_fork_has_what_its_parent_read_and_put_away(site):
    parent, _ = await keen(site, queue="worker-1")
    await site.call(parent, READ_SHOP)
    await site.call(parent, called("rows"))
    (file,) = (await site.o.files(parent)).files
    child, read = await keen(site, parent=parent, mode="fork", queue="worker-2", notify_parent=False)
    assert "ship" in offered(read)
    assert "row 19999" in (await site.call(child, called("read_file", file_path=file.path, offset=19_999))).last
    assert (await site.call(child, SHIP)).last == "a book shipped for ada"
    workers = [(await finished(site, task_id)).runs[0].worker for task_id in (child, parent)]
    assert len(set(workers)) == len(workers)


# --- context ---------------------------------------------------------------------------------------------------------


async def test_the_context_reaches_tools_in_wakes_and_follow_ups_and_subagents(site):
    task_id, _ = await keen(site, configurable={"mark": 7})
    known = {"context": ADA, "mark": 7}
    assert json.loads((await site.call(task_id, called("facts"))).last) == known
    await site.call(task_id, READ_SHOP, started(agent="keen"))
    (child,) = await site.children(task_id)
    await site.rest(task_id)
    await site.read(child)
    assert json.loads((await site.call(child, called("facts"))).last) == known
    await finished(site, child)
    await site.read(task_id)
    assert json.loads((await site.call(task_id, called("facts"))).last) == known
    await finished(site, task_id)
    await site.o.update(task_id, "more")
    await site.read(task_id)
    assert json.loads((await site.call(task_id, called("facts"))).last) == known
    assert (await site.call(task_id, SHIP)).last == "a book shipped for ada"
    await finished(site, task_id)


# --- approval --------------------------------------------------------------------------------------------------------


async def test_a_file_that_a_person_guards_is_written_when_they_approve(site):
    task_id = await site.parent("asking")
    await site.read(task_id)
    await site.let_call(task_id, called("write_file", file_path="/orders/1.md", content="paid"))
    assert (await site.o.wait(task_id)).status is Status.WAITING
    assert (await site.o.files(task_id)).files == ()
    await site.o.answer(task_id, {"decisions": [{"type": "reject", "message": "not yet"}]})
    assert "not yet" in (await site.read(task_id)).last
    await site.let_call(task_id, called("write_file", file_path="/orders/1.md", content="paid"))
    await site.o.wait(task_id)
    await site.o.answer(task_id, {"decisions": [{"type": "approve"}]})
    assert "/orders/1.md" in (await site.read(task_id)).last
    await finished(site, task_id)
    assert [file.path for file in (await site.o.files(task_id)).files] == ["/orders/1.md"]


# --- broken ----------------------------------------------------------------------------------------------------------

GUARDED = """
from deepagents import FilesystemPermission, create_deep_agent
from deepagents.backends import LocalShellBackend
from langchain_core.language_models.fake_chat_models import FakeListChatModel


class Quiet(FakeListChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


NO_SECRETS = FilesystemPermission(operations=["read"], paths=["/secrets/**"], mode="deny")
{name} = create_deep_agent(Quiet(responses=["done"]), permissions=[NO_SECRETS], backend={backend})
"""


async def test_permissions_that_a_shell_would_get_round_are_named_at_start_and_others_run(
    redis_url, namespace, tmp_path
):
    for name, backend in {"shell": "LocalShellBackend()", "plain": "None"}.items():
        (tmp_path / f"{name}_agent.py").write_text(GUARDED.format(name=name, backend=backend))
    graphs = {name: f"./{name}_agent.py:{name}" for name in ("shell", "plain")}
    config = tmp_path / "langgraph.json"
    config.write_text(json.dumps({"graphs": graphs}))
    settings = Settings(redis_url=redis_url, namespace=namespace, config=str(config))
    with WorkerProcess(redis_url, namespace, OUTRIDER_CONFIG=str(config)) as worker:
        await worker.says("ready")
        async with Outrider(settings) as o:
            task = await o.wait((await o.submit("plain", "go")).task_id)
            assert (task.status, task.result) == (Status.SUCCESS, "done")
            while not await o._session.store.redis.exists(o._session.store.keys.catalogue()):
                pass
            with pytest.raises(BrokenAgent, match=r"NotImplementedError at .* does not yet support permissions"):
                await o.submit("shell", "go")
    assert [line for line in worker.lines if "agent.broken" in line and "shell" in line]

"""Parents on real workers: told of each child once, whatever happens in between."""

import asyncio
import json
import signal
import uuid

import pytest

import puppets
from outrider.shared.errors import BadInput, ParentClosed
from outrider.shared.statuses import EndedAs, Phase, Status
from puppets import called, started

MODELS = ["agent", "deep", "bare"]  # with the middleware, twice; and without it
PREPARED = ["agent", "deep"]


@pytest.fixture(scope="module", params=["redis", "rabbitmq"])
def place(request, redis_server):
    namespace = f"parents-{uuid.uuid4().hex[:8]}"
    broker = "" if request.param == "redis" else request.getfixturevalue("rabbitmq").vhost()
    with puppets.workers(redis_server.url, namespace, broker=broker):
        yield redis_server.url, namespace, broker


async def lead(site, agent="agent", children=("wait",), **fields):
    """A parent whose model has started these children, and waits for what to say; their ids."""
    parent = await site.parent(agent, **fields)
    await site.read(parent)
    if children:
        await site.call(parent, *map(started, children))
    return parent, await site.children(parent)


async def ended(site, parent, runs):
    """The parent has ended well, told of all, after so many runs."""
    task = await site.o.wait(parent)
    assert (task.status, len(task.runs)) == (Status.SUCCESS, runs), task
    assert task.cursor == task.given == task.seq
    return task


# --- told of each child once -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", PREPARED)
async def test_twenty_children_that_end_while_their_parent_works_share_its_next_turn(site, agent):
    parent, children = await lead(site, agent, ["now"] * 20)
    await site.until(parent, "inbox.arrived", 20)
    read = await site.call(parent, called("look", where="here"))
    assert sorted(read.notes) == sorted(children)
    await site.say(parent)
    task = await ended(site, parent, runs=1)
    assert sorted(await site.notes(parent)) == sorted(children)
    assert {entry["status"] for entry in (await site.o.state(parent))["async_tasks"].values()} == {"success"}
    assert task.runs[0].ended_as is EndedAs.FINISHED


@pytest.mark.parametrize("agent", PREPARED)
async def test_twenty_children_that_end_at_once_wake_their_resting_parent_once(site, agent):
    parent, children = await lead(site, agent, ["wait"] * 20)
    await site.rest(parent)
    await site.end(*children)
    await site.read(parent)
    await site.until(parent, "inbox.arrived", 20)
    read = await site.call(parent, called("look", where="here"))
    assert sorted(read.notes) == sorted(children)
    await site.say(parent)
    await ended(site, parent, runs=2)
    assert sorted(await site.notes(parent)) == sorted(children)
    assert {entry["status"] for entry in (await site.o.state(parent))["async_tasks"].values()} == {"success"}


async def test_a_plain_graph_is_the_parent_of_what_it_submits_and_hears_at_its_next_run(site):
    parent = await site.parent("graph")
    await site.pop(parent, "work")
    await site.answer(parent, "work", json.dumps({"submit": ["wait"] * 20}))
    await site.until(parent, "task.resting")
    children = await site.children(parent)
    assert len(children) == 20
    assert {(await site.o.get(child)).parent_id for child in children} == {parent}
    first, *others = children
    await site.end(first)
    await site.pop(parent, "work")
    await site.end(*others)
    await site.answer(parent, "work", "{}")
    await site.pop(parent, "work")
    await site.answer(parent, "work", "{}")
    await ended(site, parent, runs=3)
    notes = await site.notes(parent)
    assert (notes[0], sorted(notes)) == (first, sorted(children))


async def test_children_that_end_at_any_moment_of_many_parents_are_told_once(site):
    """No gates: children end before, while and after their parents come to rest, on two workers."""
    parents = [await site.parent(agent) for agent in ("swift", "swift_deep", "swift_graph") * 10]
    for parent in parents:
        task = await site.o.wait(parent)
        assert (task.status, task.cursor, task.given, task.seq) == (Status.SUCCESS, 5, 5, 5), task
        assert sorted(await site.notes(parent)) == sorted(await site.children(parent))


async def test_a_parent_that_had_ended_is_woken_by_a_child_that_it_got_later(site):
    parent = await site.parent("agent")
    await site.read(parent)
    await site.say(parent, "the end")
    await ended(site, parent, runs=1)
    child = (await site.o.submit("leaf", "now", parent=parent)).task_id
    assert (await site.read(parent)).notes == [child]
    await site.say(parent)
    await ended(site, parent, runs=2)


async def test_a_run_may_submit_a_task_that_is_no_child_of_it(site):
    parent = await site.parent("graph")
    await site.pop(parent, "work")
    await site.answer(parent, "work", json.dumps({"apart": ["now"]}))
    (apart,) = json.loads((await ended(site, parent, runs=1)).result)
    task = await site.o.wait(apart)
    assert (task.status, task.parent_id, task.ancestors) == (Status.SUCCESS, None, ())
    assert await site.children(parent) == []


async def test_code_in_a_thread_submits_under_the_running_task(site):
    parent = await site.parent("sync_graph")
    await ended(site, parent, runs=2)
    assert await site.notes(parent) == await site.children(parent)


async def test_an_agent_that_code_in_a_thread_calls_starts_tasks_and_hears_of_each_once(site):
    parent = await site.parent("sync_agent")
    assert (await site.o.wait(parent)).status is Status.SUCCESS
    children = await site.children(parent)
    assert len(children) == 5
    assert sorted(await site.notes(parent)) == sorted(children)


@pytest.mark.parametrize("agent", PREPARED)
async def test_a_child_that_ends_during_the_last_model_call_brings_one_more_turn_and_no_wake(site, agent):
    parent, (child,) = await lead(site, agent)
    await site.end(child)
    await site.say(parent, "not the end")
    read = await site.read(parent)
    assert read.notes == [child]
    await site.say(parent, "the end")
    task = await ended(site, parent, runs=1)
    assert (task.result, task.usage.turns) == ("the end", 3)
    assert await site.notes(parent) == [child]


async def test_a_parent_without_the_middleware_hears_of_a_late_child_in_a_run_of_its_own(site):
    parent = await site.parent("bare")
    await site.read(parent)
    child = (await site.o.submit("leaf", "now", parent=parent)).task_id
    await site.o.wait(child)
    await site.say(parent, "not the end")
    assert (await site.read(parent)).notes == [child]
    await site.say(parent, "the end")
    assert (await ended(site, parent, runs=2)).runs[0].ended_as is EndedAs.RESTED


@pytest.mark.parametrize("agent", PREPARED)
async def test_nothing_is_taken_in_twice_after_the_conversation_was_compacted(site, agent):
    parent, (first, second, third) = await lead(site, agent, ["wait"] * 3)
    await site.end(first)
    assert (await site.call(parent, called("look", where="a"))).notes == [first]
    await site.hold(parent, "compact")
    assert (await site.call(parent, called("look", where="b"))).notes == []
    await site.rest(parent)
    await site.end(second)
    assert (await site.read(parent)).notes == []  # it is in the summary, as the test's compaction has it
    await site.release(parent, "compact")
    await site.rest(parent)
    await site.end(third)
    read = await site.read(parent)
    assert read.notes == [third]
    read = await site.call(parent, called("list_async_tasks"))
    assert all(child in read.last for child in (first, second, third))
    await site.say(parent)
    await ended(site, parent, runs=3)
    tasks = (await site.o.state(parent))["async_tasks"]
    assert {name: task["status"] for name, task in tasks.items()} == dict.fromkeys((first, second, third), "success")


async def test_a_parent_whose_agent_is_a_part_of_its_graph_is_told_once(site):
    parent, (first, second) = await lead(site, "nested", ["wait", "wait"])
    await site.end(first)
    assert (await site.call(parent, called("look", where="a"))).notes == [first]
    await site.rest(parent)
    assert (await site.o.get(parent)).cursor == 1
    await site.end(second)
    await site.hold(parent, "compact")
    assert (await site.read(parent)).notes == []
    await site.release(parent, "compact")
    assert (await site.call(parent, called("look", where="b"))).notes == []
    await site.say(parent)
    await ended(site, parent, runs=2)


async def test_a_failed_child_is_told_by_the_type_of_its_error(site):
    parent, (child,) = await lead(site, children=["wait and fail"])
    await site.rest(parent)
    await site.end(child)
    read = await site.read(parent)
    assert "<status>error</status>" in read.last
    assert "ValueError" in read.last
    assert "secret" not in json.dumps(read.messages)
    assert "secret" not in repr(await site.o.state(parent))
    await site.say(parent)
    await ended(site, parent, runs=2)


async def test_a_tree_of_three_generations_wakes_from_below(site):
    parent = await site.parent("bare")
    await site.read(parent)
    child = await site.parent("bare", parent=parent)
    await site.read(child)
    grandchild = (await site.o.submit("leaf", "wait", parent=child)).task_id
    await site.rest(child)
    await site.rest(parent)
    tree = await site.o.tree(parent)
    assert [(one.task.task_id, [below.task.task_id for below in one.children]) for one in tree.children] == [
        (child, [grandchild])
    ]
    await site.end(grandchild)
    assert (await site.read(child)).notes == [grandchild]
    assert (await site.o.get(parent)).phase is Phase.RESTING
    await site.say(child, "all of it")
    assert "all of it" in (await site.read(parent)).last
    await site.say(parent)
    await ended(site, parent, runs=2)


# --- a worker that is killed -----------------------------------------------------------------------------------------


class Crash:
    """The moment at which a worker is killed: awaited by each scenario, which goes on with the next worker."""

    def __init__(self, scenarios):
        self._barrier = asyncio.Barrier(scenarios + 1)

    async def __call__(self):
        await self._barrier.wait()
        await self._barrier.wait()


async def taken_in(site, crash, agent):
    """News was taken in, and nothing of it is saved."""
    parent, (child,) = await lead(site, agent)
    await site.end(child)
    await site.hold(parent, "taken")
    await site.let_call(parent, called("look", where="here"))
    await site.pop(parent, "taken")
    await site.release(parent, "taken")
    await crash()
    assert (await site.read(parent)).notes == [child]
    await site.say(parent)
    await ended(site, parent, runs=1)
    assert await site.notes(parent) == [child]
    return parent


async def saved(site, crash, agent):
    """News is saved, and the model reads it."""
    parent, (child,) = await lead(site, agent)
    await site.end(child)
    assert (await site.call(parent, called("look", where="here"))).notes == [child]
    await crash()
    assert (await site.read(parent)).notes == [child]
    await site.say(parent)
    await ended(site, parent, runs=1)
    assert await site.notes(parent) == [child]
    return parent


async def claimed(site, crash, agent):
    """A wake is claimed, and its news not saved; then there is more of it than the wake was given."""
    parent, (first, second) = await lead(site, agent, ["wait", "wait"])
    await site.rest(parent)
    await site.hold(parent, "opened")
    await site.end(first)
    await site.pop(parent, "opened")
    await site.end(second)
    await site.release(parent, "opened")
    await crash()
    assert (await site.read(parent)).notes == [first, second]
    await site.say(parent)
    await ended(site, parent, runs=2)
    assert await site.notes(parent) == [first, second]
    return parent


async def woken_graph(site, crash, agent):
    """A wake's news is saved, and no step after it."""
    parent = await site.parent(agent)
    await site.pop(parent, "work")
    await site.answer(parent, "work", json.dumps({"submit": ["wait"]}))
    await site.until(parent, "task.resting")
    (child,) = await site.children(parent)
    await site.end(child)
    await site.pop(parent, "work")
    await crash()
    await site.pop(parent, "work")
    await site.answer(parent, "work", "{}")
    await ended(site, parent, runs=2)
    assert await site.notes(parent) == [child]
    return parent


async def no_twins(site, crash, agent):
    """A child was started, and the tool's result is not saved: the tool runs again."""
    parent = await site.parent(agent)
    await site.read(parent)
    await site.hold(parent, "called")
    await site.let_call(parent, started("wait"))
    await site.pop(parent, "called")
    (child,) = await site.children(parent)
    await site.release(parent, "called")
    await crash()
    assert f"Started task {child}" in (await site.read(parent)).last
    assert await site.children(parent) == [child]
    await site.rest(parent)
    await site.end(child)
    assert (await site.read(parent)).notes == [child]
    await site.say(parent)
    await ended(site, parent, runs=2)
    return parent


SCENARIOS = [
    (taken_in, "agent"),
    (taken_in, "deep"),
    (saved, "agent"),
    (saved, "deep"),
    (claimed, "agent"),
    (woken_graph, "graph"),
    (no_twins, "agent"),
    (no_twins, "deep"),
]


async def test_parents_of_a_killed_worker_are_told_once_and_start_no_twins(redis_url, namespace, broker_url):
    crash = Crash(len(SCENARIOS))
    quick = puppets.QUICK | {"OUTRIDER_BROKER_URL": broker_url}
    async with puppets.site(redis_url, namespace, broker_url) as site, asyncio.TaskGroup() as group:
        with puppets.worker(redis_url, namespace, **quick) as worker:
            all_of_them = [group.create_task(play(site, crash, agent)) for play, agent in SCENARIOS]
            await crash._barrier.wait()
            worker.process.kill()
        with puppets.worker(redis_url, namespace, **quick):
            await crash._barrier.wait()
            for parent in await asyncio.gather(*all_of_them):
                assert "run.lost" in [event.type for event in await site.events(parent)]


async def test_a_worker_that_is_stopped_gives_its_parents_back_and_what_they_were_not_told(
    redis_url, namespace, broker_url
):
    steady = puppets.STEADY | {"OUTRIDER_BROKER_URL": broker_url}
    async with puppets.site(redis_url, namespace, broker_url) as site:
        with puppets.worker(redis_url, namespace, **steady | {"OUTRIDER_GRACE_SECONDS": "30"}) as worker:
            parents = [await lead(site, agent) for agent in PREPARED]
            await site.end(*(child for _, (child,) in parents))
            worker.process.send_signal(signal.SIGTERM)
            await worker.says("worker.drains")
            for parent, _ in parents:
                await site.let_call(parent, called("look", where="here"))
            assert await worker.ends() == 0
        with puppets.worker(redis_url, namespace, **steady):
            for parent, (child,) in parents:
                read = await site.read(parent)
                assert (read.results, read.notes) == (["seen here"], [child])
                await site.say(parent)
                task = await ended(site, parent, runs=1)
                assert (task.attempt, await site.notes(parent)) == (0, [child])


# --- runs that fail --------------------------------------------------------------------------------------------------


async def test_a_wake_that_fails_does_not_loop_and_what_it_did_not_save_comes_with_the_next(site):
    parent, (first, second) = await lead(site, children=["wait", "wait"])
    await site.rest(parent)
    await site.hold(parent, "opened")
    await site.end(first)
    await site.pop(parent, "opened")
    await site.answer(parent, "opened", "fail")
    await site.until(parent, "task.settled")
    task = await site.o.get(parent)
    assert (task.status, task.run_id, len(task.runs), task.cursor, task.given) == (Status.ERROR, None, 2, 0, 1)
    await site.release(parent, "opened")
    await site.end(second)
    assert (await site.read(parent)).notes == [first, second]
    await site.say(parent)
    await ended(site, parent, runs=3)


@pytest.mark.parametrize("agent", PREPARED)
async def test_a_run_that_took_news_in_and_failed_before_it_was_saved_is_not_woken_for_it(site, agent):
    parent, (first, second) = await lead(site, agent, ["wait", "wait"])
    await site.end(first)
    await site.hold(parent, "taken")
    await site.let_call(parent, called("look", where="here"))
    await site.pop(parent, "taken")
    await site.answer(parent, "taken", "fail")
    await site.until(parent, "task.settled")
    task = await site.o.get(parent)
    assert (task.status, task.run_id, task.cursor, task.given) == (Status.ERROR, None, 0, 1)
    await site.release(parent, "taken")
    await site.end(second)
    assert (await site.read(parent)).notes == [first, second]
    await site.say(parent)
    await ended(site, parent, runs=2)


@pytest.mark.parametrize("agent", PREPARED)
async def test_a_wake_closes_the_tool_calls_that_a_failed_run_left_open(site, agent):
    parent, (child,) = await lead(site, agent)
    await site.let_call(parent, called("boom"), called("look", where="there"), started("wait"))
    await site.pop(parent, "boom")
    for result in ("seen there", "Started task"):
        await site.saved(parent, result)
    await site.answer(parent, "boom")
    await site.until(parent, "task.settled")
    assert (await site.o.get(parent)).status is Status.ERROR
    await site.end(child)
    read = await site.read(parent)
    assert read.notes == [child]
    looked, start, failed = read.results
    assert failed.startswith("No result: the run ended before")
    assert looked == "seen there"
    _, other = await site.children(parent)
    assert f"Started task {other}" in start
    await site.rest(parent)
    assert (await site.o.state(parent))["async_tasks"].keys() == {child, other}
    await site.end(other)
    assert (await site.read(parent)).notes == [child, other]
    await site.say(parent)
    await ended(site, parent, runs=3)


async def test_a_parent_that_asks_a_person_is_left_alone(site):
    parent, (child,) = await lead(site)
    await site.let_call(parent, called("person"))
    await site.until(parent, "task.waiting")
    await site.end(child)
    task = await site.o.get(parent)
    assert (task.status, task.run_id, task.seq, task.given) == (Status.WAITING, None, 1, 0)
    assert [question.value for question in task.interrupts] == ["go on?"]
    await site.o.cancel(parent)
    assert (await site.o.wait(parent)).status is Status.CANCELLED


@pytest.mark.parametrize("agent", MODELS)
async def test_what_came_while_a_parent_asked_is_read_after_the_answer(site, agent):
    parent, _ = await lead(site, agent, ())
    child = await site.parent("leaf", parent=parent)
    await site.let_call(parent, called("person"))
    await site.until(parent, "task.waiting")
    await site.end(child)
    await site.o.answer(parent, "go on!")
    read = await site.read(parent)
    if agent == "bare":  # its news wakes it, once the run that was answered has ended
        assert (read.notes, read.results) == ([], ["go on!"])
        await site.say(parent)
        read = await site.read(parent)
    assert read.notes == [child]
    assert "go on!" in [message["content"] for message in read.messages if message["type"] == "tool"]
    await site.say(parent)
    await ended(site, parent, runs=3 if agent == "bare" else 2)
    assert await site.notes(parent) == [child]


@pytest.mark.parametrize("agent", MODELS)
async def test_a_parent_hears_that_a_child_asks_a_person_and_then_of_its_end(site, agent):
    parent, _ = await lead(site, agent, ())
    child = await site.parent("agent", parent=parent)
    await site.rest(parent)
    await site.read(child)
    await site.let_call(child, called("person"))
    read = await site.read(parent)
    assert read.notes == [child]
    assert "<status>waiting</status>" in read.last
    assert "go on?" in read.last
    await site.rest(parent)
    await site.o.answer(child, "yes")
    assert (await site.read(child)).results == ["yes"]
    await site.say(child, "all found")
    read = await site.read(parent)
    assert read.notes == [child, child]
    assert "all found" in read.last
    await site.say(parent)
    await ended(site, parent, runs=3)


async def test_a_child_that_asks_is_told_of_as_a_person_s_to_answer(site):
    parent, _ = await lead(site, "agent", ())
    child = await site.parent("agent", parent=parent)
    await site.read(child)
    await site.let_call(child, called("person"))
    await site.until(child, "task.waiting")
    read = await site.call(parent, called("check_async_task", task_id=child))
    (told,) = read.results
    assert "go on?" in told
    assert "A person must answer it" in told
    await site.o.cancel(child)
    await site.o.cancel(parent)


# --- files -----------------------------------------------------------------------------------------------------------


async def test_what_a_parent_writes_on_one_worker_its_child_reads_and_edits_on_another(site):
    parent = await site.parent("keeper", queue="worker-1")
    await site.read(parent)
    await site.call(parent, called("write_file", file_path="/notes/x.md", content="what is known"))
    child = await site.parent("keeper", parent=parent, queue="worker-2")
    await site.read(child)
    assert "what is known" in (await site.call(child, called("read_file", file_path="/notes/x.md"))).last
    change = {"file_path": "/notes/x.md", "old_string": "is known", "new_string": "was found"}
    await site.call(child, called("edit_file", **change))
    await site.say(child)
    await site.o.wait(child)
    read = await site.call(parent, called("read_file", file_path="/notes/x.md"))
    assert "what was found" in read.last
    await site.say(parent)
    await site.read(parent)
    await site.say(parent)
    task = await ended(site, parent, runs=2)
    assert task.runs[0].worker != (await site.o.get(child)).runs[0].worker
    assert [file.path for file in (await site.o.files(child)).files] == ["/notes/x.md"]


# --- who may be a parent ---------------------------------------------------------------------------------------------


async def test_an_agent_without_messages_is_no_parent(site):
    await site.o.wait(await site.parent("leaf"))
    while not await site.redis.exists(site.store.keys.catalogue()):
        pass  # it is published when the worker has begun to work
    inside = await site.o.submit("wordless", "text")
    task = await site.o.wait(inside.task_id)
    assert (task.status, task.error.type) == (Status.ERROR, "BadInput")
    assert "cannot be woken" in task.error.message
    assert await site.children(inside.task_id) == []
    with pytest.raises(BadInput, match="cannot be woken"):
        await site.o.submit("leaf", "now", parent=inside.task_id)
    await site.o.submit("leaf", "now", parent=inside.task_id, notify_parent=False)
    with pytest.raises(ParentClosed, match="there is no such task"):
        await site.o.submit("leaf", "now", parent="nobody")
    assert len(await site.children(inside.task_id)) == 1


async def test_a_parent_that_is_gone_does_not_hinder_its_child(site):
    parent, (child,) = await lead(site)
    await site.rest(parent)
    await site.redis.delete(site.store.keys.task(parent))
    await site.end(child)
    assert (await site.o.get(child)).status is Status.SUCCESS


# --- cancel ----------------------------------------------------------------------------------------------------------


async def all_cancelled(site, *task_ids):
    """Return when nobody of these works any more."""
    for task_id in task_ids:
        while (task := await site.o.get(task_id)).stopped_at is None:
            pass
        assert (task.status, task.runs[-1].ended_as) == (Status.CANCELLED, EndedAs.CANCELLED)


async def test_a_cancel_closes_the_tree_while_it_grows(site):
    parent = await site.parent("swarm")
    for _ in range(5):
        await site.pop(parent, "submitted")
    assert (await site.o.cancel(parent)).outcome == "cancelled"
    children = await site.children(parent)
    assert len(children) >= 5
    with pytest.raises(ParentClosed, match="it is cancelled"):
        await site.o.submit("leaf", "now", parent=parent)
    while (await site.o.get(parent)).stopped_at is None:
        pass
    states = {(await site.o.get(child)).status for child in await site.children(parent)}
    assert states == {Status.CANCELLED}
    assert (await site.o.get(parent)).seq == 0


@pytest.mark.parametrize("agent", PREPARED)
async def test_a_cancel_stops_whoever_works_in_the_tree(site, agent):
    parent, children = await lead(site, agent, ["wait"] * 3)
    for child in children:
        await site.pop(child, "leaf")
    await site.o.cancel(parent)
    await all_cancelled(site, parent, *children)
    assert (await site.o.get(parent)).seq == 0


async def test_a_child_may_cancel_the_tree_that_it_is_in(site):
    parent, children = await lead(site, children=["wait"] * 10)
    for child in children:
        await site.pop(child, "leaf")
    rebel = await site.parent("rebel", parent=parent)
    await all_cancelled(site, parent, rebel, *children)


async def test_a_task_may_cancel_itself_and_its_children_go_with_it(site):
    parent = await site.parent("quitter")
    await site.pop(parent, "quit")
    children = await site.children(parent)
    assert len(children) == 5
    for child in children:
        await site.pop(child, "leaf")
    await site.answer(parent, "quit")
    await all_cancelled(site, parent, *children)


async def test_children_that_are_kept_go_on_and_their_parent_stays_cancelled(site):
    parent, (child,) = await lead(site)
    await site.rest(parent)
    await site.o.cancel(parent, keep_children=True)
    await site.end(child)
    task = await site.o.get(parent)
    assert ((await site.o.get(child)).status, task.status, task.run_id) == (Status.SUCCESS, Status.CANCELLED, None)


async def test_a_child_that_a_person_cancels_wakes_its_parent(site):
    parent, (child,) = await lead(site)
    await site.rest(parent)
    await site.o.cancel(child)
    assert "<status>cancelled</status>" in (await site.read(parent)).last
    await site.say(parent)
    await ended(site, parent, runs=2)

"""Parents that are at home elsewhere, in the store. Each test runs on fakeredis and on a real server."""

import pytest

from outrider.shared.errors import BadInput, InboxLost, OutriderError, UnknownTask
from outrider.shared.statuses import EndedAs, RunStatus, Status
from outrider.shared.store_external import Busy
from outrider.shared.transitions import Ending, Facts, Submission

LEASE_MS = 30_000


@pytest.fixture
async def parent(store):
    await store.register("p", "mine", "My program")
    return "p"


async def child(store, name, status=Status.SUCCESS):
    """A child of the parent that ends at once."""
    facts = Facts(name, "echo", "echo", "p", ("p",))
    asked = {"task_id": name, "run_id": f"{name}-1", "agent": "echo", "title": "echo", "queue": "q"}
    await store.submit(Submission(**asked, input={"text": "go"}, parent_id="p", ancestors=("p",)))
    claimed = await store.claim(facts, f"{name}-1", worker="w", lease_ms=LEASE_MS)
    settled = await store.settle(claimed.claim, Ending(RunStatus(status), EndedAs.FINISHED, status, result=f'"{name}"'))
    assert settled.bells == ()


async def read(store, reader="a", how="begin", done=0, **more):
    return await store.read_inbox("p", reader, how, lease_ms=LEASE_MS, done=done, **more)


def told(read):
    return [note.task_id for note in read.notes]


async def test_it_is_an_idle_root_that_lists_and_cancels_like_any_task(store, parent):
    task = await store.get(parent)
    assert (task.status, task.phase, task.home, task.agent, task.title) == (
        Status.IDLE,
        None,
        "external",
        "mine",
        "My program",
    )
    assert (task.runs, task.limits.max_turns, task.to_json()["home"]) == ((), None, "external")
    for found in ({"agent": "mine"}, {"statuses": [Status.IDLE]}, {}):
        assert [one.task_id for one in (await store.list(**found)).tasks] == ["p"]
    assert await store.redis.zrange(store.keys.trees(), 0, -1) == [b"p"]
    await child(store, "c")
    assert [one.task_id async for page in store.children_of(["p"]) for one in page] == ["c"]
    assert (await store.cancel("p")).outcome == "cancelled"
    assert (await store.peek("p")).status is Status.CANCELLED


async def test_the_same_id_again_changes_nothing(store, parent):
    await child(store, "c")
    await store.register("p", "another", "another")
    task = await store.get(parent)
    assert (task.agent, task.seq, len((await store.list()).tasks)) == ("mine", 1, 2)


async def test_an_id_of_a_worker_s_task_or_of_one_that_is_being_removed_is_refused(store, parent):
    await child(store, "c")
    with pytest.raises(BadInput, match="task c runs in workers"):
        await store.register("c", "mine", "mine")
    await store.cancel("p")
    await store.redis.hset(store.keys.task("p"), "updated_ms", 1)
    await store.redis.hset(store.keys.task("c"), "updated_ms", 1)
    assert await store.condemn("p", older_than_ms=1000)
    with pytest.raises(OutriderError, match="an old task p is being removed"):
        await store.register("p", "mine", "mine")
    for task_id in await store.condemned():
        await store.erase(await store.remains(task_id))
    await store.register("p", "mine", "mine")
    assert (await store.get("p")).seq == 0


@pytest.mark.usefixtures("parent")
async def test_it_gets_no_runs_by_news(store):
    await child(store, "c", Status.ERROR)
    task = await store.get("p")
    assert (task.status, task.seq, task.runs) == (Status.IDLE, 1, ())


@pytest.mark.usefixtures("parent")
async def test_what_was_read_stays_until_it_was_dealt_with(store):
    for name in "abc":
        await child(store, name)
    first = await read(store)
    assert (told(first), first.status) == (["a"], Status.IDLE)
    assert told(await read(store, how="go on")) == ["a"]
    assert told(await read(store, how="go on", done=first.notes[0].seq, count=5)) == ["b", "c"]
    assert told(await read(store, how="go on", done=1, count=0)) == []
    assert await store.redis.xlen(store.keys.inbox("p")) == 2
    await store.leave_inbox("p", "a", done=2)
    assert told(await read(store, "b")) == ["c"]
    # What nobody was told yet is not dealt with, whatever a reader says.
    assert told(await read(store, "b", "go on", done=99)) == []
    await child(store, "d")
    assert told(await read(store, "b", "go on", done=3)) == ["d"]
    task = await store.peek("p")
    assert (task.cursor, task.given, task.seq) == (3, 3, 4)


@pytest.mark.usefixtures("parent")
async def test_one_reader_at_a_time(store):
    await child(store, "c")
    await read(store, "a")
    busy = await read(store, "b")
    assert isinstance(busy, Busy)
    assert 0 < busy.lease_ms <= LEASE_MS
    await store.redis.hset(store.keys.task("p"), "reader_until_ms", 1)
    assert told(await read(store, "b")) == ["c"]
    for work in (read(store, "a", "go on", done=1), store.leave_inbox("p", "a", done=1)):
        with pytest.raises(InboxLost, match="the inbox of p has another reader now"):
            await work
    assert told(await read(store, "b", "go on")) == ["c"]


@pytest.mark.usefixtures("parent")
async def test_a_reader_whose_lease_ran_out_goes_on_where_no_other_came(store):
    await child(store, "c")
    await read(store, "a")
    await store.redis.hset(store.keys.task("p"), "reader_until_ms", 1)
    assert told(await read(store, "a", "go on")) == ["c"]
    assert isinstance(await read(store, "b"), Busy)


@pytest.mark.usefixtures("parent")
async def test_a_reader_with_a_cursor_in_its_own_state_needs_no_lease(store):
    for name in "abc":
        await child(store, name)
    assert [note.task_id for note in await store.unread("p", saved=0, after=0)] == ["a", "b", "c"]
    assert [note.task_id for note in await store.unread("p", saved=0, after=2)] == ["c"]
    assert [note.task_id for note in await store.unread("p", saved=2, after=2)] == ["c"]
    assert [note.task_id for note in await store.unread("p", saved=0, after=0)] == ["c"]


async def test_an_inbox_that_is_none_is_refused(store):
    with pytest.raises(UnknownTask):
        await store.unread("nobody", saved=0, after=0)
    await store.register("p", "mine", "mine")
    await child(store, "c")
    with pytest.raises(BadInput, match="runs in workers"):
        await store.unread("c", saved=0, after=0)

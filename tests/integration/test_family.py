"""Parents and children in the store: what a parent is told, when it rests, and when it is woken."""

import asyncio
from dataclasses import replace

import pytest

from families import ASKS, DONE, FAILED, LEASE_MS, TIMED_OUT, Tree
from outrider.shared.errors import ClaimLost, ParentClosed
from outrider.shared.statuses import EndedAs, Phase, RunKind, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Cut, NotClaimed


@pytest.fixture
def tree(any_redis, namespace):
    return Tree(Store(any_redis, namespace))


async def test_a_parent_whose_run_ends_well_while_a_child_is_open_rests(tree):
    claim = await tree.working_parent("c")
    settled = await tree.settle(claim, replace(DONE, result='"so far"'))
    task = await tree.store.get("p")
    assert (task.status, task.phase, task.run_id, task.settled) == (Status.RUNNING, Phase.RESTING, None, False)
    assert (task.result, task.runs[0].status, task.runs[0].ended_as) == (None, RunStatus.SUCCESS, EndedAs.RESTED)
    assert settled.bells == ()
    await tree.store.cancel("p")
    assert (await tree.store.get("p")).result is None


async def test_the_end_of_a_child_wakes_a_resting_parent_in_the_same_step(tree):
    await tree.resting_parent("c")
    settled = await tree.run("c")
    parent = await tree.store.get("p")
    assert (parent.status, parent.phase, parent.seq, parent.given) == (Status.PENDING, Phase.QUEUED, 1, 0)
    (bell,) = settled.bells
    assert (bell.task_id, bell.run_id, bell.queue, bell.kind) == ("p", parent.run_id, "parents", RunKind.AGENT)
    held = await tree.claim("p")
    (note,) = held.notifications
    assert (note.id, note.seq, note.agent, note.status) == ("c:c-1:success", 1, "echo", Status.SUCCESS)
    assert (note.result, note.result_length, note.open_children) == ("found it", 8, 0)
    assert (await tree.store.peek("p")).given == 1
    assert await tree.settle(held.claim)
    assert await tree.state("p") == Status.SUCCESS


async def test_children_that_end_while_the_parent_works_share_its_next_run(tree):
    children = [f"c{i}" for i in range(20)]
    claim = await tree.working_parent(*children)
    await asyncio.gather(*(tree.run(child) for child in children))
    settled = await tree.settle(claim)
    assert len(settled.bells) == 1
    held = await tree.claim("p")
    assert sorted(note.task_id for note in held.notifications) == sorted(children)
    assert [note.seq for note in held.notifications] == list(range(1, 21))
    assert sorted(note.open_children for note in held.notifications) == list(range(20))
    await tree.settle(held.claim)
    assert [run.ended_as for run in (await tree.store.get("p")).runs] == [EndedAs.RESTED, EndedAs.FINISHED]


async def test_twenty_children_that_end_at_once_wake_a_resting_parent_once(tree):
    children = [f"c{i}" for i in range(20)]
    await tree.resting_parent(*children)
    answers = await asyncio.gather(*(tree.run(child) for child in children))
    assert sum(len(answer.bells) for answer in answers) == 1
    assert len((await tree.claim("p")).notifications) == 20


async def test_every_attempt_of_a_run_is_given_the_same_notifications(tree):
    await tree.resting_parent("c1", "c2")
    await tree.run("c1")
    first = await tree.claim("p")
    await tree.run("c2")
    await tree.store.give_back(first.claim)
    again = await tree.claim("p")
    assert [n.task_id for n in again.notifications] == [n.task_id for n in first.notifications] == ["c1"]
    settled = await tree.settle(again.claim)
    assert len(settled.bells) == 1


async def test_a_running_parent_takes_what_its_state_does_not_have_and_is_not_woken_for_it(tree):
    claim = await tree.working_parent("c1", "c2")
    await tree.run("c1")
    taken = await tree.store.take(claim, after=0)
    assert [note.task_id for note in taken] == ["c1"]
    await tree.run("c2")
    assert [note.task_id for note in await tree.store.take(claim, after=1)] == ["c2"]
    assert await tree.store.take(claim, after=2) == ()
    assert (await tree.settle(claim)).bells == ()
    assert await tree.state("p") == Status.SUCCESS


async def test_a_stale_claim_takes_nothing(tree):
    claim = await tree.working_parent("c")
    await tree.run("c")
    await tree.store.give_back(claim)
    assert await tree.store.take(claim, after=0) is None
    assert (await tree.store.peek("p")).given == 0


async def test_a_wake_that_fails_does_not_loop_and_what_it_did_not_save_comes_with_the_next(tree):
    await tree.resting_parent("c1", "c2")
    await tree.run("c1")
    settled = await tree.run("p", FAILED)
    assert settled.bells == ()
    assert await tree.state("p") == Status.ERROR
    settled = await tree.run("c2")
    assert [bell.task_id for bell in settled.bells] == ["p"]
    assert [note.task_id for note in (await tree.claim("p")).notifications] == ["c1", "c2"]


async def test_a_run_that_fails_with_news_there_is_followed_by_a_wake(tree):
    claim = await tree.working_parent("c")
    await tree.run("c")
    settled = await tree.settle(claim, FAILED)
    assert [bell.task_id for bell in settled.bells] == ["p"]
    assert await tree.state("p") == Phase.QUEUED


@pytest.mark.parametrize("ending", [TIMED_OUT, ASKS])
async def test_a_parent_that_timed_out_or_asks_is_left_alone(tree, ending):
    claim = await tree.working_parent("c")
    await tree.settle(claim, ending)
    before = await tree.state("p")
    assert (await tree.run("c")).bells == ()
    assert await tree.state("p") == before
    assert (await tree.store.peek("p")).seq == 1


async def test_a_failure_tells_its_type_and_not_its_message(tree):
    await tree.resting_parent("c")
    await tree.run("c", FAILED)
    (note,) = (await tree.claim("p")).notifications
    assert (note.status, note.error_type, note.result) == (Status.ERROR, "ValueError", "")
    assert "secret" not in note.model_dump_json()


async def test_a_parent_that_is_gone_does_not_hinder_its_child(tree):
    await tree.resting_parent("c")
    await tree.store.redis.delete(tree.store.keys.task("p"))
    assert (await tree.run("c")).bells == ()
    assert await tree.state("c") == Status.SUCCESS


async def test_a_child_that_is_not_told_of_does_not_keep_its_parent_open(tree):
    await tree.submit("p")
    held = await tree.claim("p")
    await tree.submit("c", "p", held.claim, notify_parent=False)
    await tree.settle(held.claim)
    assert await tree.state("p") == Status.SUCCESS
    assert (await tree.run("c")).bells == ()
    assert (await tree.store.peek("p")).seq == 0


async def test_a_child_of_a_child_rests_and_wakes_up_the_tree(tree):
    await tree.resting_parent("c")
    held = await tree.claim("c")
    await tree.submit("g", "c", held.claim)
    await tree.settle(held.claim)
    assert [bell.task_id for bell in (await tree.run("g")).bells] == ["c"]
    assert await tree.state("p") == Phase.RESTING
    assert [bell.task_id for bell in (await tree.run("c")).bells] == ["p"]


@pytest.mark.parametrize("ends", ["after its child", "before its child"])
async def test_a_child_that_failed_and_is_woken_is_open_again(tree, ends):
    claim = await tree.working_parent("c")
    held = await tree.claim("c")
    await tree.submit("g", "c", held.claim)
    if ends == "before its child":
        await tree.settle(held.claim, FAILED)
    await tree.run("g")
    if ends == "after its child":
        await tree.settle(held.claim, FAILED)
    assert await tree.state("c") == Phase.QUEUED
    await tree.store.take(claim, after=0)
    await tree.settle(claim)
    assert await tree.state("p") == Phase.RESTING
    assert [bell.task_id for bell in (await tree.run("c")).bells] == ["p"]
    assert next(note.id for note in (await tree.claim("p")).notifications) == "c:c-1:error"


async def test_a_child_of_which_nothing_is_told_is_woken_without_keeping_its_parent_open(tree):
    await tree.submit("p")
    claim = (await tree.claim("p")).claim
    await tree.submit("c", "p", claim, notify_parent=False)
    held = await tree.claim("c")
    await tree.submit("g", "c", held.claim)
    await tree.settle(held.claim, FAILED)
    await tree.run("g")
    assert await tree.state("c") == Phase.QUEUED
    await tree.settle(claim)
    assert await tree.state("p") == Status.SUCCESS


async def test_submits_under_a_parent_that_takes_none_are_refused_and_write_nothing(tree):
    await tree.submit("p")
    held = await tree.claim("p")
    await tree.submit("c", "p", held.claim)
    await tree.store.cancel("p")
    tree.paths["none"] = ()
    before = await tree.store.redis.dbsize()
    with pytest.raises(ParentClosed, match="parent p takes no children: it is cancelled"):
        await tree.submit("d", "p")
    with pytest.raises(ParentClosed, match=r"there is no such task \(see `outrider list`\)"):
        await tree.submit("d", "none")
    with pytest.raises(ParentClosed, match="parent c takes no children"):
        await tree.submit("d", "c")
    with pytest.raises(ClaimLost):
        await tree.submit("d", "p", held.claim)
    assert held.claim.stale
    assert await tree.store.redis.dbsize() == before


async def test_a_stale_run_submits_no_child(tree):
    claim = await tree.working_parent()
    other = replace(claim, epoch=claim.epoch + 1)
    with pytest.raises(ClaimLost):
        await tree.submit("c", "p", other)
    assert (await tree.store.list(parent_id="p")).tasks == ()


async def test_a_cut_holds_before_the_descendants_are_closed(tree):
    """The canceller died between its first step and its walk."""
    claim = await tree.working_parent("c1", "c2")
    running = await tree.claim("c1")
    await tree.store.redis.hincrby(tree.store.keys.task("p"), "cut", 1)
    with pytest.raises(ParentClosed, match="a task above it is cancelled"):
        await tree.submit("g", "c1", running.claim)
    assert await tree.claim("c2") == Cut()
    assert await tree.settle(running.claim) == Cut()
    assert (await tree.state("c1"), await tree.state("c2")) == (Status.CANCELLED, Status.CANCELLED)
    assert await tree.settle(claim)


async def test_cancel_closes_the_whole_tree_and_tells_nobody_in_it(tree):
    claim = await tree.working_parent("c1", "c2")
    held = await tree.claim("c1")
    await tree.submit("g", "c1", held.claim)
    await tree.run("c2")
    answer = await tree.store.cancel("p")
    assert (answer.outcome, answer.bells) == ("cancelled", ())
    states = {name: await tree.state(name) for name in ("p", "c1", "c2", "g")}
    assert states == {"p": "cancelled", "c1": "cancelled", "c2": "success", "g": "cancelled"}
    assert await tree.settle(held.claim) is None
    assert await tree.settle(claim) is None
    assert (await tree.store.peek("p")).seq == 1


async def test_a_tree_wider_than_a_page_is_closed_whole(tree, monkeypatch):
    monkeypatch.setattr("outrider.shared.store_queries.CHUNK", 2)
    names = [f"c{n}" for n in range(5)]
    await tree.working_parent(*names)
    below = []
    for name in names:
        held = await tree.claim(name)
        for n in range(3):
            await tree.submit(f"{name}g{n}", name, held.claim)
            below.append(f"{name}g{n}")
    pages = [[child.task_id for child in page] async for page in tree.store.children_of(names)]
    assert (sorted(name for page in pages for name in page), {len(page) for page in pages}) == (below, {1, 2})
    answer = await tree.store.cancel("p")
    assert (answer.has_children, (await tree.store.cancel("c0g0")).has_children) == (True, False)
    assert {await tree.state(name) for name in ("p", *names, *below)} == {Status.CANCELLED}
    assert await tree.store.unclosed(older_than_ms=-1) == ()


async def test_children_that_are_kept_go_on_and_do_not_revive_their_parent(tree):
    await tree.resting_parent("c")
    await tree.store.cancel("p", keep_children=True)
    assert (await tree.run("c")).bells == ()
    assert (await tree.state("p"), await tree.state("c")) == (Status.CANCELLED, Status.SUCCESS)


async def test_a_parent_hears_of_a_cancel_by_someone_else_and_not_of_its_own(tree):
    await tree.resting_parent("c1", "c2")
    answer = await tree.store.cancel("c1")
    assert [bell.task_id for bell in answer.bells] == ["p"]
    held = await tree.claim("p")
    assert [(note.task_id, note.status) for note in held.notifications] == [("c1", Status.CANCELLED)]
    assert (await tree.store.cancel("c2", by="p")).bells == ()
    await tree.settle(held.claim)
    assert (await tree.state("p"), (await tree.store.peek("p")).seq) == (Status.SUCCESS, 1)


async def test_a_resting_parent_hears_even_of_a_cancel_of_its_own(tree):
    """A run that was replaced meanwhile cancels the child for which the run after it made the task rest."""
    await tree.resting_parent("c")
    answer = await tree.store.cancel("c", by="p")
    assert [bell.task_id for bell in answer.bells] == ["p"]
    await tree.run("p")
    assert await tree.state("p") == Status.SUCCESS


async def test_a_task_that_rests_under_a_cut_is_closed_after_its_last_child(tree):
    """The canceller died between its first step and its walk."""
    await tree.working_parent("c")
    held = await tree.claim("c")
    await tree.submit("g", "c", held.claim)
    await tree.settle(held.claim)
    await tree.store.cancel("p", keep_children=True)
    await tree.store.redis.hincrby(tree.store.keys.task("p"), "cut", 1)
    cut = await tree.claim("g")
    assert [bell.task_id for bell in cut.bells] == ["c"]
    assert await tree.state("c") == Phase.QUEUED
    assert await tree.claim("c") == Cut()
    assert (await tree.state("c"), await tree.state("g")) == (Status.CANCELLED, Status.CANCELLED)


async def test_a_walk_closes_what_was_there_when_it_was_asked_for_and_nothing_else(tree, monkeypatch):
    async def dies(task_id):
        raise ConnectionError

    claim = await tree.working_parent("c")
    held = await tree.claim("c")
    await tree.submit("g", "c", held.claim)
    await tree.settle(claim, FAILED)
    with monkeypatch.context() as patch:
        patch.setattr(tree.store, "close_below", dies)
        with pytest.raises(ConnectionError):
            await tree.store.cancel("p")
    await tree.submit("later", "p")
    await tree.store.close_below("p")
    states = [await tree.state(name) for name in ("p", "c", "g", "later")]
    assert states == [Status.ERROR, Status.CANCELLED, Status.CANCELLED, Phase.QUEUED]
    assert await tree.store.unclosed(older_than_ms=-1) == ()


async def test_a_doubled_settle_tells_once_and_rings_until_the_bell_is_answered(tree):
    await tree.resting_parent("c")
    held = await tree.claim("c")
    first = await tree.settle(held.claim)
    assert [bell.task_id for bell in first.bells] == ["p"]
    assert await tree.settle(held.claim) == first  # its reply may have been lost
    assert (await tree.store.peek("p")).seq == 1
    await tree.claim("p")
    assert (await tree.settle(held.claim)).bells == ()


async def test_a_settle_that_is_sent_again_after_a_wake_starts_no_second_run(tree):
    claim = await tree.working_parent("c")
    await tree.run("c")
    first = await tree.settle(claim)
    assert [bell.task_id for bell in first.bells] == ["p"]
    assert await tree.settle(claim) == first
    assert await tree.store.redis.llen(tree.store.keys.runs("p")) == 2
    await tree.claim("p")
    assert (await tree.settle(claim)).bells == ()


async def test_a_long_result_is_cut_in_the_inbox_and_whole_in_the_record(tree):
    await tree.resting_parent("c")
    await tree.run("c", replace(DONE, result='"' + "x" * 200_000 + '"'))
    (note,) = (await tree.claim("p")).notifications
    assert (len(note.result), note.result_length) == (80_000, 200_000)
    assert len((await tree.store.get("c")).result) == 200_000


def losing_replies(store, monkeypatch):
    """Each script is sent twice, as redis-py does when the first reply was lost with the connection."""
    once = store._scripts

    async def twice(name, keys, *args):
        await once(name, keys, *args)
        return await once(name, keys, *args)

    monkeypatch.setattr(store, "_scripts", twice)


async def test_a_lost_reply_loses_no_bell(tree, monkeypatch):
    await tree.resting_parent("c")
    held = await tree.claim("c")
    losing_replies(tree.store, monkeypatch)
    settled = await tree.settle(held.claim)
    assert [(bell.task_id, bell.queue) for bell in settled.bells] == [("p", "parents")]
    assert (await tree.store.peek("p")).seq == 1


async def test_a_cancel_whose_reply_was_lost_is_told_as_one_and_closes_the_tree(tree, monkeypatch):
    await tree.resting_parent("c")
    held = await tree.claim("c")
    await tree.submit("g", "c", held.claim)
    losing_replies(tree.store, monkeypatch)
    answer = await tree.store.cancel("c")
    assert (answer.outcome, [bell.task_id for bell in answer.bells]) == ("cancelled", ["p"])
    assert (await tree.state("g"), (await tree.store.peek("p")).seq) == (Status.CANCELLED, 1)


async def test_the_tree_of_a_parent_that_failed_can_be_stopped(tree):
    claim = await tree.working_parent("c1", "c2")
    running = await tree.claim("c1")
    await tree.settle(claim, FAILED)
    answer = await tree.store.cancel("p")
    assert (answer.outcome, answer.status) == ("already_finished", Status.ERROR)
    assert (await tree.state("c1"), await tree.state("c2")) == (Status.CANCELLED, Status.CANCELLED)
    assert await tree.settle(running.claim) is None
    assert await tree.state("p") == Status.ERROR


async def test_a_walk_that_a_canceller_did_not_finish_is_known_until_it_is_done(tree, monkeypatch):
    claim = await tree.working_parent("c1", "c2")
    await tree.settle((await tree.claim("c1")).claim, ASKS)
    await tree.settle(claim)

    async def dies(task_id):
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(tree.store, "close_below", dies)
        with pytest.raises(ConnectionError):
            await tree.store.cancel("p")
    assert await tree.state("c1") == Phase.ASKING
    assert await tree.store.unclosed(older_than_ms=60_000) == ()
    assert await tree.store.unclosed(older_than_ms=-1) == ("p",)
    await tree.store.close_below("p")
    assert (await tree.state("c1"), await tree.state("c2")) == (Status.CANCELLED, Status.CANCELLED)
    assert await tree.store.unclosed(older_than_ms=-1) == ()


async def test_a_walk_leaves_listed_what_was_cancelled_again_meanwhile(tree, monkeypatch):
    await tree.working_parent("c1")
    children_of = tree.store.children_of
    meanwhile = Store(tree.store.redis, tree.store.keys.namespace)

    async def dies(task_id):
        raise ConnectionError

    async def cancelled_again(above):
        async for children in children_of(above):
            yield children
        before = await meanwhile.now_ms()
        await meanwhile.update("p", {"text": "go on"})
        await tree.submit("c2", "p", (await tree.claim("p")).claim)
        while await meanwhile.now_ms() == before:
            pass
        with pytest.raises(ConnectionError):
            await meanwhile.cancel("p")

    monkeypatch.setattr(meanwhile, "close_below", dies)
    with monkeypatch.context() as patch:
        patch.setattr(tree.store, "children_of", cancelled_again)
        await tree.store.cancel("p")
    assert (await tree.state("c1"), await tree.state("c2")) == (Status.CANCELLED, Phase.QUEUED)
    assert await tree.store.unclosed(older_than_ms=-1) == ("p",)
    await tree.store.close_below("p")
    assert await tree.state("c2") == Status.CANCELLED
    assert await tree.store.unclosed(older_than_ms=-1) == ()


async def test_a_task_that_is_cancelled_between_runs_tells_its_last_run(tree):
    await tree.resting_parent("c")
    held = await tree.claim("c")
    await tree.settle(held.claim, ASKS)
    await tree.store.cancel("c")
    *_, note = (await tree.claim("p")).notifications
    assert note.id == f"c:{held.run.run_id}:cancelled"


async def test_a_wake_forgets_the_error_before_it(tree):
    claim = await tree.working_parent("c")
    await tree.settle(claim, FAILED)
    assert (await tree.store.peek("p")).error.type == "ValueError"
    await tree.run("c")
    assert (await tree.state("p"), (await tree.store.peek("p")).error) == (Phase.QUEUED, None)


async def test_an_inbox_keeps_what_is_not_in_the_saved_state(tree):
    store, key = tree.store, tree.store.keys
    await tree.resting_parent("a", "b", "c")
    await tree.run("a")
    held = await tree.claim("p")
    await tree.run("b")
    await store.redis.hset(key.task("p"), "cursor", 1)  # as the put does that saves the run's input
    assert await store.redis.xlen(key.inbox("p")) == 2
    await tree.settle(held.claim, FAILED)
    assert [entry for entry, _ in await store.redis.xrange(key.inbox("p"))] == [b"2-0"]
    held = await tree.claim("p")
    await tree.run("c")
    again = await store.claim(tree.facts("p"), held.run.run_id, worker="w", lease_ms=LEASE_MS)
    assert again == NotClaimed("dropped", "running")
    assert [note.task_id for note in held.notifications] == ["b"]
    await tree.settle(held.claim, FAILED)  # its state was not saved
    assert [note.task_id for note in (await tree.claim("p")).notifications] == ["b", "c"]

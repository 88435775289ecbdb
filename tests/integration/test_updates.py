"""Messages to tasks in the store: what they start, stop, await and drop."""

import json
from dataclasses import replace

import pytest

from families import DONE, FAILED, LEASE_MS, TIMED_OUT, Tree
from outrider.shared.errors import ClaimLost, TaskActive, UnknownTask
from outrider.shared.grades import Grade
from outrider.shared.limits import Usage
from outrider.shared.records import Interrupt
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status, Strategy
from outrider.shared.store import Store
from outrider.shared.transitions import Cut, Ending, NotClaimed

INTERRUPT, ENQUEUE = Strategy
USED = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, usage=Usage(turns=3, total_tokens=30))
QUESTION = Ending(
    RunStatus.SUCCESS,
    EndedAs.PAUSED,
    Status.WAITING,
    task_phase=Phase.ASKING,
    interrupts=(Interrupt(id="q1", value={"go": "on?"}),),
)


@pytest.fixture
def tree(any_redis, namespace):
    return Tree(Store(any_redis, namespace))


def text(words, **state):
    return {"text": words, "state": state}


async def saved(tree, name, run_id):
    """Stand for the saver, which notes whose input is in the saved state."""
    await tree.store.redis.hset(tree.store.keys.task(name), "saved_run", run_id)


@pytest.mark.parametrize("ending", [DONE, FAILED, TIMED_OUT])
async def test_a_task_that_ended_goes_on_with_the_message(tree, ending):
    await tree.submit("t", queue="slow")
    held = await tree.claim("t")
    await saved(tree, "t", held.run.run_id)
    await tree.settle(held.claim, ending)
    updated = await tree.store.update("t", text("more", files=None))
    (bell,) = updated.bells
    assert (bell.task_id, bell.run_id, bell.queue) == ("t", updated.run_id, "slow")
    task = await tree.store.get("t")
    assert (task.status, task.run_id, task.error) == (Status.PENDING, updated.run_id, None)
    held = await tree.claim("t")
    assert held.input == text("more", files=None)
    await tree.settle(held.claim)
    assert [run.status for run in (await tree.store.get("t")).runs] == [ending.run_status, RunStatus.SUCCESS]


async def test_a_cancelled_task_goes_on_with_what_stands_in_its_inbox(tree):
    claim = await tree.working_parent("c")
    await saved(tree, "p", claim.run_id)
    await tree.store.cancel("p", keep_children=True)
    await tree.run("c")
    assert await tree.state("p") == Status.CANCELLED
    await tree.store.update("p", text("go on"))
    assert [note.task_id for note in (await tree.claim("p")).notifications] == ["c"]


async def test_what_a_run_did_not_save_comes_with_the_next(tree):
    await tree.submit("t")
    for message in ("first", "second"):
        await tree.store.cancel("t")
        await tree.store.update("t", text(message, files={message: 1}, messages=[message]))
    held = await tree.claim("t")
    assert held.input == text("first\n\nsecond", files={"second": 1}, messages=["first", "second"])
    await tree.settle(held.claim, FAILED)
    await tree.store.update("t", text("third"))
    held = await tree.claim("t")
    assert held.input["text"] == "first\n\nsecond\n\nthird"
    await saved(tree, "t", held.run.run_id)
    await tree.store.update("t", text("fourth"), INTERRUPT)
    held = await tree.claim("t")
    assert held.input == text("fourth")
    await tree.settle(held.claim)
    await tree.store.update("t", text("fifth"))
    assert (await tree.claim("t")).input == text("fifth")


async def test_what_a_run_did_not_save_comes_with_a_wake_too(tree):
    await tree.resting_parent("c")
    await tree.store.update("p", text("more"))
    await tree.run("p", FAILED)
    await tree.run("c")
    held = await tree.claim("p")
    assert (held.input["text"], [note.task_id for note in held.notifications]) == ("more", ["c"])
    await tree.settle(held.claim, FAILED)
    await tree.store.update("p", text("still more"))
    assert (await tree.claim("p")).input["text"] == "more\n\nstill more"


async def test_limits_count_anew(tree):
    await tree.submit("t")
    await tree.run("t", USED)
    await tree.store.update("t", text("more"))
    task = await tree.store.get("t")
    assert (task.usage.turns, task.usage_before.turns, task.working_ms) == (3, 3, 0)


@pytest.mark.parametrize("phase", [Phase.QUEUED, Phase.WORKING])
async def test_an_active_run_is_named_and_left_alone(tree, phase):
    await tree.submit("t")
    if phase is Phase.WORKING:
        held = await tree.claim("t")
    before = await tree.store.get("t")
    with pytest.raises(TaskActive, match="t-1") as refused:
        await tree.store.update("t", text("more"))
    assert "\n" not in str(refused.value)
    assert await tree.store.get("t") == before
    if phase is Phase.WORKING:
        await tree.settle(held.claim)
        assert await tree.state("t") == Status.SUCCESS


async def test_an_unknown_task_is_told(tree):
    with pytest.raises(UnknownTask):
        await tree.store.update("nobody", text("more"))


async def test_an_update_of_a_resting_task_starts_at_once_and_it_rests_again(tree):
    await tree.resting_parent("c")
    assert (await tree.store.update("p", text("more"), ENQUEUE)).run_id
    await tree.run("p")
    assert await tree.state("p") == Phase.RESTING
    await tree.run("c")
    assert await tree.state("p") == Phase.QUEUED


@pytest.mark.parametrize("parent", [DONE, FAILED])
async def test_a_child_that_is_updated_after_its_parent_ended_is_open_again_and_wakes_it(tree, parent):
    claim = await tree.working_parent("c")
    await tree.run("c")
    await tree.store.take(claim, 0)
    await tree.settle(claim, parent)
    ended = await tree.state("p")
    await tree.store.update("c", text("more"))
    assert await tree.store.redis.smembers(tree.store.keys.open_children("p")) == {b"c"}
    held = await tree.claim("c")
    assert await tree.state("p") == ended
    settled = await tree.settle(held.claim)
    assert [bell.task_id for bell in settled.bells] == ["p"]
    woken = await tree.claim("p")
    assert woken.notifications[-1].id == f"c:{held.run.run_id}:success"
    assert woken.notifications[-1].open_children == 0


async def test_a_child_of_which_nothing_is_told_is_not_open_again(tree):
    claim = await tree.working_parent()
    await tree.submit("c", "p", claim, notify_parent=False)
    await tree.run("c")
    await tree.store.update("c", text("more"))
    await tree.settle(claim)
    assert await tree.state("p") == Status.SUCCESS


async def test_a_task_below_a_cancelled_one_runs_again_and_what_it_left_stays_cut(tree):
    claim = await tree.working_parent("c")
    below = await tree.claim("c")
    await tree.submit("g", "c", below.claim)
    await tree.store.cancel("p")
    assert await tree.state("c") == await tree.state("g") == Status.CANCELLED
    await tree.store.update("c", text("all the same"))
    held = await tree.claim("c")
    await tree.submit("g2", "c", held.claim)
    await tree.store.close_below("p")
    await tree.settle(held.claim)
    assert (await tree.state("c"), await tree.state("g")) == (Phase.RESTING, Status.CANCELLED)
    await tree.run("g2")
    await tree.run("c")
    assert (await tree.state("c"), await tree.state("p")) == (Status.SUCCESS, Status.CANCELLED)
    assert claim.run_id == (await tree.store.get("p")).runs[-1].run_id


@pytest.mark.parametrize("ending", [None, DONE], ids=["pending", "ended"])
async def test_who_walks_below_a_cancelled_task_again_leaves_what_was_updated_alone(tree, ending):
    for name, parent in (("top", None), ("middle", "top"), ("low", "middle")):
        await tree.submit(name, parent, notify_parent=False)
    if ending:
        await tree.run("middle", ending)
    await tree.store.cancel("top")
    await tree.store.update("low", text("go on"))
    await tree.store.close_below("top")
    assert await tree.state("low") == Phase.QUEUED
    await tree.run("low")
    assert await tree.state("low") == Status.SUCCESS


async def test_an_update_beats_a_worker_that_found_the_task_cut(tree, monkeypatch):
    await tree.working_parent("c")
    await tree.store._cancel_one(await tree.store.peek("p"), keep_children=False, tell_parent=True)
    scripts, store = tree.store._scripts, tree.store

    async def late(name, keys, *args):
        reply = await scripts(name, keys, *args)
        if reply[0] == b"cut":
            monkeypatch.setattr(store, "_scripts", scripts)
            await store.update("c", text("all the same"), INTERRUPT)
        return reply

    monkeypatch.setattr(store, "_scripts", late)
    assert await tree.claim("c") == Cut()
    assert (await tree.claim("c")).input["text"] == "all the same"


async def test_a_question_that_is_dropped_is_told(tree):
    await tree.submit("t")
    await tree.run("t", QUESTION)
    updated = await tree.store.update("t", text("never mind"))
    assert [(one.id, one.value) for one in updated.dropped] == [("q1", {"go": "on?"})]
    assert (await tree.store.get("t")).interrupts == ()
    await tree.run("t")
    assert (await tree.store.update("t", text("more"))).dropped == ()


# Overtaking


async def test_an_interrupt_overtakes_the_active_run_in_one_step(tree):
    await tree.submit("t")
    held = await tree.claim("t")
    await saved(tree, "t", held.run.run_id)
    channel = tree.store.redis.pubsub()
    await channel.subscribe(tree.store.keys.control())
    await channel.get_message(timeout=5)
    updated = await tree.store.update("t", text("rather this"), INTERRUPT)
    assert (updated.overtaken, len(updated.bells)) == (held.run.run_id, 1)
    assert (await channel.get_message(timeout=5))["data"] == held.run.run_id.encode()
    await channel.aclose()
    old, new = (await tree.store.get("t")).runs
    assert (old.status, old.ended_as) == (RunStatus.CANCELLED, EndedAs.OVERTAKEN)
    assert (new.run_id, new.status) == (updated.run_id, RunStatus.PENDING)
    again = await tree.claim("t")
    assert again.input == text("rather this")
    # Nothing of the old run's code is taken; its slot is free when it has ended.
    assert await tree.settle(held.claim) is None
    assert not await tree.store.emit(held.claim, [("step", {})])
    slots = tree.store.keys.slots("echo")
    assert await tree.store.redis.zcard(slots) == 2
    assert await tree.store.heartbeat([held.claim], lease_ms=LEASE_MS) == [False]
    assert await tree.store.stopped(held.claim)
    assert await tree.store.redis.zrange(slots, 0, -1) == [f"t/{again.run.run_id}".encode()]
    await tree.settle(again.claim)
    assert await tree.state("t") == Status.SUCCESS


async def test_a_pending_run_is_overtaken_and_its_message_is_not_lost(tree):
    await tree.submit("t", input=text("first"))
    updated = await tree.store.update("t", text("and this"), INTERRUPT)
    dropped = await tree.store.claim(tree.facts("t"), "t-1", worker="w", lease_ms=LEASE_MS)
    assert dropped == NotClaimed("dropped", "cancelled")
    held = await tree.claim("t")
    assert (held.run.run_id, held.input["text"]) == (updated.run_id, "first\n\nand this")
    keys = tree.store.keys
    assert await tree.store.redis.zcard(keys.ring_at()) == 0
    assert await tree.store.redis.exists(keys.input("t-1")) == 0


async def test_what_an_overtaken_run_uses_until_it_stops_counts_and_bounds_nothing(tree, monkeypatch):
    def used(turns):
        return Usage(turns=turns, total_tokens=10 * turns, by_model={"m": {"total_tokens": 10 * turns}})

    await tree.submit("t")
    held = await tree.claim("t")
    await tree.store.heartbeat([held.claim], lease_ms=LEASE_MS, used={held.run.run_id: used(1)})
    await tree.store.update("t", text("rather this"), INTERRUPT)
    second = await tree.claim("t")
    assert second.task.usage_counted == second.task.usage_before == used(1)
    await tree.store.update("t", text("or this"), INTERRUPT)
    third = await tree.claim("t")
    scripts, store = tree.store._scripts, tree.store

    async def beside(name, keys, *args):
        """Let the other one stop between the two calls of the first."""
        monkeypatch.setattr(store, "_scripts", scripts)
        reply = await scripts(name, keys, *args)
        assert await store.stopped(second.claim, used(6))
        return reply

    monkeypatch.setattr(store, "_scripts", beside)
    for claim, turns in ((held.claim, 3), (held.claim, 3), (second.claim, 6)):
        assert await store.stopped(claim, used(turns))
    task = await tree.store.peek("t")
    assert (task.usage, task.usage_counted) == (used(8), used(1))
    await tree.settle(third.claim, replace(DONE, usage=used(3)))
    assert (await tree.store.get("t")).usage == used(10)
    await tree.store.update("t", text("more"))
    assert (await tree.claim("t")).task.usage_counted == used(3)


async def test_a_cancelled_run_that_stops_after_the_next_began_counts_too(tree):
    await tree.submit("t")
    held = await tree.claim("t")
    await tree.store.cancel("t")
    await tree.store.update("t", text("all the same"))
    assert await tree.store.stopped(held.claim, Usage(turns=2, grader=Usage(turns=1)))
    await tree.run("t", USED)
    usage = (await tree.store.get("t")).usage
    assert (usage.turns, usage.grader.turns) == (5, 1)


# Follow-ups


async def test_follow_ups_start_in_order_and_only_the_last_ending_is_told(tree):
    await tree.resting_parent("c")
    held = await tree.claim("c")
    await saved(tree, "c", held.run.run_id)
    for number in (1, 2):
        assert (await tree.store.update("c", text(f"{number}"), ENQUEUE)).run_id is None
    assert (await tree.store.peek("c")).follow_ups == 2
    for number, ending in ((1, FAILED), (2, DONE)):
        settled = await tree.settle(held.claim, ending)
        assert [bell.task_id for bell in settled.bells] == ["c"]
        assert (await tree.state("p"), (await tree.store.peek("p")).seq) == (Phase.RESTING, 0)
        task = await tree.store.get("c")
        assert (task.status, task.error, task.follow_ups) == (Status.PENDING, None, 2 - number)
        assert task.runs[-2].status is ending.run_status
        held = await tree.claim("c")
        assert held.input == text(f"{number}")
        await saved(tree, "c", held.run.run_id)
    settled = await tree.settle(held.claim)
    assert [bell.task_id for bell in settled.bells] == ["p"]
    assert await tree.state("c") == Status.SUCCESS
    kinds = [event.type for event in await tree.store.events("c", "0-0", reader=tree.store.redis)]
    assert kinds.count("task.settled") == 1
    assert kinds.count("run.ended") == 2


async def test_a_follow_up_comes_before_a_wake_and_takes_the_news_along(tree):
    claim = await tree.working_parent("c")
    await tree.run("c")
    await tree.store.update("p", text("more"), ENQUEUE)
    await tree.settle(claim)
    held = await tree.claim("p")
    assert held.input["text"] == "more"
    assert [note.task_id for note in held.notifications] == ["c"]


async def test_a_follow_up_waits_for_the_answer_to_a_question(tree):
    await tree.submit("t")
    held = await tree.claim("t")
    await tree.store.update("t", text("later"), ENQUEUE)
    await tree.settle(held.claim, QUESTION)
    await tree.store.update("t", text("still later"), ENQUEUE)
    task = await tree.store.get("t")
    assert (task.status, task.follow_ups, [one.id for one in task.interrupts]) == (Status.WAITING, 2, ["q1"])
    updated = await tree.store.update("t", text("now"), INTERRUPT)
    assert [one.id for one in updated.dropped] == ["q1"]
    await tree.run("t")
    assert (await tree.claim("t")).input["text"] == "later"


async def test_a_cancel_drops_the_follow_ups_and_tells_how_many(tree):
    await tree.submit("t")
    held = await tree.claim("t")
    for number in range(3):
        await tree.store.update("t", text(f"{number}"), ENQUEUE)
    answer = await tree.store.cancel("t")
    assert (answer.outcome, answer.follow_ups) == ("cancelled", 3)
    assert await tree.settle(held.claim) is None
    task = await tree.store.get("t")
    assert (task.status, task.follow_ups, len(task.runs)) == (Status.CANCELLED, 0, 1)
    await tree.store.update("t", text("again"))
    await tree.run("t")
    assert await tree.state("t") == Status.SUCCESS


async def test_a_run_that_is_given_up_goes_on_with_the_follow_up(tree):
    await tree.submit("t")
    held = await tree.claim("t")
    await tree.store.update("t", text("again"), ENQUEUE)
    await tree.settle(held.claim, Ending(RunStatus.ERROR, EndedAs.LOST, Status.ERROR, error_type="WorkerLost"))
    assert (await tree.claim("t")).input["text"] == "again"


async def test_a_parent_is_told_which_notes_a_later_run_has_overtaken(tree):
    claim = await tree.working_parent("a", "b", "c")
    for child in "abc":
        await tree.run(child)
    await tree.store.update("a", text("more"))
    assert [note.overtaken for note in await tree.store.take(claim, 0)] == [True, False, False]
    await tree.run("a")
    await tree.store.update("b", text("more"))
    await tree.settle(claim, FAILED)
    notes = (await tree.claim("p")).notifications
    assert [(note.task_id, note.overtaken) for note in notes] == [("a", True), ("b", True), ("c", False), ("a", False)]


async def test_what_a_grader_did_overtakes_nothing(tree):
    claim = await tree.working_parent()
    await tree.submit("c", "p", claim, grade_queue="graders")
    held = await tree.claim("c")
    await tree.settle(held.claim)
    grade = Grade(
        result="satisfied", explanation="", iteration=0, grading_run_id="g", graded_run_id="c-1", result_sha256=""
    )
    await tree.run("c", replace(DONE, grade=grade))
    (note,) = await tree.store.take(claim, 0)
    assert (note.run_id, note.overtaken) == (held.run.run_id, False)


# Repeated calls


def losing_replies(store, monkeypatch):
    """Send every update twice, as a client does that lost the first answer; the second answer counts."""
    scripts = store._scripts

    async def twice(name, keys, *args):
        first = await scripts(name, keys, *args)
        second = await scripts(name, keys, *args)
        assert name != "update" or first == second
        return second

    monkeypatch.setattr(store, "_scripts", twice)


@pytest.mark.parametrize("strategy", [None, INTERRUPT, ENQUEUE])
async def test_a_lost_reply_gives_a_message_once(tree, monkeypatch, strategy):
    await tree.submit("t")
    held = await tree.claim("t")
    if strategy is None:
        await tree.settle(held.claim, QUESTION)
    losing_replies(tree.store, monkeypatch)
    updated = await tree.store.update("t", text("once"), strategy)
    task = await tree.store.get("t")
    assert (len(task.runs), task.follow_ups) == ((1, 1) if strategy is ENQUEUE else (2, 0))
    assert len(updated.bells) == (strategy is not ENQUEUE)
    assert [one.id for one in updated.dropped] == (["q1"] if strategy is None else [])
    assert updated.overtaken == (held.run.run_id if strategy is INTERRUPT else None)


@pytest.mark.parametrize("strategy", [INTERRUPT, ENQUEUE])
async def test_the_same_key_gives_a_message_once(tree, strategy):
    await tree.submit("t")
    held = await tree.claim("t")
    first = await tree.store.update("t", text("once"), strategy, key="k")
    again = await tree.store.update("t", text("once"), strategy, key="k")
    assert again.run_id == first.run_id
    assert again.bells == ()
    task = await tree.store.get("t")
    assert len(task.runs) + task.follow_ups == 2
    assert held.run.run_id == task.runs[0].run_id


async def test_a_record_does_not_grow_with_each_message(tree):
    await tree.submit("t")
    held = await tree.claim("t")
    keys = tree.store.keys
    sizes = []
    for number in range(100):
        await tree.store.update("t", text("one more"), ENQUEUE)
        if number in {50, 98}:
            fields = [await tree.store.redis.hgetall(key) for key in (keys.task("t"), keys.large("t"))]
            sizes.append([sum(map(len, (*one, *one.values()))) for one in fields])
    assert sizes[0] == sizes[1]
    await tree.store.cancel("t")
    assert await tree.store.stopped(held.claim)


async def test_a_call_that_comes_again_late_tells_nothing_of_later_ones(tree):
    await tree.submit("t")
    await tree.run("t")
    first = await tree.store.update("t", text("one"), key="k")
    await tree.run("t", QUESTION)
    assert (await tree.store.update("t", text("two"))).dropped
    again = await tree.store.update("t", text("one"), key="k")
    assert (again.run_id, again.dropped, again.overtaken) == (first.run_id, (), None)


async def test_an_update_of_a_run_that_lost_its_claim_is_refused(tree):
    claim = await tree.working_parent("c")
    below = await tree.claim("c")
    await tree.submit("g", "c", below.claim)
    await tree.store.update("g", text("from the top"), ENQUEUE, claim=claim)
    await tree.store.cancel("p", keep_children=True)
    before = json.dumps((await tree.store.get("g")).to_json())
    with pytest.raises(ClaimLost):
        await tree.store.update("g", text("from the top"), ENQUEUE, claim=claim)
    assert json.dumps((await tree.store.get("g")).to_json()) == before
    assert claim.stale


async def test_an_update_that_saw_an_earlier_run_looks_again(tree, monkeypatch):
    await tree.submit("t")
    await tree.run("t")
    peek, store = tree.store.peek, tree.store

    async def overtaken(task_id):
        seen = await peek(task_id)
        monkeypatch.setattr(store, "peek", peek)
        await store.update("t", text("first"))
        return seen

    monkeypatch.setattr(store, "peek", overtaken)
    with pytest.raises(TaskActive):
        await store.update("t", text("second"))
    assert (await tree.claim("t")).input["text"] == "first"


async def test_a_cancel_that_is_sent_again_leaves_an_update_alone(tree, monkeypatch):
    await tree.submit("t")
    scripts, store = tree.store._scripts, tree.store

    async def again(name, keys, *args):
        await scripts(name, keys, *args)
        monkeypatch.setattr(store, "_scripts", scripts)
        await store.update("t", text("after all"))
        return await scripts(name, keys, *args)

    monkeypatch.setattr(store, "_scripts", again)
    answer = await store.cancel("t")
    assert (answer.outcome, answer.bells) == ("cancelled", ())
    assert await tree.state("t") == Phase.QUEUED


async def test_a_question_that_expires_gives_way_to_the_follow_up(tree):
    await tree.submit("c", answer_within_ms=1000)
    held = await tree.claim("c")
    await saved(tree, "c", held.run.run_id)
    await tree.settle(held.claim, QUESTION)
    await tree.store.update("c", text("then without"), ENQUEUE)
    asked = held.run.run_id
    keys = tree.store.keys
    await tree.store.redis.zadd(keys.answer_until(), {f"c/{asked}": 1})
    settled = await tree.store.expire(tree.facts("c"), asked)
    assert [bell.task_id for bell in settled.bells] == ["c"]
    task = await tree.store.get("c")
    assert (task.status, task.error, task.interrupts, task.follow_ups) == (Status.PENDING, None, (), 0)
    assert (await tree.claim("c")).input == text("then without")
    assert await tree.store.expire(tree.facts("c"), asked) is None


async def test_an_answer_that_was_not_saved_does_not_come_with_a_message(tree):
    await tree.submit("t")
    held = await tree.claim("t")
    await saved(tree, "t", held.run.run_id)
    await tree.settle(held.claim, QUESTION)
    await tree.store.answer(tree.facts("t"), "yes")
    await tree.store.update("t", text("never mind"), INTERRUPT)
    assert (await tree.claim("t")).input == text("never mind")

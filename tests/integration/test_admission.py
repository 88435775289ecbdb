"""Admission: how many runs of an agent are at work at once and whose turn it is, and which submits are refused.

On fakeredis and on a real server.
"""

from dataclasses import replace

import pytest

from families import submission
from outrider.shared.context import Claim
from outrider.shared.errors import LimitReached
from outrider.shared.limits import Limits
from outrider.shared.statuses import EndedAs, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Claimed, Ending, Facts

LEASE_MS = 30_000
DONE = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"done"')


class Queue:
    """Runs of one agent that has two slots."""

    def __init__(self, store):
        self.store = store
        self.held = {}

    async def submit(self, *names):
        for at, name in enumerate(names):
            await self.store.submit(submission(name))
            # As if a millisecond lay between any two.
            created = int(await self.store.redis.hget(self.store.keys.run(f"{name}-1"), "created_ms"))
            await self.store.redis.hset(self.store.keys.run(f"{name}-1"), "created_ms", created + at)

    async def bell(self, name, slots=2):
        """A worker answers a bell; whether it got a claim."""
        facts, run_id = Facts(name, "echo"), (await self.store.peek(name)).run_id
        claimed = await self.store.claim(facts, run_id, worker="w", lease_ms=LEASE_MS, slots=slots)
        if isinstance(claimed, Claimed):
            self.held[name] = claimed.claim
        return isinstance(claimed, Claimed)

    async def bells(self, *names):
        return [name for name in names if await self.bell(name)]

    async def end(self, name):
        assert await self.store.settle(self.held.pop(name), DONE)

    async def admitted(self, slots=2, lease_ms=LEASE_MS):
        """Whose bells are rung now."""
        bells = await self.store.admit({"other": 0, "echo": slots}, lease_ms=lease_ms)
        assert all(bell.run_id == f"{bell.task_id}-1" and bell.queue == "subagents" for bell in bells)
        return [bell.task_id for bell in bells]

    async def slots(self):
        members = await self.store.redis.zrange(self.store.keys.slots("echo"), 0, -1)
        return [member.decode().partition("/")[0] for member in members]

    async def lapse(self, name):
        """Let a lease, or the time for which a slot is kept, have run out."""
        await self.store.redis.zadd(self.store.keys.slots("echo"), {f"{name}/{name}-1": 1}, xx=True)
        await self.store.redis.zadd(self.store.keys.leases(), {f"{name}/{name}-1": 1}, xx=True)
        await self.store.redis.hset(self.store.keys.run(f"{name}-1"), "lease_until_ms", 1)


@pytest.fixture
def queue(any_redis, namespace):
    return Queue(Store(any_redis, namespace, ring_again_ms=1_000))


async def test_as_many_runs_are_claimed_as_there_are_slots(queue):
    await queue.submit(*"abcd")
    assert await queue.bells(*"abcd") == ["a", "b"]
    task = await queue.store.get("c")
    assert (task.status, task.phase, task.waits_for, task.attempt) == ("pending", "queued", "slot", 0)
    assert task.runs[0].status is RunStatus.PENDING
    assert (await queue.store.get("a")).waits_for is None


async def test_an_agent_without_a_bound_waits_for_nothing(queue):
    await queue.submit(*"abc")
    assert all([await queue.bell(name, slots=0) for name in "abc"])
    assert await queue.admitted(slots=0) == []


async def test_one_that_waits_is_not_rung_again_like_an_overdue_bell(queue):
    await queue.submit(*"abc")
    await queue.bells(*"abc")
    seconds, _ = await queue.store.redis.time()
    due = await queue.store.redis.zscore(queue.store.keys.ring_at(), "c/c-1")
    assert due > seconds * 1000 + 60_000
    assert (await queue.store.sweep(lease_ms=LEASE_MS)).overdue == ()


async def test_a_bell_that_comes_again_changes_nothing_of_the_order(queue):
    await queue.submit(*"abcd")
    await queue.bells(*"abdc")
    before = await queue.slots()
    assert await queue.bells(*"dc") == []
    assert await queue.slots() == before == ["c", "d", "a", "b"]
    events = await queue.store.events("d", "0", reader=queue.store.redis)
    assert [event.type for event in events] == ["task.submitted", "run.waits"]


async def test_a_slot_that_is_free_is_for_the_one_that_was_made_first(queue):
    await queue.submit(*"abcde")
    await queue.bells(*"abedc")
    await queue.end("a")
    assert await queue.admitted() == ["c"]
    assert await queue.admitted() == []
    assert await queue.bells(*"dec") == ["c"]
    await queue.end("b")
    await queue.end("c")
    assert await queue.admitted() == ["d", "e"]
    assert await queue.bells(*"ed") == ["e", "d"]
    assert (await queue.store.peek("d")).waits_for is None


async def test_nobody_overtakes_those_that_wait(queue):
    await queue.submit(*"abcd")
    await queue.bells(*"abc")
    await queue.end("a")
    assert not await queue.bell("d")
    assert await queue.bell("c")
    await queue.end("b")
    assert await queue.bell("d")


async def test_a_slot_that_is_kept_for_a_bell_that_nobody_answers_is_free_again(queue):
    await queue.submit(*"abcd")
    await queue.bells(*"abcd")
    await queue.end("a")
    assert await queue.admitted() == ["c"]
    assert not await queue.bell("d")
    await queue.lapse("c")
    assert await queue.admitted() == ["d"]
    assert not await queue.bell("c")  # its bell came late: it waits, before all that were made later
    await queue.end("b")
    assert await queue.admitted() == ["c"]
    assert await queue.bells("c", "d") == ["c", "d"]


async def test_a_lease_that_ran_out_has_its_slot_until_it_is_declared_lost(queue):
    await queue.submit(*"abc")
    await queue.bells(*"abc")
    await queue.lapse("a")
    assert await queue.admitted() == []
    assert not await queue.bell("c")
    run = await queue.store.get_run("a-1")
    assert await queue.store.take_lost(Claim.of(Facts("a", "echo"), run), max_attempts=3) == "released"
    assert await queue.admitted() == ["c"]
    assert await queue.bells("a", "c") == ["c"]


async def test_a_late_heartbeat_of_a_claim_that_was_lost_takes_no_slot(queue):
    await queue.submit(*"abc")
    await queue.bells(*"ab")
    old = replace(queue.held["a"])
    await queue.lapse("a")
    await queue.store.take_lost(Claim.of(Facts("a", "echo"), await queue.store.get_run("a-1")), max_attempts=3)
    assert await queue.bells("c", "a") == ["c"]
    before = await queue.slots()
    assert await queue.store.heartbeat([old], lease_ms=LEASE_MS) == [False]
    assert await queue.slots() == before == ["a", "b", "c"]


async def test_a_run_that_is_given_back_is_in_its_place_again(queue):
    await queue.submit(*"abcd")
    await queue.bells(*"abcd")
    assert await queue.store.give_back(queue.held.pop("a"))
    assert await queue.bells("d", "c", "a") == ["c"]
    await queue.end("b")
    assert await queue.admitted() == ["a"]


@pytest.mark.parametrize("kept", [False, True])
async def test_a_cancelled_run_neither_waits_nor_keeps_a_slot(queue, kept):
    await queue.submit(*"abcd")
    await queue.bells(*"abcd")
    if kept:
        await queue.end("a")
        assert await queue.admitted() == ["c"]
    await queue.store.cancel("c")
    if not kept:
        await queue.end("a")
    assert await queue.admitted() == ["d"]
    assert (await queue.store.peek("c")).waits_for is None


async def test_a_running_one_that_is_cancelled_has_its_slot_until_its_code_stopped(queue):
    await queue.submit(*"abc")
    await queue.bells(*"abc")
    await queue.store.cancel("a")
    assert await queue.admitted() == []
    assert await queue.store.heartbeat([queue.held["a"]], lease_ms=LEASE_MS) == [False]
    assert await queue.store.stopped(queue.held["a"])
    assert await queue.admitted() == ["c"]


async def test_more_slots_than_before_are_dealt_out_and_fewer_wait_for_the_end_of_some(queue):
    await queue.submit(*"abcdef")
    await queue.bells(*"abcdef")
    assert await queue.admitted(slots=3) == ["c"]
    assert await queue.bell("c", slots=3)
    assert await queue.admitted(slots=1) == []
    for name in "abc":
        await queue.end(name)
    assert await queue.admitted(slots=1) == ["d"]
    assert await queue.admitted(slots=0) == ["e", "f"]  # the bound is gone
    assert all([await queue.bell(name, slots=0) for name in "def"])


# Submits


class Trees:
    """Submits tasks by name, each at the end of a path."""

    def __init__(self, store):
        self.store = store

    async def submit(self, path, *, limits=None, **fields):
        made = submission(path, limits=Limits(**limits or {}), **fields)
        return (await self.store.submit(made)).created

    async def refused(self, path, **fields):
        """Why it is not taken; nothing was written."""
        before = await self.store.redis.dbsize(), await self.store.redis.zcard(self.store.keys.tasks())
        with pytest.raises(LimitReached) as error:
            await self.submit(path, **fields)
        assert before == (await self.store.redis.dbsize(), await self.store.redis.zcard(self.store.keys.tasks()))
        assert "\n" not in str(error.value)
        return str(error.value)


@pytest.fixture
def trees(any_redis, namespace):
    return Trees(Store(any_redis, namespace, max_pending=6))


async def test_a_parent_has_so_many_open_children_and_takes_more_when_one_has_ended(trees):
    await trees.submit("p", limits={"max_open_children": 2})
    await trees.submit("p/a")
    await trees.submit("p/b")
    said = await trees.refused("p/c")
    assert said.startswith("parent p has as many open children as its limits.max_open_children = 2 allows: wait")
    assert await trees.submit("p/quiet", notify_parent=False)  # it keeps the parent open for nothing
    await trees.store.cancel("a")
    assert await trees.submit("p/c")


async def test_a_tree_has_so_many_levels(trees):
    await trees.submit("r", limits={"max_depth": 2})
    await trees.submit("r/a")
    await trees.submit("r/a/b", limits={"max_depth": 9})  # it is the root's that counts
    assert "limits.max_depth = 2 of its root r allows: do the work in this task" in await trees.refused("r/a/b/c")
    assert await trees.submit("r/d")


async def test_a_tree_has_so_many_tasks_in_its_life(trees):
    await trees.submit("r", limits={"max_descendants": 2})
    await trees.submit("r/a")
    await trees.submit("r/a/b")
    await trees.store.cancel("a")
    assert "task r has had as many tasks below it as its limits.max_descendants = 2 allows" in await trees.refused(
        "r/c"
    )
    assert await trees.submit("other")


async def test_so_many_tasks_are_pending(trees):
    for name in "abcdef":
        assert await trees.submit(name)
    assert "as many tasks are pending as OUTRIDER_MAX_PENDING = 6 allows" in await trees.refused("g")
    await trees.store.claim(Facts("a", "echo"), "a-1", worker="w", lease_ms=LEASE_MS)
    assert await trees.submit("g")


async def test_a_submit_that_was_taken_is_answered_as_it_was(trees):
    await trees.submit("r", limits={"max_open_children": 1, "max_descendants": 1})
    assert await trees.submit("r/a", idempotency_key="k")
    assert not await trees.submit("r/a", idempotency_key="k")
    for name in "bcde":
        await trees.submit(name)
    assert not await trees.submit("r/a")
    await trees.refused("r/x", idempotency_key="other")


async def test_no_limit_hinders_a_wake_or_a_run_that_is_given_back(trees):
    store = trees.store
    await trees.submit("r", limits={"max_open_children": 1, "max_descendants": 1})
    parent = await store.claim(Facts("r", "echo"), "r-1", worker="w", lease_ms=LEASE_MS)
    await trees.submit("r/a")
    await store.settle(parent.claim, DONE)
    child = Facts("a", "echo", parent_id="r", ancestors=("r",))
    held = await store.claim(child, "a-1", worker="w", lease_ms=LEASE_MS)
    for name in "bcdefg":
        await trees.submit(name)
    await trees.refused("h")
    assert await store.give_back(held.claim)
    held = await store.claim(child, "a-1", worker="w", lease_ms=LEASE_MS)
    settled = await store.settle(held.claim, DONE)
    assert [bell.task_id for bell in settled.bells] == ["r"]

"""Snapshots in the store: what a fork begins with, kept as long as a run is to begin with it, and no longer."""

import pytest
from langchain_core.messages import HumanMessage

from families import ASKS, DONE, FAILED, LEASE_MS, Tree
from outrider.shared.errors import ParentClosed
from outrider.shared.snapshots import Inherited, Snapshot
from outrider.shared.store import Store

MESSAGES = tuple(HumanMessage(f"message {at}", id=f"m{at}") for at in range(3))
FIRST, LATER = Snapshot.of({"messages": MESSAGES[:2]}), Snapshot.of({"messages": MESSAGES, "files": {"/a": {"x": 1}}})


class Forks(Tree):
    async def fork(self, name, snapshot=FIRST, **fields):
        await self.submit(name, "p", mode="fork", snapshot=snapshot, **fields)

    async def kept(self):
        fields = await self.store.redis.hgetall(self.store.keys.snapshots("p"))
        return (int(fields.pop(b"runs")), fields) if fields else (0, {})


@pytest.fixture
async def tree(any_redis, namespace):
    tree = Forks(Store(any_redis, namespace))
    await tree.submit("p")
    return tree


async def test_a_claim_hands_out_the_snapshot_and_so_does_the_next_attempt(tree):
    await tree.fork("c", LATER)
    held = await tree.claim("c")
    assert Inherited.of(held.snapshot) == Inherited(MESSAGES, {"/a": {"x": 1}})
    await tree.store.give_back(held.claim)
    again = await tree.claim("c")
    assert (again.snapshot, again.task.mode) == (held.snapshot, "fork")
    await tree.settle(again.claim, DONE)
    assert await tree.kept() == (0, {})


async def test_forks_share_items_and_the_last_run_takes_them_along(tree):
    for name, snapshot in ("a", FIRST), ("b", FIRST), ("c", LATER):
        await tree.fork(name, snapshot)
    runs, items = await tree.kept()
    assert (runs, items) == (3, {**FIRST.items, **LATER.items})
    assert len(items) == len(MESSAGES) + 1 + 2  # a file, and the two lists
    await tree.run("a")
    await tree.run("c", ASKS)
    assert await tree.kept() == (1, items)
    held = await tree.claim("b")
    assert Inherited.of(held.snapshot).messages == MESSAGES[:2]
    await tree.store.cancel("c")
    assert (await tree.kept())[0] == 1
    await tree.settle(held.claim)
    assert await tree.kept() == (0, {})


@pytest.mark.parametrize("ending", ["cancelled", "failed"])
async def test_what_an_ended_run_did_not_save_the_next_one_begins_with(tree, ending):
    await tree.fork("c", input={"text": "brief"})
    if ending == "failed":
        await tree.run("c", FAILED)
    else:
        await tree.store.cancel("c")
    await tree.store.update("c", {"text": "after all"})
    held = await tree.claim("c")
    assert Inherited.of(held.snapshot).messages == MESSAGES[:2]
    await tree.settle(held.claim)
    assert await tree.kept() == (0, {})


async def test_a_submit_that_comes_again_or_is_refused_keeps_nothing_more(tree):
    await tree.fork("c", idempotency_key="k")
    await tree.fork("c", idempotency_key="k")
    await tree.fork("d", LATER, idempotency_key="k")
    assert await tree.kept() == (1, dict(FIRST.items))
    await tree.store.cancel("p")
    with pytest.raises(ParentClosed):
        await tree.fork("e", LATER)
    assert await tree.kept() == (1, dict(FIRST.items))


async def test_a_run_that_is_no_fork_begins_with_nothing(tree):
    await tree.fork("c")
    await tree.submit("d", "p")
    assert (await tree.claim("d")).snapshot == ()
    assert (await tree.kept())[0] == 1


async def test_a_fork_takes_as_many_children_as_its_limits_say(tree):
    await tree.fork("barred", limits={"max_children": 0})
    await tree.fork("free", limits={"max_children": 1})
    for parent, name in ("barred", "x"), ("free", "y"), ("free", "z"):
        if name == "y":
            await tree.submit(name, parent)
            continue
        with pytest.raises(ParentClosed, match=r"limits\.max_children = [01] is reached"):
            await tree.submit(name, parent)
    assert await tree.store.claim(tree.facts("y"), "y-1", worker="w", lease_ms=LEASE_MS)

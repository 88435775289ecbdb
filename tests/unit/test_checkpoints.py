"""The saver's rules, on a fake Redis: fence, head, round trips, sync face, pruning."""

import asyncio
import operator
import threading
import time
import types
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Annotated, TypedDict

import langgraph.checkpoint.base.id as langgraph_ids
import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import ERROR, INTERRUPT
from langgraph.graph import START, StateGraph
from langgraph.types import Command, interrupt

from checkpoint_graphs import Numbers, chain, claimed, consistent, keys_of, thread
from outrider.shared.checkpoint_layout import thread_keys
from outrider.shared.checkpoints import SLACK, RedisSaver
from outrider.shared.errors import BadInput, ClaimLost, OutriderError
from outrider.shared.keys import Keys
from outrider.shared.notification import CURSOR


@dataclass
class Plan:
    step: int


async def put(saver, thread_id="t", ns="", parent=None, parents=None, **values):
    """Put a checkpoint with these values; the config that names it."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    checkpoint["channel_versions"] = {name: saver.get_next_version(None, None) for name in values}
    config = {"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}}
    if parent:
        config["configurable"]["checkpoint_id"] = parent["configurable"]["checkpoint_id"]
    metadata = {"source": "loop", "step": 1, "parents": parents or {}}
    return await saver.aput(config, checkpoint, metadata, checkpoint["channel_versions"])


async def snapshot(redis):
    """Everything in Redis."""
    return {key: await redis.dump(key) for key in sorted([key async for key in redis.scan_iter()])}


@pytest.mark.parametrize("change", [{"epoch": 2}, {"token": "other"}, {"run_id": "other"}])
async def test_writes_of_a_replaced_claim_are_refused(fake_redis, namespace, change):
    saver, claim = await claimed(fake_redis, namespace)
    told = []
    claim.on_stale = lambda: told.append(1)
    config = await put(saver, x=1)
    await fake_redis.hset(Keys(namespace).task("t"), mapping=change)
    before = await snapshot(fake_redis)
    with pytest.raises(ClaimLost, match="task t, run r"):
        await put(saver, x=2)
    with pytest.raises(ClaimLost):
        await saver.aput_writes(config, [("x", 1)], "task")
    claim.stale = False  # as if this claim had not been told yet
    with pytest.raises(ClaimLost):
        await saver.aput_writes(config, [("x", 1)], "task")
    claim.stale = False
    with pytest.raises(ClaimLost):
        await saver.aprune(["t"])
    claim.stale = False
    with pytest.raises(ClaimLost):
        await saver._change("drop", saver_keys(saver), ["t", "", "", ""])
    assert await snapshot(fake_redis) == before
    assert told == [1] * 4


async def restore(redis, snapshot):
    """Let Redis be what it was, as the replica is that takes over."""
    await redis.flushall()
    for key, value in snapshot.items():
        await redis.restore(key, 0, value)


@pytest.mark.parametrize("lost", [False, True])
async def test_no_state_builds_on_what_redis_has_lost(fake_redis, namespace, lost):
    saver, claim = await claimed(fake_redis, namespace)
    first = await put(saver, x=1)
    before = await snapshot(fake_redis)
    second = await put(saver, parent=first, y=1)
    if lost:
        await restore(fake_redis, before)
    with pytest.raises(ClaimLost) if lost else nullcontext():
        await put(saver, parent=second, x=2)
    assert claim.stale == lost
    assert ((await saver.aget_tuple(thread())).checkpoint["id"] == first["configurable"]["checkpoint_id"]) == lost


@pytest.mark.parametrize(("seq", "refused"), [(2, True), (3, False)])
async def test_no_state_knows_of_notifications_that_redis_has_lost(fake_redis, namespace, seq, refused):
    saver, claim = await claimed(fake_redis, namespace)
    task = Keys(namespace).task("t")
    await fake_redis.hset(task, "seq", seq)
    with pytest.raises(ClaimLost) if refused else nullcontext():
        await put(saver, **{CURSOR: 3})
    assert claim.stale == refused
    assert await fake_redis.hget(task, "cursor") == (None if refused else b"3")


def saver_keys(saver):
    keys = thread_keys(saver._keys, "t", "")
    return [*keys, keys.state, keys.order]


async def test_a_stale_claim_is_told_once_and_seen_by_every_clone(fake_redis, namespace):
    saver, claim = await claimed(fake_redis, namespace)
    told = []
    claim.on_stale = lambda: told.append(1)
    clone = saver.with_allowlist([("some", "Type")])
    await fake_redis.hset(Keys(namespace).task("t"), "epoch", 9)
    for each in (saver, clone, saver):
        with pytest.raises(ClaimLost):
            await put(each, x=1)
    assert told == [1]


async def test_a_refused_put_stops_the_graph(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace)
    ran = []
    graph = chain(5, ran=ran).copy({"checkpointer": saver})

    async def watched():
        async for _ in graph.astream({"x": []}, thread(), durability="sync", stream_mode="updates"):
            await fake_redis.hset(Keys(namespace).task("t"), "token", "later")

    with pytest.raises(ClaimLost):
        await watched()
    assert len(ran) < 3


async def test_a_put_is_one_round_trip_and_so_is_a_get(fake_redis, namespace, monkeypatch):
    saver, _ = await claimed(fake_redis, namespace)
    config = await put(saver, x=["text" * 100] * 100)
    await saver.aput_writes(config, [("x", 0)], "warm")
    await saver.aget_tuple(config)
    sent = []
    original = type(fake_redis).execute_command
    monkeypatch.setattr(
        type(fake_redis),
        "execute_command",
        lambda self, *args, **kw: sent.append(args[0]) or original(self, *args, **kw),
    )
    config = await put(saver, parent=config, x=["text" * 100] * 101)
    await saver.aput_writes(config, [("x", ["text" * 100] * 100), ("y", 2)], "task")
    assert (await saver.aget_tuple({"configurable": {"thread_id": "t"}})).checkpoint["channel_values"]["x"]
    assert sent == ["EVALSHA"] * 3


async def test_latest_is_the_head_although_a_clock_is_behind(fake_redis, namespace, monkeypatch):
    saver, _ = await claimed(fake_redis, namespace)
    ran = []

    def run(fail):
        return chain(6, fail=fail, ran=ran).copy({"checkpointer": saver}).ainvoke

    with pytest.raises(ConnectionError):
        await run(1)({"x": []}, thread(), durability="sync")
    behind = types.SimpleNamespace(**{name: getattr(time, name) for name in dir(time) if not name.startswith("__")})
    behind.time_ns = lambda: time.time_ns() - 1_000_000_000
    monkeypatch.setattr(langgraph_ids, "_last_v6_timestamp", None)
    monkeypatch.setattr(langgraph_ids, "time", behind)
    with pytest.raises(ConnectionError):
        await run(5)(None, thread(), durability="sync")
    monkeypatch.undo()
    monkeypatch.setattr(langgraph_ids, "_last_v6_timestamp", None)
    await run(None)(None, thread(), durability="sync")
    assert ran == [0, 1, 2, 3, 4, 5]
    history = [found async for found in saver.alist(thread())]
    assert [found.metadata["step"] for found in history] == list(range(6, -2, -1))


async def test_writes_are_kept_or_replaced_as_their_kind_wants(fake_redis, namespace):
    saver = RedisSaver(fake_redis, Keys(namespace))
    config = await put(saver, x=1)
    await saver.aput_writes(config, [("a", 1), ("b", 2)], "t1", "~p, b")
    await saver.aput_writes(config, [("a", 9)], "t1", "~p, b")
    await saver.aput_writes(config, [("a", 3)], "t0", "~p, c")
    await saver.aput_writes(config, [("a", 4)], "t9", "~p, a")
    await saver.aput_writes(config, [(ERROR, "first"), (INTERRUPT, "i")], "t2")
    await saver.aput_writes(config, [(ERROR, "second")], "t2")
    found = await saver.aget_tuple(config)
    assert found.pending_writes == [
        ("t2", INTERRUPT, "i"),
        ("t2", ERROR, "second"),
        ("t9", "a", 4),
        ("t1", "a", 1),
        ("t1", "b", 2),
        ("t0", "a", 3),
    ]


async def test_old_checkpoints_go_and_what_they_share_stays(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace, keep_steps=5)
    items, config, sizes = ["text" * 100] * 50, None, []
    for at in range(60):
        items = [*items, f"{at}" * 200]
        config = await put(saver, parent=config, x=items)
        await saver.aput_writes(config, [("x", items[-20:])], f"task{at}")
        sizes.append(len([found async for found in saver.alist(thread())]))
        await consistent(fake_redis, namespace)
    assert max(sizes) < 5 + SLACK + 1
    await saver.aprune(["t"])
    found = [found async for found in saver.alist(thread())]
    assert [each.checkpoint["channel_values"]["x"] for each in found] == [items]
    assert found[0].pending_writes == [("task59", "x", items[-20:])]
    await consistent(fake_redis, namespace)


async def test_segments_that_vanished_are_sent_again(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace)
    items = ["text" * 100] * 100
    await put(saver, x=items)
    await RedisSaver(fake_redis, Keys(namespace)).adelete_thread("t")
    config = await put(saver, x=[*items, "more"])
    assert (await saver.aget_tuple(config)).checkpoint["channel_values"]["x"] == [*items, "more"]
    await RedisSaver(fake_redis, Keys(namespace)).adelete_thread("t")
    config = await put(saver, x=1)
    await saver.aput_writes(config, [("x", items)], "task")
    assert (await saver.aget_tuple(config)).pending_writes == [("task", "x", items)]
    await consistent(fake_redis, namespace)


async def test_the_same_checkpoint_put_again_replaces_it(fake_redis, namespace):
    saver = RedisSaver(fake_redis, Keys(namespace))
    checkpoint = empty_checkpoint()
    for items in (["text" * 100] * 100, ["text" * 100] * 99, [1]):
        checkpoint["channel_values"], checkpoint["channel_versions"] = {"x": items}, {"x": 1}
        config = await saver.aput(thread(checkpoint_ns=""), checkpoint, {}, {"x": 1})
        await consistent(fake_redis, namespace)
    assert [found.checkpoint["channel_values"] async for found in saver.alist(thread())] == [{"x": [1]}]
    assert (await saver.aget_tuple(config)).checkpoint["id"] == checkpoint["id"]


async def test_namespaces_of_finished_steps_go_with_their_step(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace, keep_steps=3)
    config = None
    for at in range(40):
        config = await put(saver, parent=config, x=at)
        owner = {"": config["configurable"]["checkpoint_id"]}
        inner = await put(saver, ns=f"sub:{at}", parents=owner, y=["text" * 100] * 30)
        await put(
            saver, ns=f"sub:{at}|deep:{at}", parents=owner | {f"sub:{at}": inner["configurable"]["checkpoint_id"]}
        )
        await put(saver, ns="keeps", parents=owner, z=at)
    await saver._prune_old("t", "")
    left = await saver._namespaces("t")
    assert left == sorted(["", "keeps", *(f"sub:{at}{more}" for at in (37, 38, 39) for more in ("", f"|deep:{at}"))])
    await consistent(fake_redis, namespace)


async def test_a_subgraph_that_is_ahead_of_its_parents_put_stays(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace, keep_steps=3)
    config = None
    for at in range(10):
        config = await put(saver, parent=config, x=at)
    await put(saver, ns="sub:1", parents={"": config["configurable"]["checkpoint_id"]}, y=1)
    await put(saver, ns="sub:2", parents={"": "not put yet"}, y=2)
    await saver._prune_old("t", "")
    assert await saver._namespaces("t") == ["", "sub:1", "sub:2"]
    for at in range(10):
        config = await put(saver, parent=config, x=at)
    await saver._prune_old("t", "")
    assert await saver._namespaces("t") == [""]


async def test_pruning_that_was_cut_short_is_made_good(fake_redis, namespace, monkeypatch):
    saver, _ = await claimed(fake_redis, namespace, keep_steps=3)
    config, original = None, saver._call

    async def dies(name, *args):
        if name == "drop":
            raise ConnectionError("killed")
        return await original(name, *args)

    monkeypatch.setattr(saver, "_call", dies)
    for at in range(25):
        try:
            config = await put(saver, parent=config, x=at)
        except ConnectionError:
            config = (await saver.aget_tuple(thread())).config
        await put(saver, ns=f"sub:{at}", parents={"": config["configurable"]["checkpoint_id"]}, y=at)
        await consistent(fake_redis, namespace)
    assert len(await saver._namespaces("t")) == 26
    monkeypatch.undo()
    await saver._prune_old("t", "")
    assert await saver._namespaces("t") == ["", "sub:22", "sub:23", "sub:24"]
    assert (await saver.aget_tuple(thread())).checkpoint["channel_values"]["x"] == 24


async def test_long_histories_are_pruned_in_pages(fake_redis, namespace):
    saver = RedisSaver(fake_redis, Keys(namespace), keep_steps=1000)
    config = None
    for at in range(150):
        config = await put(saver, parent=config, x=at)
    await saver.aprune(["t"])
    assert [found.checkpoint["channel_values"]["x"] async for found in saver.alist(thread())] == [149]


async def test_delete_leaves_no_key_and_copy_no_difference(fake_redis, namespace):
    saver = RedisSaver(fake_redis, Keys(namespace))
    await put(saver, "t", x=["text" * 100] * 100)
    config = await put(saver, "t", ns="a:1|b:c", x=1)
    await saver.aput_writes(config, [("x", 1)], "task")
    await put(saver, "other", x=1)
    await put(saver, "copy", ns="gone", x=1)
    await saver.acopy_thread("t", "copy")
    await saver.acopy_thread("t", "t")
    await saver.acopy_thread("missing", "nothing")
    assert await saver._namespaces("copy") == ["", "a:1|b:c"]
    await saver.adelete_thread("t")
    await saver.adelete_thread("t")
    await consistent(fake_redis, namespace, "copy")
    found = [found async for found in saver.alist({"configurable": {"thread_id": "copy"}})]
    assert [each.checkpoint["channel_values"]["x"] for each in found] == [["text" * 100] * 100, 1]
    assert [each.pending_writes for each in found] == [[], [("task", "x", 1)]]
    assert {each.config["configurable"]["thread_id"] async for each in saver.alist(None)} == {"copy", "other"}
    for thread_id in ("copy", "other", "nothing"):
        await saver.adelete_thread(thread_id)
    assert await keys_of(fake_redis, namespace) == []


async def test_threads_whose_ids_hold_colons_keep_apart(fake_redis, namespace):
    saver = RedisSaver(fake_redis, Keys(namespace))
    await put(saver, "a", ns="state:x", x=1)
    await put(saver, "a:state", ns="x", x=2)
    for thread_id, ns, value in (("a", "state:x", 1), ("a:state", "x", 2)):
        head = await saver.aget_tuple({"configurable": {"thread_id": thread_id, "checkpoint_ns": ns}})
        assert head.checkpoint["channel_values"] == {"x": value}


async def test_before_a_checkpoint_of_the_graph_around_it(fake_redis, namespace, monkeypatch):
    saver = RedisSaver(fake_redis, Keys(namespace))
    # Ids that say the opposite of the order in which they were put.
    made = iter(f"{9 - at}" for at in range(9))
    monkeypatch.setitem(
        put.__globals__, "empty_checkpoint", lambda fresh=empty_checkpoint: fresh() | {"id": next(made)}
    )
    await put(saver, ns="sub:1|deep:1", x="early")
    before = await put(saver, ns="sub:1")
    await put(saver, ns="sub:1|deep:1", x="late")
    await put(saver, x="outer")
    config = {"configurable": {"thread_id": "t", "checkpoint_ns": "sub:1|deep:1"}}
    found = [each.checkpoint["channel_values"]["x"] async for each in saver.alist(config, before=before)]
    assert found == ["early"]
    unknown = {"configurable": {"checkpoint_id": "85"}}
    assert [each.checkpoint["id"] async for each in saver.alist(config, before=unknown)] == ["7"]
    assert [each.checkpoint["id"] async for each in saver.alist(config, before=before, limit=0)] == []


async def test_types_that_only_the_graph_knows(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace, serde=JsonPlusSerializer(allowed_msgpack_modules=None))

    class State(TypedDict):
        plan: Plan

    graph = StateGraph(State)
    graph.add_node("a", lambda state: {"plan": Plan(state["plan"].step + 1)})
    graph.add_node("b", lambda state: {"plan": Plan(state["plan"].step + interrupt("?"))})
    graph.add_edge(START, "a")
    graph.add_edge("a", "b")
    compiled = graph.compile().copy({"checkpointer": saver.with_allowlist([(Plan.__module__, "Plan")])})
    await compiled.ainvoke({"plan": Plan(0)}, thread(), durability="sync")
    assert await compiled.ainvoke(Command(resume=5), thread(), durability="sync") == {"plan": Plan(6)}
    reader = RedisSaver(fake_redis, Keys(namespace), serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    assert (await reader.aget_tuple(thread())).checkpoint["channel_values"]["plan"] == {"step": 6}


async def test_an_unknown_strategy_is_named(fake_redis, namespace):
    with pytest.raises(BadInput, match="'keep_all' is unknown"):
        await RedisSaver(fake_redis, Keys(namespace)).aprune(["t"], strategy="keep_all")


async def test_the_sync_face_works_from_another_thread_alone(fake_redis, namespace):
    saver = RedisSaver(fake_redis, Keys(namespace))

    def work():
        checkpoint = empty_checkpoint()
        config = saver.put(thread(checkpoint_ns=""), checkpoint, {"source": "loop"}, {})
        saver.put_writes(config, [("x", 1)], "task", task_path="p")
        saver.copy_thread("t", "copy")
        assert saver.get_tuple(thread()).pending_writes == [("task", "x", 1)]
        assert saver.get_delta_channel_history(config=config, channels=["x"]) == {"x": {"writes": []}}
        assert [found.checkpoint["id"] for found in saver.list(thread(), limit=3)] == [checkpoint["id"]]
        saver.prune(["copy"], strategy="delete")
        saver.delete_for_runs(["none"])
        saver.delete_thread("t")
        assert saver.get(thread()) is None

    await asyncio.to_thread(work)
    with pytest.raises(OutriderError, match="another thread"):
        saver.get_tuple(thread())


def test_a_saver_made_outside_a_loop_has_no_sync_face(fake_redis_outside):
    with pytest.raises(OutriderError, match="another thread"):
        RedisSaver(fake_redis_outside, Keys("n")).delete_thread("t")


@pytest.fixture
def fake_redis_outside():
    import fakeredis

    return fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(version=(7,)))


async def test_a_sync_node_may_invoke_a_graph(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace)
    threads = []

    class Count(TypedDict):
        n: Annotated[int, operator.add]

    def add(_):
        threads.append(threading.current_thread())
        return {"n": 1}

    inner = StateGraph(Count)
    inner.add_node("y", add)
    inner.add_edge(START, "y")
    compiled = inner.compile()
    outer = StateGraph(Count)
    outer.add_node("c", lambda _: {"n": compiled.invoke({"n": 0})["n"]})
    outer.add_edge(START, "c")
    graph = outer.compile().copy({"checkpointer": saver})
    assert await graph.ainvoke({"n": 0}, thread(), durability="sync") == {"n": 1}
    assert threads[0] is not threading.main_thread()
    assert len(await saver._namespaces("t")) == 2


async def test_branches_of_one_thread_never_share_a_version(fake_redis, namespace):
    saver, _ = await claimed(fake_redis, namespace)
    graph = chain(3, Numbers).copy({"checkpointer": saver})
    await graph.ainvoke({"x": ["in"]}, thread(), durability="sync")
    history = [state async for state in graph.aget_state_history(thread())]
    start = next(state for state in history if state.next == ("n1",))
    fork = await graph.aupdate_state(start.config, {"x": ["fork"]})
    await graph.ainvoke(None, fork, durability="sync")
    assert (await graph.aget_state(thread())).values == {"x": ["in", 0, "fork", 1, 2]}
    assert (await graph.aget_state(history[0].config)).values == {"x": ["in", 0, 1, 2]}

"""The file store's contract. Each test runs on fakeredis and on a real server, unless it says otherwise."""

import asyncio
import uuid

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from outrider.shared.errors import BadInput
from outrider.shared.filestore import RedisStore
from outrider.shared.keys import Keys
from outrider.shared.scripts import Script

DOCS = ("docs", "u1")
MANY = 501  #: one more than a call removes when it has expired


@pytest.fixture
def keys(namespace):
    return Keys(namespace)


@pytest.fixture
async def store(any_redis, keys):
    return RedisStore(any_redis, keys)


class Ends:
    """When the items that have a lifetime end, in Unix ms: to look at, and to move instead of waiting."""

    def __init__(self, redis, keys):
        self._redis, self._key = redis, keys.files()[-1]

    async def read(self):
        return [score for _, score in await self._redis.zrange(self._key, 0, -1, withscores=True)]

    async def move(self, at_ms):
        await self._redis.zadd(self._key, dict.fromkeys(await self._redis.zrange(self._key, 0, -1), at_ms))


@pytest.fixture
def ends(any_redis, keys):
    return Ends(any_redis, keys)


@pytest.fixture
def calls(monkeypatch):
    """List the calls to Redis that the store makes."""
    made, run = [], Script.run

    async def spy(script, redis, keys, args):
        made.append(args[0])
        return await run(script, redis, keys, args)

    monkeypatch.setattr(Script, "run", spy)
    return made


async def put_all(store, items, ttl=None):
    await store.abatch([PutOp(namespace, key, value, ttl=ttl) for namespace, key, value in items])


async def everything(redis, keys):
    """Name the keys of the store that are left, but for its counter."""
    return [key for key in keys.files()[1:] if await redis.exists(key)]


# LangGraph's contract
class Reference(InMemoryStore):
    """LangGraph's own store, but a namespace that holds nothing is none. There, a look at one creates it."""

    def batch(self, ops):
        results = [None if isinstance(op, PutOp) else self._one(op) for op in ops]
        _, puts, _ = self._prepare_ops(op for op in ops if isinstance(op, PutOp))
        for op in puts.values():
            self._one(op)
        return results

    def _one(self, op):
        [result] = super().batch([op])
        for namespace in [namespace for namespace, items in self._data.items() if not items]:
            del self._data[namespace]
        return result


def plain(result):
    """Return what two stores must agree on: all but the times."""
    if isinstance(result, Item):
        return type(result), result.namespace, result.key, result.value
    return [plain(one) for one in result] if isinstance(result, list) else result


# Labels that are prefixes of each other, and on both sides of the joint and of "/" in the order of bytes.
LABELS = st.sampled_from(["a", "ab", "a-b", "a/b", "é", "\ud800"])
NAMESPACES = st.sampled_from(
    [("a",), ("a", "b"), ("a", "b", "a"), ("ab",), ("a-b",), ("a-b", "a"), ("a/b",), ("é", "\ud800"), ("\U0001f600",)]
)
PATHS = st.lists(LABELS | st.just("*"), max_size=3).map(tuple)
KEYS = st.sampled_from(["", "k", "/a.md", "/b/c.md", "k\0", "\0", "\ud800"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, "", "x", "\ud800"])
VALUES = st.fixed_dictionaries(
    {"n": st.integers(-3, 3)},
    optional={"s": SCALARS, "o": st.fixed_dictionaries({"s": SCALARS, "l": st.lists(SCALARS)})},
)
ORDERED = st.dictionaries(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), st.integers(-3, 3), min_size=1)
EQUAL = SCALARS | st.dictionaries(st.sampled_from(["$eq", "$ne"]), SCALARS, min_size=1)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "n": ORDERED | EQUAL,
        "s": EQUAL,
        "o": st.fixed_dictionaries({}, optional={"s": EQUAL, "l": st.lists(EQUAL)}),
    },
)
OPS = st.one_of(
    st.builds(PutOp, NAMESPACES, KEYS, VALUES, st.none(), st.none() | st.just(60)),
    st.builds(PutOp, NAMESPACES, KEYS, VALUES | st.none(), st.none(), st.none()),
    st.builds(GetOp, NAMESPACES, KEYS),
    st.builds(
        SearchOp,
        st.lists(LABELS, max_size=2).map(tuple),
        st.none() | FILTERS,
        limit=st.integers(0, 6),
        offset=st.integers(0, 4),
        query=st.none() | st.just("what it is about"),
    ),
    st.builds(
        ListNamespacesOp,
        st.none()
        | st.lists(st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), PATHS), max_size=2).map(tuple),
        max_depth=st.none() | st.integers(1, 3),
        limit=st.integers(0, 6),
        offset=st.integers(0, 3),
    ),
)


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(batches=st.lists(st.lists(OPS, min_size=1, max_size=6), max_size=8))
async def test_it_answers_as_langgraphs_own_store(any_redis, batches):
    reference, keys = Reference(), Keys(f"t-{uuid.uuid4().hex}")
    store = RedisStore(any_redis, keys)
    for ops in batches:
        assert plain(await store.abatch(ops)) == plain(reference.batch(ops))
    await store.adelete_namespace((), 1000)
    assert await everything(any_redis, keys) == []


@pytest.mark.parametrize("namespace", [(), ("",), ("a.b",), ("a\0b",), ("a", 1), ("langgraph", "x")])
async def test_a_namespace_is_refused_as_langgraph_does(store, any_redis, keys, namespace):
    for put in (InMemoryStore().aput, store.aput):
        with pytest.raises(InvalidNamespaceError):
            await put(namespace, "k", {})
    with pytest.raises(InvalidNamespaceError):
        await store.aput_if(namespace, "k", {}, 0)
    assert await everything(any_redis, keys) == []


async def test_a_label_cannot_reach_another_namespace_through_a_bare_operation(store):
    await store.aput(("a", "b"), "k", {"x": 1})
    for op in (GetOp(("a.b",), "k"), PutOp(("a.b",), "k", None), SearchOp(("a.b",))):
        with pytest.raises(InvalidNamespaceError):
            await store.abatch([op])
    for ask in (store.aget_versioned(("a.b",), "k"), store.aentries(("a.b",)), store.adelete_namespace(("a.b",))):
        with pytest.raises(InvalidNamespaceError):
            await ask


async def test_one_bad_value_and_nothing_of_the_batch_is_written(store, any_redis, keys):
    with pytest.raises(BadInput, match=r"key 'bad' in namespace \('docs', 'u1'\)"):
        await put_all(store, [(DOCS, "good", {"x": 1}), (DOCS, "bad", {"x": object()})])
    assert await everything(any_redis, keys) == []


async def test_what_is_no_operation_is_refused(store):
    with pytest.raises(BadInput, match="int is no operation"):
        await store.abatch([1])
    with pytest.raises(BadInput, match="must not be negative"):
        await store.asearch(DOCS, limit=-1)


async def test_a_batch_is_one_call(store, calls):
    ops = [GetOp(DOCS, "a"), PutOp(DOCS, "a", {"x": 1}), GetOp(DOCS, "a"), ListNamespacesOp(), PutOp(DOCS, "b", {})]
    assert await store.abatch(ops) == [None, None, None, [], None]
    await store.asearch(DOCS)
    assert calls == ["get", "search"]
    assert await store.abatch([]) == []
    assert len(calls) == 2


async def test_the_times_are_those_of_creation_and_of_the_last_write(store, any_redis):
    def micros(time):
        return round(time.timestamp() * 1_000_000)

    before = await any_redis.time()
    await store.aput(DOCS, "k", {"x": 1})
    first = await store.aget(DOCS, "k")
    await store.aput(DOCS, "k", {"x": 2})
    second = await store.aget(DOCS, "k")
    after = await any_redis.time()
    assert first.created_at == first.updated_at == second.created_at
    assert second.created_at < second.updated_at
    assert before[0] * 1_000_000 + before[1] <= micros(first.created_at)
    assert micros(second.updated_at) <= after[0] * 1_000_000 + after[1]


# long answers
async def test_pages_follow_each_other_without_gap_or_double(store):
    names = [(("docs", f"u{number % 7}"), f"{number}", {"n": number}) for number in range(250)]
    await put_all(store, names)
    found, offset = [], 0
    while page := await store.asearch(("docs",), limit=40, offset=offset):
        found += page
        offset += len(page)
    in_order = sorted(range(250), key=lambda number: (number % 7, number))
    assert [item.value["n"] for item in found] == in_order


async def test_a_filter_looks_beyond_the_first_call(store, calls):
    await put_all(store, [(DOCS, f"{number}", {"n": number}) for number in range(250)])
    calls.clear()
    found = await store.asearch(DOCS, filter={"n": {"$gte": 120}}, limit=3, offset=100)
    assert [item.value["n"] for item in found] == [220, 221, 222]
    assert calls == ["search"] * 3


async def test_a_long_search_reads_before_the_writes_of_its_batch(store):
    await put_all(store, [(DOCS, f"{number}", {"n": number}) for number in range(150)])
    found, _ = await store.abatch([SearchOp(DOCS, {"n": {"$gte": 148}}), PutOp(DOCS, "149", {"n": 0})])
    assert [item.value["n"] for item in found] == [148, 149]
    assert (await store.aget(DOCS, "149")).value == {"n": 0}


async def test_a_reply_is_bounded_in_bytes(store, calls):
    await put_all(store, [(DOCS, f"{number}", {"n": number, "text": "x" * 5_000_000}) for number in range(3)])
    calls.clear()
    assert [item.value["n"] for item in await store.asearch(DOCS)] == [0, 1, 2]
    assert calls == ["search"] * 2


# versions
async def test_a_put_with_an_old_version_does_nothing(store):
    assert await store.aget_versioned(DOCS, "k") == (None, 0)
    first = await store.aput_if(DOCS, "k", {"x": 1}, 0)
    assert await store.aput_if(DOCS, "k", {"x": 2}, 0) is None
    second = await store.aput_if(DOCS, "k", {"x": 3}, first)
    assert await store.aput_if(DOCS, "k", {"x": 4}, first) is None
    item, version = await store.aget_versioned(DOCS, "k")
    assert (item.value, version) == ({"x": 3}, second)
    await store.aput(DOCS, "k", {"x": 5})
    assert await store.aput_if(DOCS, "k", {"x": 6}, second) is None


async def test_a_version_does_not_come_again_after_a_deletion(store):
    first = await store.aput_if(DOCS, "k", {"x": 1}, 0)
    await store.adelete(DOCS, "k")
    assert await store.aput_if(DOCS, "k", {"x": 2}, first) is None
    assert await store.aput_if(DOCS, "k", {"x": 3}, 0) > first
    assert await store.aput_if(DOCS, "k", {"x": 4}, first) is None


async def test_of_twenty_writers_none_is_lost(store):
    async def add_one():
        while True:
            item, version = await store.aget_versioned(DOCS, "count")
            count = item.value["n"] if item else 0
            if await store.aput_if(DOCS, "count", {"n": count + 1}, version) is not None:
                return

    await asyncio.gather(*(add_one() for _ in range(20)))
    assert (await store.aget(DOCS, "count")).value == {"n": 20}


# lifetimes
async def test_what_has_expired_is_gone_everywhere(store, any_redis, keys, ends):
    await store.aput(DOCS, "mortal", {"x": 1}, ttl=5)
    assert await store.asearch(("docs",))
    await ends.move(1)
    assert await store.aget(DOCS, "mortal") is None
    assert await everything(any_redis, keys) == []


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda store: store.asearch(()), []),
        (lambda store: store.alist_namespaces(), []),
        (lambda store: store.aentries(()), []),
        (lambda store: store.aget_versioned(DOCS, "0"), (None, 0)),
        (lambda store: store.adelete_namespace(()), 0),
    ],
    ids=["search", "namespaces", "entries", "versioned", "delete"],
)
async def test_no_call_sees_what_has_expired_however_much_it_is(store, ends, ask, answer):
    await put_all(store, [(DOCS, f"{number}", {}) for number in range(MANY)], ttl=5)
    await ends.move(1)
    assert await ask(store) == answer
    assert await ends.read() == []


async def test_a_put_after_expiry_makes_a_new_item(store, ends):
    await store.aput(DOCS, "old", {"x": 1}, ttl=5)
    await store.aput(DOCS, "other", {"x": 2})
    created = (await store.aget(DOCS, "old")).created_at
    await ends.move(1)
    await store.aput(DOCS, "old", {"x": 3})
    assert (await store.aget(DOCS, "old")).created_at > created
    assert [item.key for item in await store.asearch(DOCS)] == ["other", "old"]


@pytest.mark.parametrize(
    ("ask", "anew"),
    [
        (lambda store, refresh: store.aget(DOCS, "k", refresh_ttl=refresh), True),
        (lambda store, refresh: store.asearch(("docs",), refresh_ttl=refresh), True),
        (lambda store, refresh: store.asearch(DOCS, filter={"x": 1}, refresh_ttl=refresh), True),
        (lambda store, refresh: store.asearch(DOCS, filter={"x": 2}, refresh_ttl=refresh), False),
        (lambda store, refresh: store.asearch(DOCS, offset=1, refresh_ttl=refresh), False),
        (lambda store, refresh: store.aentries(DOCS), False),  # noqa: ARG005
    ],
    ids=["get", "search", "filter", "filtered out", "skipped", "entries"],
)
@pytest.mark.parametrize("refresh", [True, False])
async def test_a_read_that_meets_an_item_starts_its_lifetime_anew(store, ends, ask, anew, refresh):
    await store.aput(DOCS, "k", {"x": 1}, ttl=60)
    [whole] = await ends.read()
    soon = whole - 1_800_000
    await ends.move(soon)
    await ask(store, refresh)
    [score] = await ends.read()
    assert score >= whole if anew and refresh else score == soon


async def test_a_put_sets_the_lifetime_and_a_compare_and_set_keeps_it(store, ends):
    await store.aput(DOCS, "k", {"x": 1}, ttl=60)
    [whole] = await ends.read()
    await ends.move(whole - 1_800_000)
    _, version = await store.aget_versioned(DOCS, "k")
    await store.aput_if(DOCS, "k", {"x": 2}, version)
    assert (await ends.read())[0] >= whole
    await store.aput(DOCS, "k", {"x": 3})
    assert await ends.read() == []


# what retention and `show --files` need
async def test_entries_tell_of_items_without_their_values(store, calls):
    await put_all(store, [(DOCS, "a", {"text": "é"}), (DOCS, "b", {}), (("docs", "u2"), "c", {})])
    calls.clear()
    found = await store.aentries(DOCS)
    assert [(entry.namespace, entry.key, entry.size) for entry in found] == [(DOCS, "a", 13), (DOCS, "b", 2)]
    assert found[0].version == (await store.aget_versioned(DOCS, "a"))[1]
    assert found[0].created_at == (await store.aget(DOCS, "a")).created_at
    assert [entry.key for entry in await store.aentries(("docs",), limit=2)] == ["a", "b"]


async def test_a_namespace_is_deleted_in_bounded_calls(store):
    kept = [("a-b",), ("ab",), ("b", "a")]
    await put_all(store, [(namespace, "k", {}) for namespace in kept])
    await put_all(store, [(("a",), "k", {}), *((("a", f"{number % 2}"), f"{number}", {}) for number in range(6))])
    assert [await store.adelete_namespace(("a",), 3) for _ in range(4)] == [3, 3, 1, 0]
    assert await store.alist_namespaces() == sorted(kept)


# the sync face
async def test_a_thread_may_call_the_sync_methods(store):
    def in_thread():
        store.put(DOCS, "k", {"x": 1})
        return store.get(DOCS, "k").value, store.search(DOCS)[0].key, store.list_namespaces()

    assert await asyncio.to_thread(in_thread) == ({"x": 1}, "k", [DOCS])


async def test_searched_items_are_search_items(store):
    await store.aput(DOCS, "k", {})
    [item] = await store.asearch(DOCS, query="anything")
    assert isinstance(item, SearchItem)
    assert item.score is None

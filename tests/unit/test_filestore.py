"""The file store's records: what may be stored, what a filter matches, and where a tree's files lie."""

import asyncio
import importlib
import math
import sys
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langgraph.store.base import MatchCondition
from langgraph.store.memory import InMemoryStore

from outrider.shared import file_layout
from outrider.shared.backend import OutriderBackend
from outrider.shared.context import running
from outrider.shared.errors import BadInput, OutriderError
from outrider.shared.filestore import RedisStore
from outrider.shared.keys import Keys
from outrider.shared.tree_files import running_tree, tree_namespace

ANY_TEXT = st.text(st.characters())  # lone surrogates and NUL, too
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=10,
)


def looped():
    value = {}
    value["self"] = value
    return value


def deep():
    value = {}
    for _ in range(100_000):
        value = {"in": value}
    return value


@given(st.dictionaries(ANY_TEXT, JSON))
def test_a_json_object_comes_back_as_it_was(value):
    assert file_layout.unpack_value(file_layout.pack_value(("a",), "k", value)) == value


@pytest.mark.parametrize(
    "value",
    [
        {"x": {1, 2}},
        {"x": b"bytes"},
        {"x": object()},
        {"x": math.nan},
        {"x": math.inf},
        {1: "x"},
        {"x": [{"y": {None: 1}}]},
        ["no", "object"],
        "text",
        looped(),
        deep(),
    ],
    ids=["set", "bytes", "object", "nan", "inf", "key", "inner key", "list", "text", "looped", "deep"],
)
def test_what_is_no_json_object_is_refused_by_name(value):
    with pytest.raises(BadInput, match=r"key 'report\.md' in namespace \('docs', 'u1'\) is not a JSON object: ."):
        file_layout.pack_value(("docs", "u1"), "report.md", value)


@pytest.mark.parametrize("minutes", [0, -1, math.nan, math.inf])
def test_a_lifetime_that_is_none_is_refused(minutes):
    with pytest.raises(BadInput, match=r"for key 'k' in namespace \('a',\) is not a time to live"):
        file_layout.lifetime_ms(("a",), "k", minutes)


def test_a_lifetime_is_never_rounded_to_none():
    assert [file_layout.lifetime_ms((), "k", minutes) for minutes in (None, 1e-9, 0.5, 2)] == [0, 1, 30_000, 120_000]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"$eq": 3}, [3]),
        ({"$ne": 3}, [None, "x", 2, "4", [3]]),
        ({"$gt": 2}, [3, "4"]),
        ({"$gte": 3}, [3, "4"]),
        ({"$lt": 3}, [2]),
        ({"$lte": 3}, [3, 2]),
        ({"$gt": 1, "$lt": 3}, [2]),
        ({"$gt": "x"}, []),
        (None, [None]),
        ([{"$gt": 2}], [[3]]),
        ((3,), [[3]]),
        ({"a": 1}, []),
    ],
)
def test_operators(wanted, found):
    values = [None, 3, "x", 2, "4", [3]]
    assert [value for value in values if file_layout.matches(value, wanted)] == found


def test_filters_reach_into_objects():
    assert file_layout.matches({"a": {"b": 1, "c": 2}}, {"a": {"b": {"$lt": 2}}})
    assert not file_layout.matches({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}})


def test_an_unknown_operator_is_named():
    with pytest.raises(BadInput, match=r"'\$in' is unknown: use one of \$eq, \$ne, \$gt"):
        file_layout.matches(1, {"$in": [1]})


def test_an_unknown_match_type_is_named():
    with pytest.raises(BadInput, match="'infix' is unknown"):
        file_layout.matches_namespace(("a",), MatchCondition("infix", ("a",)))


@pytest.mark.parametrize(
    ("paths", "prefix"),
    [
        ([("a", "b")], ("a", "b")),
        ([("a", "*", "c")], ("a",)),
        ([("*",), ("a", "b"), ("a",)], ("a", "b")),
        ([], ()),
    ],
)
def test_only_what_can_match_is_read(paths, prefix):
    conditions = (*(MatchCondition("prefix", path) for path in paths), MatchCondition("suffix", ("z", "z", "z")))
    assert file_layout.literal_prefix(conditions) == prefix


# the backend, where it needs no Redis
@pytest.fixture
def run_of():
    """Give a function that makes a task the running one."""
    tokens = []

    def enter(task_id, *ancestors):
        root_id = ancestors[0] if ancestors else task_id
        tokens.append(running.set(SimpleNamespace(task=SimpleNamespace(root_id=root_id))))

    yield enter
    for token in reversed(tokens):
        running.reset(token)


def test_all_tasks_of_a_tree_share_their_files(run_of):
    run_of("root")
    assert running_tree() == tree_namespace("root") == ("trees", "root", "files")
    run_of("leaf", "root", "middle")
    assert running_tree() == tree_namespace("root")


def test_without_a_run_there_is_no_tree(fake_redis, namespace):
    backend = OutriderBackend(store=RedisStore(fake_redis, Keys(namespace)))
    with pytest.raises(BadInput, match="no task runs here"):
        backend.read("/a.md")


def test_without_deepagents_the_backend_says_what_to_install(monkeypatch):
    monkeypatch.delitem(sys.modules, "outrider.shared.backend")
    monkeypatch.setitem(sys.modules, "deepagents.backends.protocol", None)
    with pytest.raises(ModuleNotFoundError, match=r"deepagents.* \(pip install 'outrider\[deepagents\]'\)"):
        importlib.import_module("outrider.shared.backend")


async def test_another_store_is_refused():
    backend = OutriderBackend(namespace=lambda _: ("a",), store=InMemoryStore())
    with pytest.raises(BadInput, match="the graph has a InMemoryStore"):
        await backend.aedit("/a.md", "x", "y")


# the sync face, where it cannot work
async def test_a_sync_method_on_the_loop_says_what_to_do(fake_redis, namespace):
    store = RedisStore(fake_redis, Keys(namespace))
    with pytest.raises(OutriderError, match="another thread"):
        store.get(("a",), "k")


def test_a_sync_method_of_a_store_that_has_no_loop_says_so(namespace):
    async def client():
        import fakeredis

        return fakeredis.FakeAsyncRedis()

    store = RedisStore(asyncio.run(client()), Keys(namespace))
    with pytest.raises(OutriderError, match="the loop on which it was made"):
        store.put(("a",), "k", {})

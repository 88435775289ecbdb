"""Cells: what goes in comes out, and lists share what they have in common."""

import pytest
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite, Send

from outrider.shared.checkpoint_cells import SEGMENT, Cells
from outrider.shared.checkpoint_layout import entry, owner_of, read_record, write_record

SERDE = JsonPlusSerializer(allowed_msgpack_modules=None).with_msgpack_allowlist([Document])


def talk(count, size=300):
    return [(AIMessage if at % 2 else HumanMessage)(f"{at} " * (size // 3), id=str(at)) for at in range(count)]


def written(cells, value, stored=None):
    """Write a value; return its cell and the segments that were new."""
    fresh = {}
    cell = cells.write(SERDE, value, "pool", fresh)
    cells.note_stored("pool", fresh)
    if stored is not None:
        stored.update(fresh)
    return cell, fresh


@pytest.mark.parametrize("remember", [True, False])
@pytest.mark.parametrize(
    "value",
    [
        None,
        1,
        b"bytes",
        "text" * 5000,
        [],
        [1, 2, 3] * 5000,
        ["a line"] * 3000,
        talk(3),
        talk(100),
        [*talk(100), RemoveMessage(id="3"), ToolMessage("x", tool_call_id="c", artifact={"any": {1, 2}})],
        [{"role": "user", "content": f"{at}" * 100} for at in range(100)],
        [Document(f"{at}" * 100) for at in range(100)],
        [("user", "hello" * 100)] * 30,
        {"messages": talk(100), "others": talk(90)[7:], "n": 1, "small": talk(2)},
        _DeltaSnapshot(talk(100)),
        Overwrite(talk(100)),
        [Send("a", {"messages": talk(100)}), Send("b", {"messages": talk(101), "deep": {"er": talk(80)}})],
        talk(100) * 2,
        [HumanMessage("big" * 100_000), *talk(3), AIMessage("big" * 100_000)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_comes_out_as_it_went_in(value, remember):
    segments = {}
    cell, _ = written(Cells(remember=remember), value, segments)
    # What msgpack does to a value (tuples become lists) is LangGraph's own way.
    assert Cells(remember=remember).read(SERDE, cell, segments) == SERDE.loads_typed(SERDE.dumps_typed(value))


def test_an_overwrite_comes_out_as_such():
    segments = {}
    cell, _ = written(Cells(remember=True), Overwrite(talk(100)), segments)
    out = Cells(remember=False).read(SERDE, cell, segments)
    assert type(out) is Overwrite or out == {"value": talk(100), "type": "__overwrite__"}


def test_a_longer_list_brings_only_its_end():
    cells, items = Cells(remember=True), talk(2000)
    _, first = written(cells, items)
    assert len(first) > 20
    for at in range(30):
        items = [*items, AIMessage("new", id=f"new{at}")]
        cell, fresh = written(cells, items)
        assert len(fresh) == 1
        assert sum(map(len, fresh.values())) <= 2 * SEGMENT
        assert len(cell) < 100 * len(first)


def test_a_list_without_its_front_shares_the_rest():
    cells, items = Cells(remember=True), talk(2000)
    written(cells, items)
    _, fresh = written(cells, items[1:])
    assert len(fresh) <= 2


def test_a_conversation_is_the_same_in_input_write_and_channel():
    cells, items = Cells(remember=True), talk(200)
    written(cells, {"messages": items})
    for value in (items, _DeltaSnapshot(items), Overwrite(items), [Send("x", {"messages": items})]):
        _, fresh = written(cells, value)
        assert not fresh


def test_a_big_item_is_stored_once_wherever_it_stands():
    cells, big = Cells(remember=True), HumanMessage("".join(f"{at:x}" for at in range(9000)), id="big")
    written(cells, [*talk(3), big, *talk(3)])
    for value in ([big], [*talk(2), big], {"messages": [big, *talk(3)]}):
        _, fresh = written(cells, value)
        assert sum(map(len, fresh.values())) < len(big.content) // 10


@pytest.mark.parametrize("remember", [True, False])
def test_a_message_changed_in_place_is_noticed(remember):
    cells, items, segments = Cells(remember=remember), talk(200), {}
    written(cells, items, segments)
    items[5].content = "changed"
    items[9].additional_kwargs["added"] = {"deep": [1]}
    written(cells, items, segments)
    items[9].additional_kwargs["added"]["deep"].append(2)
    cell, _ = written(cells, items, segments)
    out = Cells(remember=False).read(SERDE, cell, segments)
    assert out == items
    assert out[9].additional_kwargs == {"added": {"deep": [1, 2]}}


def test_what_is_not_plain_data_is_serialised_each_time():
    class Box:
        def __init__(self):
            self.value = 1

        def model_dump(self):
            return {"value": self.value}

    box = Box()
    items, segments = [*talk(200), ToolMessage("x", tool_call_id="c", artifact=box)], {}
    cells = Cells(remember=True)
    first, _ = written(cells, items, segments)
    box.value = 2
    second, _ = written(cells, items, segments)
    assert first != second


def test_a_message_that_was_read_is_not_serialised_again(monkeypatch):
    segments = {}
    cell, _ = written(Cells(remember=True), talk(200), segments)
    cells = Cells(remember=True)
    items = cells.read(SERDE, cell, segments)
    cells.note_stored("pool", segments)
    calls = []
    original = JsonPlusSerializer.dumps_typed
    monkeypatch.setattr(JsonPlusSerializer, "dumps_typed", lambda self, obj: calls.append(obj) or original(self, obj))
    again, fresh = written(cells, items)
    assert again == cell
    assert not fresh
    assert len(calls) == 1


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr("outrider.shared.checkpoint_cells.REMEMBERED", 50)
    cells = Cells(remember=True)
    for at in range(20):
        written(cells, talk(100 + at))
        assert len(cells._seen) <= 50
        assert len(cells._stored) <= 100


@pytest.mark.parametrize("version", [1, 0, (7 << 32) | 123, 1.5, "00000000000000000000000000000002.0.51"])
def test_versions_keep_their_type(version):
    checkpoint = {
        "id": "i",
        "channel_values": {},
        "channel_versions": {"a": version, "branch:to:x": version, "counted": 3, "stored": 4},
    }
    checkpoint["channel_values"]["stored"] = 1
    metadata = {"counters_since_delta_snapshot": {"counted": (1, 1), "stored": (0, 1), "never": (0, 3)}}
    raw = write_record("parent", checkpoint, metadata, ("msgpack", b"any\0thing\x1e\x1f"))
    record = read_record(raw)
    assert record.parent == "parent"
    assert record.versions == checkpoint["channel_versions"]
    assert {type(each) for each in record.versions.values()} <= {type(version), int}
    assert record.payload == ("msgpack", b"any\0thing\x1e\x1f")
    assert raw.split(b"\x1e")[1] == b"counted"
    assert entry("a", version).startswith("a\x1f")


@pytest.mark.parametrize(
    ("ns", "parents", "owner"),
    [
        ("", {}, ""),
        ("kept", {"": "p"}, ""),
        ("a:1", None, ""),
        ("a:1", {"": "p"}, "\0p"),
        ("a:1", {"": "p", "a:1": "q"}, "\0p"),
        ("a:1|b:2", {"": "p", "a:1": "q"}, "a:1\0q"),
    ],
)
def test_owner_of_a_namespace(ns, parents, owner):
    assert owner_of(ns, parents) == owner

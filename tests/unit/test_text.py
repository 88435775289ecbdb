"""Text hygiene: whatever an agent returns is rendered, and never more than it may."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import pathlib
import uuid

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.messages import AIMessage

from outrider.shared.limits import Limits
from outrider.shared.text import clean, clip, counted, one_line, plain, render_json

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.binary() | st.dates(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()) | st.integers(), inner) | st.tuples(inner),
    max_leaves=20,
)
any_text = st.text(st.characters(codec=None, categories=None, exclude_categories=()))


@given(any_text)
def test_clean_text_can_be_stored_anywhere_and_is_stable(text):
    cleaned = clean(text)
    assert "\x00" not in cleaned
    assert cleaned.encode().decode() == cleaned
    assert clean(cleaned) == cleaned


def test_clean_keeps_what_is_whole_and_replaces_what_is_not():
    assert clean("\ud83d\ude00 \ud835 \x00 é") == "😀 \ufffd \ufffd é"


@given(any_text, st.integers(min_value=50, max_value=500))
def test_clip_never_exceeds_its_limit_and_tells_the_full_length(text, limit):
    clipped = clip(text, limit)
    assert len(clipped) <= limit
    assert clipped == text or f"{len(text):,} characters in all" in clipped


def test_one_line_folds_and_cuts():
    assert one_line("a\n b\t\x00c", 20) == "a b \ufffdc"
    assert one_line("abcdef", 4) == "abc…"


@given(anything)
def test_any_value_becomes_json_that_reads_back(value):
    assert json.loads(render_json(value)) == plain(value)


class Colour(enum.Enum):
    RED = "red"


class Verdict(str, enum.Enum):  # noqa: UP042 the old way, whose `str` is its name
    GOOD = "good"


class Level(enum.IntEnum):
    HIGH = 3


@dataclasses.dataclass
class Point:
    x: int
    tags: set[str]


class Rude:
    def model_dump(self):
        raise RuntimeError("secret")


class Lazy:
    """A proxy that was not set up, as some frameworks have them."""

    @property
    def __class__(self):
        raise RuntimeError("secret")


class Text(str):  # noqa: SLOT000 a text, whatever it says of itself
    def __str__(self):
        raise RuntimeError("secret")


class Number(int):
    def bit_length(self):
        raise RuntimeError("secret")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"\xff", {"base64": "/w=="}),
        ({"b", "a"}, ["a", "b"]),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
        (10**400, "<int of 1329 bits>"),
        (np.int64(3), 3),
        (np.float32("nan"), "nan"),
        (np.arange(3), [0, 1, 2]),
        (Colour.RED, "red"),
        (Verdict.GOOD, "good"),
        ({Verdict.GOOD: Level.HIGH}, {"good": 3}),
        (Point(1, {"t"}), {"x": 1, "tags": ["t"]}),
        (Limits(max_turns=2), {**dict.fromkeys(Limits.model_fields), "max_turns": 2}),
        (dt.date(2026, 3, 1), "2026-03-01"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        ({1: "x", "\ud835": "y"}, {"1": "x", "\ufffd": "y"}),
        (ValueError("secret"), "<ValueError>"),
        (Rude(), "<Rude>"),
        ([Lazy(), 1], ["<Lazy>", 1]),
        ([Text("a\x00")], ["a\ufffd"]),
        ([Number(3)], ["<Number>"]),
        (object(), "<object>"),
        (int, "<class int>"),
    ],
)
def test_what_json_cannot_hold_is_shown_in_a_safe_form(value, shown):
    assert plain(value) == shown
    assert json.loads(render_json(value)) == shown


def test_messages_are_shown_with_their_content():
    assert plain(AIMessage("hi"))["content"] == "hi"


@pytest.mark.parametrize(("count", "words"), [(0, "0 turns"), (1, "1 turn"), (2, "2 turns")])
def test_one_thing_is_no_plural(count, words):
    assert counted(count, "turn") == words


def test_a_value_that_contains_itself_ends():
    loop = []
    loop.append(loop)
    assert plain(loop) == ["<cycle>"]
    deep = []
    for _ in range(10_000):
        deep = [deep]
    assert "<list>" in render_json(deep)

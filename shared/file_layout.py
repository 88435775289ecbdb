"""How the file store's items lie in Redis: names, values, what is known of an item, and what a filter matches."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from .errors import BadInput
from .scripts import Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from langgraph.store.base import MatchCondition

Namespace = tuple[str, ...]
Call = tuple[str | bytes | int, ...]  #: an operation of the script: its name, then its arguments

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_MINUTES = 60 * 24 * 365 * 1000


@cache
def script() -> Script:
    """The script that does all operations."""
    return Script.of((files(__package__) / "lua" / "file_ops.lua").read_text())


# names. Lone surrogates are let through: what an agent named so must be found again by that name.
def pack(text: str) -> bytes:
    """Encode text."""
    return text.encode("utf-8", "surrogatepass")


def unpack(data: bytes) -> str:
    """Decode text."""
    return data.decode("utf-8", "surrogatepass")


def pack_namespace(namespace: Namespace) -> bytes:
    """Encode a namespace whose labels LangGraph has validated: none holds a period."""
    return pack(".".join(namespace))


def unpack_namespace(data: bytes) -> Namespace:
    """Decode a namespace."""
    return tuple(unpack(data).split(".")) if data else ()


# values
def _refuse_odd_keys(value: Any) -> None:
    """Refuse what `json` would quietly change: `{1: …}` would come back as `{"1": …}`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"its key {key!r} is not a string")
            _refuse_odd_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _refuse_odd_keys(inner)


def pack_value(namespace: Namespace, key: str, value: Mapping[str, Any]) -> bytes:
    """Encode a value. Raise `BadInput` where it is no object that JSON can hold; tuples become lists."""
    try:
        plain = dict(value)
        text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        _refuse_odd_keys(plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise BadInput(
            f"the value for key {key!r} in namespace {namespace} is not a JSON object: {error} "
            "(store a dict with string keys, of strings, finite numbers, booleans, null, lists and dicts)"
        ) from None
    return pack(text)


def unpack_value(data: bytes) -> dict[str, Any]:
    """Decode a value."""
    value: dict[str, Any] = json.loads(unpack(data))
    return value


def lifetime_ms(namespace: Namespace, key: str, minutes: float | None) -> int:
    """Return a `ttl` in milliseconds, 0 for none. Raise `BadInput` where it is no positive, sensible number."""
    if minutes is None:
        return 0
    if not 0 < minutes <= _MAX_MINUTES:
        raise BadInput(
            f"ttl {minutes!r} for key {key!r} in namespace {namespace} is not a time to live: "
            "give minutes greater than 0, or None for no end"
        )
    return math.ceil(minutes * 60_000)


class Head(NamedTuple):
    """What is known of a stored item besides its value."""

    version: int  #: greater than that of every earlier write to any item
    created_at: datetime
    updated_at: datetime
    mortal: bool  #: it has a lifetime

    @classmethod
    def read(cls, data: bytes) -> Self:
        """Take a head apart."""
        _, version, created, updated, ttl = map(int, data.split())
        return cls(version, _EPOCH + timedelta(microseconds=created), _EPOCH + timedelta(microseconds=updated), ttl > 0)


class Entry(NamedTuple):
    """A stored item, without its value."""

    namespace: Namespace
    key: str
    size: int  #: bytes of the value as JSON
    version: int
    created_at: datetime
    updated_at: datetime


class SearchPage(NamedTuple):
    """One reply to a search."""

    cursor: tuple[bytes, bytes]  #: where the next page begins
    more: bool
    items: list[tuple[Namespace, str, Head, Any]]

    @classmethod
    def read(cls, reply: list[Any]) -> Self:
        """Take a reply apart."""
        space, item, *rest = reply
        parts: Iterator[Any] = iter(rest)
        items = [
            (unpack_namespace(namespace), unpack(key), Head.read(head), body)
            for namespace, key, head, body in zip(parts, parts, parts, parts, strict=True)
        ]
        return cls((space, item), bool(space), items)


# matching
def literal_prefix(conditions: tuple[MatchCondition, ...]) -> Namespace:
    """Return the longest prefix without a wildcard that all matching namespaces begin with."""
    prefixes = [condition.path for condition in conditions if condition.match_type == "prefix"]
    literal = [path[: path.index("*")] if "*" in path else path for path in prefixes]
    return max(literal, key=len, default=())


def matches_namespace(namespace: Namespace, condition: MatchCondition) -> bool:
    """Tell whether a namespace begins or ends with a path in which `*` stands for any label."""
    kind, path = condition.match_type, condition.path
    if kind not in {"prefix", "suffix"}:
        raise BadInput(f"match type {kind!r} is unknown: use 'prefix' or 'suffix'")
    part = namespace[: len(path)] if kind == "prefix" else namespace[max(0, len(namespace) - len(path)) :]
    return len(part) == len(path) and all(want in ("*", label) for label, want in zip(part, path, strict=True))


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _ordered(compare: Callable[[float, float], bool]) -> Callable[[Any, Any], bool]:
    """Compare as numbers; what is no number does not match."""

    def test(value: Any, bound: Any) -> bool:
        left, right = _number(value), _number(bound)
        return left is not None and right is not None and compare(left, right)

    return test


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda value, other: bool(value == other),
    "$ne": lambda value, other: bool(value != other),
    "$gt": _ordered(lambda value, bound: value > bound),
    "$gte": _ordered(lambda value, bound: value >= bound),
    "$lt": _ordered(lambda value, bound: value < bound),
    "$lte": _ordered(lambda value, bound: value <= bound),
}


def _operate(value: Any, operator: str, operand: Any) -> bool:
    if operator not in _OPERATORS:
        raise BadInput(f"filter operator {operator!r} is unknown: use one of {', '.join(_OPERATORS)}")
    return _OPERATORS[operator](value, operand)


def matches(value: Any, wanted: Any) -> bool:
    """Tell whether a value meets a filter: equal, or as its `$` operators say, down through objects and lists."""
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_operate(value, operator, operand) for operator, operand in wanted.items())
        return isinstance(value, dict) and all(matches(value.get(key), inner) for key, inner in wanted.items())
    if isinstance(wanted, list | tuple):
        return isinstance(value, list) and len(value) == len(wanted) and all(map(matches, value, wanted))
    return bool(value == wanted)

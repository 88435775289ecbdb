"""Cells: how one value of a checkpoint lies in Redis. Long lists are cut into segments that are stored once each.

A segment is a run of items, named by a hash of their serialised bytes. Where a list is cut depends on the items alone,
so a list that grew, or lost its front, shares all other segments with its earlier versions, and a conversation in
`__start__`, in a write and in a channel is one and the same.
"""

from __future__ import annotations

import zlib
from contextlib import suppress
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from langchain_core.messages import BaseMessage
from langgraph.checkpoint.serde.types import _DeltaSnapshot
from langgraph.types import Overwrite, Send

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from langgraph.checkpoint.serde.base import SerializerProtocol

DIGEST = 16  #: bytes of a segment's name
INLINE = 4096  #: a list smaller than this stays in its cell
SEGMENT = 8192  #: bytes after which a segment ends
CUT = 8  #: of 256 items, so many end a segment by their hash alone
DEPTH = 4  #: how deep in dicts lists are looked for
REMEMBERED = 100_000  #: items, and names of stored segments, that are remembered at most

_SCALARS = (str, int, float, bool, bytes, type(None))
_NUMBERS = (int, float, bool, type(None))
_CARRIERS = (Send, Overwrite)


class _Item(NamedTuple):
    digest: bytes
    size: int


class _Seen(NamedTuple):
    message: BaseMessage  #: held, so that its id() stays its own
    fields: Any  #: a copy: a message that was changed in place is serialised again
    extra: Any
    item: _Item


def _plain(value: Any) -> Any:
    """A deep copy of plain data. Anything else raises `TypeError`: changes in it could not be noticed."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    if kind is dict:
        return {key: _plain(item) for key, item in value.items()}
    if kind is list:
        return [_plain(item) for item in value]
    raise TypeError(kind)


def _swap(value: Any, swap: Callable[[Any], Any], depth: int = DEPTH) -> Any:
    """`value` with `swap` applied to what it holds. Containers on the way are copied only where something changed."""
    swapped = swap(value)
    if swapped is not value or depth == 0:
        return swapped
    kind = type(value)
    if kind is dict:
        new = {key: _swap(item, swap, depth - 1) for key, item in value.items()}
        return new if any(new[key] is not item for key, item in value.items()) else value
    if kind is list and value and type(value[0]) in _CARRIERS:
        items = [_swap(item, swap, depth - 1) for item in value]
        return items if any(a is not b for a, b in zip(items, value, strict=True)) else value
    if kind is Send:
        arg = _swap(value.arg, swap, depth - 1)
        return value if arg is value.arg else Send(value.node, arg, timeout=value.timeout)
    if kind is Overwrite or kind is _DeltaSnapshot:
        inner = _swap(value.value, swap, depth - 1)
        return value if inner is value.value else kind(inner)
    return value


class Cells:
    """Writes and reads cells. One object for all clones of a saver, which LangGraph makes shallowly.

    It remembers messages and stored segments of one run to spare serialising and sending them again. Redis says where
    such a memory is wrong, and then everything is sent.
    """

    def __init__(self, *, remember: bool) -> None:
        self._remember = remember
        self._seen: dict[int, _Seen] = {}
        self._stored: set[tuple[str, bytes]] = set()

    def note_stored(self, pool: str, names: Mapping[bytes, bytes]) -> None:
        """Remember that these segments lie in a pool."""
        if len(self._stored) > REMEMBERED:
            self._stored.clear()
        self._stored.update((pool, name) for name in names)

    def forget_stored(self) -> None:
        """Believe no longer that any segment is stored."""
        self._stored.clear()

    def write(self, serde: SerializerProtocol, value: Any, pool: str, fresh: dict[bytes, bytes]) -> bytes:
        """Turn a value into a cell, and add to `fresh` the segments that the pool may not have yet."""
        names: list[bytes] = []

        def swap(part: Any) -> Any:
            if type(part) is not list or not part or type(part[0]) in _NUMBERS or type(part[0]) in _CARRIERS:
                return part
            frames: dict[bytes, bytes] = {}
            items = [self._item(serde, item, frames) for item in part]
            if sum(item.size for item in items) < INLINE:
                return part
            first = len(names)
            for start, end in _cuts(items):
                name = _hash(b"".join([item.digest for item in items[start:end]]))
                names.append(name)
                if name not in fresh and (pool, name) not in self._stored:
                    run = zip(items[start:end], part[start:end], strict=True)
                    fresh[name] = _pack(b"".join([frames.get(item.digest) or _frame(serde, it) for item, it in run]))
            return {_mark(names[0]): [first, len(names)]}

        if type(value) not in _SCALARS:
            value = _swap(value, swap)
        kind, payload = serde.dumps_typed(value)
        head = b"r%06x" % len(names) + b"".join(names) if names else b"p"
        return b"%b%b\0%b" % (head, kind.encode(), payload)

    def read(self, serde: SerializerProtocol, cell: bytes, segments: Mapping[bytes, bytes]) -> Any:
        """Turn a cell back into its value."""
        if cell[:1] == b"p":
            return _load(serde, cell[1:])
        end = 7 + DIGEST * int(cell[1:7], 16)
        names = [cell[at : at + DIGEST] for at in range(7, end, DIGEST)]
        mark = _mark(names[0])

        def swap(part: Any) -> Any:
            if type(part) is not dict or mark not in part:
                return part
            first, last = part[mark]
            return [item for name in names[first:last] for item in self._items(serde, segments[name])]

        return _swap(_load(serde, cell[end:]), swap)

    def _item(self, serde: SerializerProtocol, value: Any, frames: dict[bytes, bytes]) -> _Item:
        """Name one item of a list. What had to be serialised for that goes into `frames`."""
        seen = self._seen.get(id(value))
        if seen is not None and seen.fields == value.__dict__ and seen.extra == value.__pydantic_extra__:
            return seen.item
        frame = _frame(serde, value)
        item = _Item(_hash(frame), len(frame))
        frames[item.digest] = frame
        self._see(value, item)
        return item

    def _see(self, value: Any, item: _Item) -> None:
        if not self._remember or not isinstance(value, BaseMessage):
            return
        self._seen.pop(id(value), None)
        if len(self._seen) >= REMEMBERED:
            del self._seen[next(iter(self._seen))]
        # Fields that hold more than plain data are not remembered: a change in them could not be noticed.
        with suppress(TypeError):
            self._seen[id(value)] = _Seen(value, _plain(value.__dict__), _plain(value.__pydantic_extra__), item)

    def _items(self, serde: SerializerProtocol, segment: bytes) -> list[Any]:
        raw, at, items = _unpack(segment), 0, []
        while at < len(raw):
            start = at + 1 + raw[at] + 4
            end = start + int.from_bytes(raw[start - 4 : start])
            item = serde.loads_typed((raw[at + 1 : start - 4].decode(), raw[start:end]))
            self._see(item, _Item(_hash(raw[at:end]), end - at))
            items.append(item)
            at = end
        return items


def _cuts(items: list[_Item]) -> list[tuple[int, int]]:
    """Where a list is cut: after big items and before them, by the hash of an item, and where a segment is full."""
    cuts, start, size = [], 0, 0
    for at, item in enumerate(items):
        if item.size >= INLINE and at > start:
            cuts.append((start, at))
            start, size = at, 0
        size += item.size
        if size >= SEGMENT or item.size >= INLINE or item.digest[0] < CUT:
            cuts.append((start, at + 1))
            start, size = at + 1, 0
    if start < len(items):
        cuts.append((start, len(items)))
    return cuts


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=DIGEST).digest()


def _mark(name: bytes) -> str:
    # Bound to the content, so that no value of a user's can look like one.
    return f"\0list:{name.hex()}"


def _frame(serde: SerializerProtocol, item: Any) -> bytes:
    kind, payload = serde.dumps_typed(item)
    name = kind.encode()
    return b"%c%b%b%b" % (len(name), name, len(payload).to_bytes(4), payload)


def _load(serde: SerializerProtocol, typed: bytes) -> Any:
    kind, _, payload = typed.partition(b"\0")
    return serde.loads_typed((kind.decode(), payload))


def _pack(raw: bytes) -> bytes:
    packed = zlib.compress(raw, 1)
    return b"z" + packed if len(packed) < len(raw) else b"r" + raw


def _unpack(segment: bytes) -> bytes:
    return zlib.decompress(segment[1:]) if segment[:1] == b"z" else segment[1:]

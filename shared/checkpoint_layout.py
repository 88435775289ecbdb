"""How checkpoints lie in Redis: the record of each, the keys of a thread, and what a script's reply means.

The head of a record is text that scripts read (parent, delta channels, versions); only Python reads its payload.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from langgraph.checkpoint.base import writes_sort_key

from .scripts import Script

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

    from .keys import Keys

ALONE = frozenset({"delete", "copy"})  #: scripts that handle whole keys and need no prelude
UNIT, RECORD, NUL = "\x1f", "\x1e", b"\0"
_KINDS = {str: "s", float: "f"}  #: how a version's text begins; ours are whole numbers and stand bare
ASIDE = frozenset({"id", "channel_values", "channel_versions"})  #: what of a checkpoint is kept outside the payload


class ThreadKeys(NamedTuple):
    """The keys of one namespace of a thread, in the order of KEYS."""

    state: str
    pool: str
    refs: str
    order: str
    spaces: str  #: the index of namespaces
    threads: str


@lru_cache(maxsize=4096)
def thread_keys(keys: Keys, thread_id: str, ns: str) -> ThreadKeys:
    """Compute the keys of a namespace. Ids that are not task ids may hold a colon, so it is quoted."""
    thread = quote(thread_id, safe="")
    return ThreadKeys(
        keys.thread(thread, "state", ns),
        keys.thread(thread, "pool"),
        keys.thread(thread, "refs"),
        keys.thread(thread, "order", ns),
        keys.thread(thread, "index"),
        keys.threads(),
    )


def every_key(keys: Keys, thread_id: str, index: Iterable[bytes]) -> list[str]:
    """Compute all keys of a thread from the fields of its index, which is the first of them."""
    outer = thread_keys(keys, thread_id, "")
    found = [outer.spaces, outer.pool, outer.refs]
    for field in index:
        if field[:1] == b"n":
            inner = thread_keys(keys, thread_id, field[1:].decode())
            found += [inner.state, inner.order]
    return found


@cache
def script(name: str) -> Script:
    """Return a script, as Redis gets it."""
    lua = files(__package__) / "lua"
    text = (lua / f"ckpt_{name}.lua").read_text()
    if name not in ALONE:
        text = (lua / "fence.lua").read_text() + (lua / "ckpt_prelude.lua").read_text() + text
    return Script.of(text)


def entry(channel: str, version: str | float) -> str:
    """Name the value of a channel at a version."""
    return f"{channel}{UNIT}{_KINDS.get(type(version), '')}{version}"


def _parse_entry(text: str) -> tuple[str, str | int | float]:
    channel, _, version = text.rpartition(UNIT)
    if version[0] == "s":
        return channel, version[1:]
    return channel, float(version[1:]) if version[0] == "f" else int(version)


def write_record(
    parent: str, checkpoint: Checkpoint, metadata: CheckpointMetadata, payload: tuple[str, bytes]
) -> bytes:
    """Put a record together. Channels whose value must be rebuilt from ancestors are named in its head."""
    versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
    counted = metadata.get("counters_since_delta_snapshot") or ()
    delta = UNIT.join(channel for channel in counted if channel in versions and channel not in values)
    head = RECORD.join([parent, delta, *(entry(channel, version) for channel, version in versions.items())])
    kind, data = payload
    return b"%b\0%b\0%b" % (head.encode(), kind.encode(), data)


class CheckpointRecord(NamedTuple):
    """A record, taken apart."""

    parent: str
    versions: ChannelVersions
    payload: tuple[str, bytes]


def read_record(record: bytes) -> CheckpointRecord:
    """Take a record apart."""
    head, kind, data = record.split(NUL, 2)
    parent, _, *entries = head.decode().split(RECORD)
    return CheckpointRecord(parent, dict(map(_parse_entry, entries)), (kind.decode(), data))


def owner_of(ns: str, parents: Mapping[str, str] | None) -> str:
    """Name the checkpoint in whose step a subgraph ran: with that checkpoint its namespace goes.

    A subgraph that keeps its state across steps has no task id in its namespace, and stays.
    """
    if ":" not in ns or not parents:
        return ""
    outer = max((name for name in parents if name != ns), key=len, default=None)
    return "" if outer is None else f"{outer}\0{parents[outer]}"


class Write(NamedTuple):
    """A write as it is stored."""

    task: str
    idx: int
    path: str
    channel: str
    cell: bytes


class Reply:
    """A script's flat reply, read from front to back."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = iter(parts)

    def take(self) -> Any:
        """Return the next part."""
        return next(self._parts)

    def cells(self) -> Iterator[tuple[str, bytes]]:
        """Return a counted run of names and cells."""
        for _ in range(self.take()):
            yield self.take().decode(), self.take()

    def write(self) -> Write:
        """Return the next write."""
        task, idx, path, channel, cell = (self.take() for _ in range(5))
        return Write(task.decode(), int(idx), path.decode(), channel.decode(), cell)

    def segments(self) -> dict[bytes, bytes]:
        """Return all that is left as segments by name."""
        return dict(zip(self._parts, self._parts, strict=True))


def in_order(writes: list[Write]) -> list[Write]:
    """Sort the writes of one checkpoint as live execution applies them."""
    return sorted(writes, key=lambda write: writes_sort_key(write.path, write.task, write.idx))


def channel_of(name: str) -> str:
    """Return the channel of an entry."""
    return name.rpartition(UNIT)[0]

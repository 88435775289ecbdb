"""Snapshots: what a fork begins with, as it lies in Redis.

Every message and every file is an item of its own, named by its content, and so is the list of their names. So forks of
one conversation share their items, and a second fork of the same state adds none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from .fork import FILES, conversation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langchain_core.messages import BaseMessage

NAME = 16  #: bytes of an item's name
_SERDE = JsonPlusSerializer()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A parent's conversation and the files in its state, as bytes: nothing that happens to the parent changes it."""

    name: str
    items: Mapping[bytes, bytes]  #: by name; the list of the others' names goes by the snapshot's own

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Snapshot:
        """Take a snapshot of a state, at once."""
        values = [*conversation(state), *(state.get(FILES) or {}).items()]
        written = [_written(value) for value in values]
        names = b"".join(name for name, _ in written)
        name = _hash(names).hex()
        return cls(name, {**dict(written), name.encode(): names})


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a forked child begins with."""

    messages: tuple[BaseMessage, ...] = ()
    files: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, items: Sequence[bytes]) -> Inherited:
        """Build from the items of a snapshot, in their order."""
        values = [_read(item) for item in items]
        files = {value[0]: value[1] for value in values if isinstance(value, list | tuple)}
        return cls(tuple(value for value in values if not isinstance(value, list | tuple)), files)


def _written(value: Any) -> tuple[bytes, bytes]:
    kind, payload = _SERDE.dumps_typed(value)
    item = kind.encode() + b"\0" + payload
    return _hash(item), item


def _read(item: bytes) -> Any:
    kind, _, payload = item.partition(b"\0")
    return _SERDE.loads_typed((kind.decode(), payload))


def _hash(data: bytes) -> bytes:
    return blake2b(data, digest_size=NAME).digest()

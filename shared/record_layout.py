"""How records lie in Redis hashes: each field as text, which is read by the type that the record gives the field."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, get_args, get_origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from .record_base import Record

Hash: TypeAlias = Mapping[bytes, bytes]


def read_hash(kind: type[Record], fields: Hash) -> dict[str, Any]:
    """The fields of a record that its hash has, by their names; moments as Unix ms; empty ones are left out."""
    return {name: value_of(stored) for name, (key, value_of) in _columns(kind).items() if (stored := fields.get(key))}


def hash_of(flat: list[bytes]) -> dict[bytes, bytes]:
    """A hash as scripts return it: fields and values in turn."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def text_of(fields: Hash, name: str) -> str:
    """One field as text; empty where it is absent."""
    return fields.get(name.encode(), b"").decode()


@cache
def _columns(kind: type[Record]) -> dict[str, tuple[bytes, Callable[[bytes], Any]]]:
    """The key of each field, and how its text is read."""
    columns: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {}
    for name, field in kind.model_fields.items():
        plain = _plain(field.annotation)
        key = f"{name.removesuffix('_at')}_ms" if plain is datetime else name
        columns[name] = (key.encode(), _reader(plain))
    return columns


def _reader(plain: Any) -> Callable[[bytes], Any]:
    if plain is bool:
        return lambda stored: stored != b"0"
    if plain in {int, datetime}:
        return int
    if plain == tuple[str, ...]:  # ids
        return lambda stored: tuple(stored.decode().split())
    if isinstance(plain, type) and issubclass(plain, str):
        return bytes.decode
    return json.loads


def _plain(annotation: Any) -> Any:
    """The type itself, where it may be `None` or is annotated."""
    if get_origin(annotation) is Annotated:
        return _plain(get_args(annotation)[0])
    others = [one for one in get_args(annotation) if one is not NoneType]
    return _plain(others[0]) if NoneType in get_args(annotation) else annotation

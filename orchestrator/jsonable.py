"""Values that callers hand in as JSON: checked, copied and made safe to store, with the path of what is wrong."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from ..shared.errors import BadInput
from ..shared.ids import shorten
from ..shared.text import DEPTH, LONGEST_INT_BITS, clean


def json_object(value: Any, where: str, changed: list[str]) -> dict[str, Any]:
    """`value` as an object of JSON values only, else `BadInput`. See `json_value`."""
    if not isinstance(value, Mapping):
        raise BadInput(f"{where} is {_named(value)}: must be an object")
    copy: dict[str, Any] = json_value(value, where, changed)
    return copy


def json_value(value: Any, where: str, changed: list[str], depth: int = DEPTH) -> Any:
    """A copy of `value`, or `BadInput` with the path of the first part that JSON cannot hold.

    Text is cleaned (lone surrogates, NUL); the paths where that changed something are added to `changed`.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return cleaned(value, where, changed)
    if isinstance(value, int | float):
        return _number(value, where)
    if not isinstance(value, Mapping | list | tuple):
        raise BadInput(f"{where} is {_named(value)}: JSON cannot hold it")
    if depth == 0:
        raise BadInput(f"{shorten(where, 80)} is nested more than {DEPTH} deep (or contains itself)")
    if isinstance(value, Mapping):
        return {
            _key(key, where, changed): json_value(item, f"{where}.{key}", changed, depth - 1)
            for key, item in value.items()
        }
    return [json_value(item, f"{where}[{index}]", changed, depth - 1) for index, item in enumerate(value)]


def cleaned(text: str, where: str, changed: list[str]) -> str:
    """The text without what cannot be stored; `where` is added to `changed` if there was any."""
    safe = clean(text)
    if safe != text:
        changed.append(where)
    return safe


def replaced(places: list[str]) -> list[str]:
    """A note for each place where text was cleaned."""
    return [f"{where}: NUL and lone surrogates cannot be stored and were replaced" for where in places]


def size(*values: Any) -> int:
    """Bytes of the values as JSON text in UTF-8; text on its own counts as it is."""
    texts = (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False) for value in values)
    return sum(len(text.encode()) for text in texts)


def _key(key: Any, where: str, changed: list[str]) -> str:
    if not isinstance(key, str):
        raise BadInput(f"{where} has the key {shorten(repr(key))}: keys must be text")
    return cleaned(key, f"{where}.{key}", changed)


def _number(value: float, where: str) -> float:
    if isinstance(value, int):
        if value.bit_length() > LONGEST_INT_BITS:
            raise BadInput(f"{where} is a number of {value.bit_length()} bits: JSON readers cannot hold it")
    elif not math.isfinite(value):
        raise BadInput(f"{where} is {value}: JSON cannot hold it")
    return value


def _named(value: Any) -> str:
    if isinstance(value, str | int | float | list | tuple | bool) or value is None:
        return shorten(repr(value))
    return f"a {type(value).__name__}"

"""Make text and values of agents and people safe to store, to send and to show."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any
from uuid import UUID

# Halves of surrogate pairs cannot be encoded as UTF-8, and NUL ends text in many systems that store it.
_UNSAFE = re.compile("[\x00\ud800-\udfff]")
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

LONGEST_INT_BITS = 1000  #: longer ones are beyond what JSON readers take
DEPTH = 100  #: nesting that `render_json` follows; deeper values are shown by their type


def clean(text: str) -> str:
    """The text with NULs and lone surrogates replaced by U+FFFD. Real pairs of surrogates become their character."""
    if not _UNSAFE.search(text):
        return text
    paired = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _UNSAFE.sub(REPLACEMENT, paired)


def clip(text: str, limit: int) -> str:
    """The text where it has at most `limit` characters, else its beginning and a mark that gives the full length.

    The mark is part of the limit.
    """
    if len(text) <= limit:
        return text
    mark = f"… (cut: {len(text):,} characters in all)"
    return text[: max(0, limit - len(mark))] + mark


def one_line(text: str, limit: int) -> str:
    """The text cleaned, its white space folded, cut to `limit` characters with `…`."""
    folded = " ".join(clean(text).split())
    return folded if len(folded) <= limit else folded[: limit - 1] + "…"


def render_json(value: Any) -> str:
    """JSON text of any value. Never raises; what JSON cannot hold is shown in a safe form.

    Bytes become `{"base64": …}`, sets sorted lists, NaN and infinities text, models and dataclasses objects, anything
    else its type's name in angle brackets. A value that contains itself is shown as `<cycle>`.
    """
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False)


def plain(value: Any) -> Any:
    """The value as JSON values only, by the rules of `render_json`."""
    return _plain(value, DEPTH, ())


def _plain(value: Any, depth: int, above: tuple[int, ...]) -> Any:
    try:
        if value is None or (isinstance(value, bool | str | int | float) and not isinstance(value, Enum)):
            return _scalar(value)
        if id(value) in above:
            return "<cycle>"
        if depth == 0:
            return _type_mark(value)
        form = next((form for types, form in _FORMS if isinstance(value, types)), _object)
        return form(value, lambda item: _plain(item, depth - 1, (*above, id(value))))
    except Exception:  # noqa: BLE001 whatever an object's own code raises, its task settles
        return _type_mark(value)


def counted(count: int, noun: str) -> str:
    """A number of things in words: `1 turn`, `2 turns`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _scalar(value: bool | str | float | None) -> Any:  # noqa: FBT001 a value, not a switch
    if isinstance(value, str):
        return clean(str.__str__(value))
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, int) and value.bit_length() > LONGEST_INT_BITS:
        return f"<int of {value.bit_length()} bits>"
    return value


Form = Callable[[Any, Callable[[Any], Any]], Any]

#: How values of a type are shown; the first that fits counts. The second argument shows what is inside.
_FORMS: tuple[tuple[Any, Form], ...] = (
    ((bytes, bytearray, memoryview), lambda value, _: {"base64": base64.b64encode(bytes(value)).decode()}),
    (Mapping, lambda value, show: {_key(key): show(item) for key, item in value.items()}),
    ((list, tuple), lambda value, show: [show(item) for item in value]),
    (AbstractSet, lambda value, show: sorted((show(item) for item in value), key=repr)),
    (Enum, lambda value, show: show(value.value)),
    (date, lambda value, _: value.isoformat()),
    ((UUID, PurePath, Decimal), lambda value, _: clean(str(value))),
    (BaseException, lambda value, _: _type_mark(value)),  # its text may hold secrets
    (type, lambda value, _: f"<class {value.__name__}>"),
)


def _key(key: Any) -> str:
    return clean(str(key.value if isinstance(key, Enum) else key))


def _object(value: Any, show: Callable[[Any], Any]) -> Any:
    """Dataclasses, models of pydantic and LangChain, arrays and scalars of numpy."""
    if dataclasses.is_dataclass(value):
        return {field.name: show(getattr(value, field.name)) for field in dataclasses.fields(value)}
    for dump in ("model_dump", "tolist"):
        method = getattr(value, dump, None)
        if callable(method):
            return show(method())
    return _type_mark(value)


def _type_mark(value: object) -> str:
    return f"<{type(value).__name__}>"

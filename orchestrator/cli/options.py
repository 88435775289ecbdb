"""Options that several verbs have, and what values mean: durations, pairs, files of JSON, text from stdin."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from ...shared.errors import BadInput
from ...shared.ids import shorten

if TYPE_CHECKING:
    from collections.abc import Sequence

State: TypeAlias = Annotated[str | None, typer.Option(metavar="JSON|@FILE", help="More input state, as a JSON object.")]
Wait: TypeAlias = Annotated[bool, typer.Option("--wait", help="Wait until it has ended; the result follows the id.")]
WaitTimeout: TypeAlias = Annotated[
    str | None, typer.Option(metavar="DURATION", help="Wait no longer than this: 90s, 30m. The task goes on.")
]
Follow: TypeAlias = Annotated[bool, typer.Option("--follow", help="Watch it until it has ended.")]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")
_DURATION = re.compile(rf"(?:{_PART.pattern})+")


def seconds(option: str, value: str | None) -> float | None:
    """Seconds of a duration such as `90s`, `30m`, `1h30m`, or of a bare number of seconds."""
    if value is None:
        return None
    text = value.strip().lower()
    text = f"{text}s" if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text) else text
    found = sum(float(count) * _UNITS[unit] for count, unit in _PART.findall(text))
    if not _DURATION.fullmatch(text) or found == math.inf:
        raise BadInput(f"{option} {_short(value)}: must be a duration such as 90s, 30m or 1h30m")
    return found


def pairs(option: str, values: Sequence[str] | None) -> dict[str, str]:
    """The pairs `key=value` as an object; a key that comes again replaces the one before."""
    found = {}
    for value in values or ():
        key, equals, text = value.partition("=")
        if not (key and equals):
            raise BadInput(f"{option} {_short(value)}: must be key=value")
        found[key] = text
    return found


def json_option(option: str, value: str | None, max_bytes: int) -> dict[str, Any] | None:
    """An object, given as JSON or as `@file`."""
    if value is None:
        return None
    text = _read(option, value[1:], max_bytes) if value.startswith("@") else value
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{option} {_short(value)}: is not JSON: {error} (give @file.json, or an object)") from None
    if not isinstance(found, dict):
        raise BadInput(f"{option} {_short(value)}: holds a {type(found).__name__}, must hold an object")
    return found


def text_or_file(option: str, value: str | None, max_bytes: int) -> str | None:
    """A text, given as it is or as `@file`."""
    return _read(option, value[1:], max_bytes) if value is not None and value.startswith("@") else value


def text_or_stdin(value: str, max_bytes: int) -> str:
    """The text, or stdin where it is `-`: at most one byte more than allowed, so that too much is noticed."""
    if value != "-":
        return value
    return sys.stdin.buffer.read(max_bytes + 1).decode(errors="surrogateescape")


def _read(option: str, name: str, max_bytes: int) -> str:
    named = f"{option} @{shorten(name)}"
    try:
        # A pipe in the file's place would else block for ever.
        with os.fdopen(os.open(Path(name).expanduser(), os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(max_bytes + 1) if regular else b""
    except (OSError, ValueError, RuntimeError) as error:  # the last: `~name` of nobody
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInput(f"{named}: cannot be read: {reason}") from None
    if not regular:
        raise BadInput(f"{named}: is no regular file")
    if len(data) > max_bytes:
        raise BadInput(f"{named}: has more than OUTRIDER_MAX_INPUT_BYTES = {max_bytes:,} bytes")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{named}: is not UTF-8 text ({error.reason} at byte {error.start})") from None


def _short(value: str) -> str:
    return repr(shorten(value))

"""Ids: how they are made, and which ones are accepted."""

from __future__ import annotations

import random
import re
import uuid

from .errors import BadInput

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
NAME_RULE = f"must match {_NAME.pattern}"  #: what an error says of a name that is not one


def new_id() -> str:
    """A fresh random id for a task or a run, 36 characters."""
    return str(uuid.uuid4())


def derived_id(*parts: str) -> str:
    """The id that the same parts always give, 36 characters: a call sent again names what the first one made."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, "/".join(parts)))


def new_token() -> str:
    """A fresh random claim token, 16 hex digits."""
    # It is no secret. Asking the system for random bytes would hand the interpreter to another thread in each run.
    return f"{random.getrandbits(64):016x}"


def check_id(value: object, what: str = "task id") -> str:
    """Return `value` where it is a well-formed id, else raise `BadInput` before anything is read."""
    if is_id(value):
        return str(value)
    raise BadInput(f"{what} {shorten(repr(value))} is not valid: it must match {_ID.pattern} (see `outrider list`)")


def is_id(value: object) -> bool:
    """Whether `value` is a well-formed id."""
    return isinstance(value, str) and _ID.fullmatch(value) is not None


def shorten(shown: str, limit: int = 60) -> str:
    """A value, cut to be shown in an error of one line."""
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def is_name(value: object) -> bool:
    """Whether `value` can name an agent, a queue or a namespace."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None

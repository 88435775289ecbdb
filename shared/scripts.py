"""The Lua scripts: how their text is put together, and how they are called."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from weakref import WeakKeyDictionary

from redis.exceptions import NoScriptError

from .statuses import MOVES, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import redis.asyncio

    from .statuses import State

Argument: TypeAlias = str | bytes | int | float

#: Scripts that change one task begin with the prelude; these are about many tasks or none, or change nothing.
ALONE = frozenset({"heartbeat", "sweep", "admit", "condemn", "closed", "take_delivery", "end_delivery", "read"})
#: These concern a task's parent and children too.
FAMILY = frozenset({"submit", "settle", "cancel", "answer", "expire", "update"})
#: These deal out the slots of an agent.
SLOTS = frozenset({"claim", "admit"})
#: Where a script names its arguments.
_NAMED = re.compile(r"^local ([\w,\s]+) = unpack\(ARGV, 1, \d+\)$", re.MULTILINE)


def _lua(name: str) -> str:
    return (files(__package__) / "lua" / f"{name}.lua").read_text()


def _state(status: Status, phase: str | None) -> str:
    return f"{status}/{phase or ''}"


def _tables() -> str:
    names = ",".join(f'"{status}"' for status in Status)
    edges: dict[str, list[str]] = {}
    for name, sources, targets in MOVES:
        edges.setdefault(name, []).append(_edges(sources, targets))
    moves = ",".join(f'["{name}"]={{{",".join(parts)}}}' for name, parts in edges.items())
    return f"local STATUSES = {{{names}}}\nlocal MOVES = {{{moves}}}\n"


def _edges(sources: tuple[State, ...], targets: tuple[State, ...]) -> str:
    return ",".join(f'["{_state(*source)}>{_state(*target)}"]=true' for source in sources for target in targets)


class Script(NamedTuple):
    """A script by the name that Redis gives it. redis-py's own kind hashes the text anew for each client."""

    sha: str
    text: str
    arguments: tuple[str, ...]  #: the names that the script gives to its first arguments, where it names any

    @classmethod
    def of(cls, text: str) -> Script:
        """Name a script."""
        named = _NAMED.search(text)
        arguments = tuple(re.split(r",\s*", named[1])) if named else ()
        return cls(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), text, arguments)

    def in_order(self, given: Mapping[str, Argument]) -> list[Argument]:
        """The named arguments in the script's own order."""
        if len(given) != len(self.arguments):
            raise TypeError(f"the script takes {', '.join(self.arguments)}, and was given {', '.join(given)}")
        return [given[name] for name in self.arguments]

    async def run(self, redis: redis.asyncio.Redis, keys: Sequence[str], args: Sequence[Argument]) -> Any:
        """Run it, loading it where Redis does not know it, and return its reply.

        Of many that find it unknown at once, as after a restart of Redis, one sends its text and the others wait.
        """
        while True:
            with suppress(NoScriptError):
                return await redis.evalsha(self.sha, len(keys), *keys, *args)
            loading = _LOADING.setdefault(redis, {})
            if loaded := loading.get(self.sha):
                await loaded.wait()
                continue
            loaded = loading[self.sha] = asyncio.Event()
            try:
                return await redis.eval(self.text, len(keys), *keys, *args)
            finally:
                del loading[self.sha]
                loaded.set()


#: By clients and names of scripts: set when another call has sent the text.
_LOADING: WeakKeyDictionary[redis.asyncio.Redis, dict[str, asyncio.Event]] = WeakKeyDictionary()


@cache
def source(name: str) -> str:
    """The whole text of a transition."""
    parts = [_lua("clock"), _lua("fence"), *([] if name in ALONE else [_tables(), _lua("prelude")])]
    parts += [_lua(part) for part, users in (("family", FAMILY), ("slots", SLOTS)) if name in users]
    return "".join((*parts, _lua(name)))


class Scripts:
    """The scripts bound to one client. `await scripts("claim", keys, args)` runs one, loading it where needed."""

    def __init__(self, redis: redis.asyncio.Redis) -> None:
        self._redis = redis
        self._known: dict[str, Script] = {}

    async def __call__(
        self,
        name: str,
        keys: list[str],
        args: Mapping[str, Argument] | Sequence[Argument],
        rest: Iterable[Argument] = (),
    ) -> list[Any]:
        """Run a script and return its reply.

        `args` has by name what the script names (a plain sequence where it names none), and `rest` what follows.
        """
        script = self._known.get(name)
        if script is None:
            script = self._known[name] = Script.of(source(name))
        first = script.in_order(args) if isinstance(args, Mapping) else args
        reply: list[Any] = await script.run(self._redis, keys, [*first, *rest])
        return reply

"""What is wrong with the Redis that holds our records, read from its `INFO`; for a worker's start and for `doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

OLDEST: Final = (6, 2)
FULL: Final = 0.9  #: part of the memory limit; above it Redis may soon refuse writes


class Level(StrEnum):
    """How bad a finding is."""

    ERROR = "error"  #: work stands still or is lost
    WARNING = "warning"  #: work may come to stand still or be lost


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, and what to do about it."""

    level: Level
    what: str
    remedy: str


def check_redis(info: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings on a Redis, from its `INFO`. What is missing there is no finding."""
    yield from _server(info)
    yield from _persistence(info)
    yield from _memory(info)


def _server(info: Mapping[str, Any]) -> Iterator[Finding]:
    version = str(info.get("redis_version", ""))
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < OLDEST:
        yield Finding(Level.ERROR, f"Redis is of version {version}", "take Redis 6.2 or newer, or Valkey")
    if info.get("role") == "slave":
        yield Finding(Level.ERROR, "this Redis is a replica, which takes no writes", "name its primary")


def _persistence(info: Mapping[str, Any]) -> Iterator[Finding]:
    if info.get("aof_enabled") == 0:
        yield Finding(
            Level.WARNING,
            "Redis keeps no append-only file: a restart loses tasks that were accepted",
            "redis-cli CONFIG SET appendonly yes, and in redis.conf: appendonly yes",
        )
    broken = {
        "aof_last_write_status": "Redis cannot write its append-only file",
        "aof_last_bgrewrite_status": "Redis cannot rewrite its append-only file, which grows",
        "rdb_last_bgsave_status": "Redis cannot save snapshots, and may refuse writes",
    }
    for name, what in broken.items():
        if info.get(name) == "err":
            yield Finding(Level.ERROR, what, "look into Redis' log: is its disk full, or the folder not writable?")


def _memory(info: Mapping[str, Any]) -> Iterator[Finding]:
    policy, limit, used = info.get("maxmemory_policy"), info.get("maxmemory") or 0, info.get("used_memory") or 0
    if policy not in {None, "noeviction"}:
        when = "when its memory is full" if limit else "once a memory limit is set"
        yield Finding(
            Level.ERROR if limit else Level.WARNING,
            f"Redis throws records away {when}: maxmemory-policy is {policy}",
            "redis-cli CONFIG SET maxmemory-policy noeviction, and in redis.conf the same",
        )
    if limit and used >= FULL * limit:
        yield Finding(
            Level.ERROR if used >= limit else Level.WARNING,
            f"Redis uses {used / limit:.0%} of its memory limit of {limit / 2**20:,.0f} MiB",
            "raise maxmemory, or keep finished tasks for a shorter time",
        )

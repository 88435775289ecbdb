"""The errors of a Redis that is up and cannot serve: the same command may succeed later."""

from __future__ import annotations

import re
from typing import Final, Self

from redis.exceptions import ConnectionError as ConnectionLost
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as TimedOut

#: The code of an answer, what it means, and the remedy.
REFUSALS: Final[dict[str, tuple[str, str]]] = {
    "READONLY": ("it is a replica, which takes no writes", "set OUTRIDER_REDIS_URL to its primary"),
    "OOM": ("its memory is full", "raise its maxmemory, or delete old tasks"),
    "LOADING": ("it is still loading its data", "wait until it has"),
    "MASTERDOWN": ("it is a replica that has lost its primary", "set OUTRIDER_REDIS_URL to one that is up"),
    "CLUSTERDOWN": ("its cluster is down", "see `redis-cli cluster info`"),
    "MISCONF": ("it cannot save its data, and takes no writes", "see its log: is its disk full?"),
    "NOREPLICAS": ("it has too few replicas to take writes", "start them, or lower its min-replicas-to-write"),
    "BUSY": ("a script blocks it", "wait, or see `redis-cli script kill`"),
}
# Before Redis 7 a script's own error stands in front of the one that its command met.
_CODE = re.compile(rf"(?:^|: -)({'|'.join(REFUSALS)})\b")


class TooLarge(ResponseError):
    """Redis closes the connection at a command of this size, again and again."""

    @classmethod
    def of(cls, command: str, size: int) -> Self:
        """Name the command, its size and the remedy."""
        return cls(
            f"{command} with {size:,} bytes ends its connection each time: "
            "send less, or raise proto-max-bulk-len (a proxy may have a bound of its own)"
        )


def refusal(error: BaseException) -> str | None:
    """The code with which Redis refuses all, or all writes, for now; `None` where the error is another one."""
    if not isinstance(error, RedisError):
        return None
    if error.status_code in REFUSALS:
        return error.status_code
    found = _CODE.search(str(error))
    return found[1] if found else None


def is_away(error: BaseException) -> bool:
    """Whether Redis is out of reach or cannot serve, so that nothing is wrong with the command."""
    return isinstance(error, (ConnectionLost, TimedOut)) or refusal(error) is not None

"""`python -m outrider.worker.health [NODE]`: whether a worker consumes, for the health check of a container.

A worker may have lost its broker, or hang, while its process lives. It is well if it names its queues when it is asked,
on the connection and the thread by which bells come.
"""

from __future__ import annotations

import sys
from socket import gethostname
from typing import TYPE_CHECKING, Final

from ..shared.broker import BROKER_ERRORS, BrokerUnreachable, make_app
from ..shared.errors import OutriderError
from ..shared.settings import Settings

if TYPE_CHECKING:
    from celery import Celery

ANSWER_SECONDS: Final = 5.0


def consumed(app: Celery, node: str | None = None) -> list[str]:
    """The queues that a worker takes bells from; none if it does not answer in time.

    `node` is its name among Celery's workers; without it, whichever worker of this host answers first.
    """
    asked = {"destination": [node]} if node else {"pattern": f"*@{gethostname()}", "matcher": "glob"}
    try:
        answers = app.control.inspect(timeout=ANSWER_SECONDS, limit=1, **asked).active_queues()
    except BROKER_ERRORS as error:
        raise BrokerUnreachable(app.conf.broker_read_url, str(error)) from None
    return [queue["name"] for queues in (answers or {}).values() for queue in queues]


def main(arguments: list[str]) -> int:
    """Print what is consumed, or what is wrong, and return the exit code."""
    node = arguments[0] if arguments else None
    try:
        queues = consumed(make_app(Settings.load()), node)
    except OutriderError as error:
        print(f"outrider: {error}", file=sys.stderr)  # noqa: T201 a command
        return 1
    if not queues:
        silent = f"{node} did not answer" if node else f"no worker of {gethostname()} answered"
        print(f"outrider: {silent} in {ANSWER_SECONDS:g} s, or it consumes nothing", file=sys.stderr)  # noqa: T201
        return 1
    print(f"consumes {', '.join(sorted(queues))}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

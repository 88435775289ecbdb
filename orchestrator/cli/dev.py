"""`outrider dev`."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ...shared.settings import Settings

EPILOG = """\b
Examples:
  outrider dev
  outrider submit AGENT TEXT --wait      (in another terminal, in the same folder)"""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("dev", short_help="Start Redis, a worker and Flower in this terminal.", epilog=EPILOG)(dev)


def dev() -> int:
    """Start Redis, a worker and Flower here. Ctrl-C stops them in order, a second one at once.

    Redis keeps its data in .outrider/ and is not started where the environment names one. Other commands in the same
    folder find it by themselves. Agents are loaded once: after a change of their code, start it again.
    """
    from ...shared.config import Config
    from ...shared.devfile import DevFolder
    from ...shared.settings import Settings, redis_is_named
    from ..dev import DevServer
    from .console import run, visible

    settings = Settings.load()
    Config.load(settings.config)
    if redis_is_named():
        run(_reach(settings))
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda told, _frame: sys.exit(128 + told))
    return DevServer(settings, DevFolder(), visible).run()


async def _reach(settings: Settings) -> None:
    """Raise `RedisUnreachable` before anything starts."""
    from ...shared.connections import connect, reachable

    with reachable(settings):
        async with connect(settings, size=1) as redis:
            await redis.ping()

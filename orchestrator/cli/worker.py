"""`outrider worker`."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from ...shared.errors import BadInput

EPILOG = """\b
Examples:
  outrider worker
  outrider worker -Q subagents,parents -c 100
  outrider worker --pool prefork -c 4"""


class Pool(StrEnum):
    """How a worker runs its tasks."""

    THREADS = "threads"
    PREFORK = "prefork"


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("worker", short_help="Run tasks until told to stop.", epilog=EPILOG)(worker)


def worker(
    queues: Annotated[
        str | None,
        typer.Option(
            "-Q",
            "--queues",
            metavar="NAMES",
            help="Queues to serve, separated by commas; all unless given, also those in langgraph.json.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "-c",
            "--concurrency",
            metavar="N",
            min=1,
            help="How many runs at a time; 250 unless given, with prefork one per core.",
        ),
    ] = None,
    pool: Annotated[Pool, typer.Option("--pool", help="prefork is for agents that keep a core busy.")] = Pool.THREADS,
) -> None:
    """Run tasks until told to stop. This process becomes the worker."""
    from ...shared.config import Config
    from ...shared.settings import Settings

    Config.load(Settings.load().config)
    command = [sys.executable, "-m", "outrider.worker", "--pool", pool.value]
    if concurrency is not None:
        command += ["-c", str(concurrency)]
    if queues is not None:
        command += ["-Q", ",".join(_names(queues))]
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606 the pid stays, so that it takes the signals


def _names(queues: str) -> list[str]:
    from ...shared.ids import NAME_RULE, is_name, shorten

    names = [name.strip() for name in queues.split(",")]
    for name in names:
        if not is_name(name):
            raise BadInput(f"-Q {shorten(repr(queues))}: {shorten(repr(name))} {NAME_RULE}")
    return names

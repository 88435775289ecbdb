"""`outrider flower`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from ...shared.errors import BadInput

EPILOG = """\b
Examples:
  outrider flower
  outrider flower --port 8080
  FLOWER_BASIC_AUTH=ada:secret outrider flower --address 0.0.0.0

Flower's own settings are read too: FLOWER_..., flowerconfig.py."""


def register(app: typer.Typer) -> None:
    """Add the verb."""
    app.command("flower", short_help="Show workers and jobs in the browser.", epilog=EPILOG)(flower)


def flower(
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 5555 unless given, 0 takes a free one."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST", help="The address; 127.0.0.1 unless given, any other needs a login."),
    ] = None,
    basic_auth: Annotated[
        str | None,
        typer.Option("--basic-auth", metavar="USER:PASSWORD", help="Ask for this login; separate several by commas."),
    ] = None,
) -> None:
    """Show workers and jobs in the browser. Revoke and Terminate there cancel the task and its children.

    Each job is shown with its agent, title and task id, never with a description. On loopback, Flower's own pages and
    programs of this machine need no login; on any other address it starts only with one.
    """
    from ...shared.settings import Settings

    Settings.load()
    if basic_auth is not None:
        if not all(all(one.partition(":")[::2]) for one in basic_auth.split(",")):
            raise BadInput("--basic-auth: must be user:password")
        # Not on the command line of what this process becomes: everyone on the machine sees that.
        os.environ["FLOWER_BASIC_AUTH"] = basic_auth
    sys.stdout.flush()
    command = [sys.executable, "-m", "celery", "-A", "outrider.worker.main", "flower"]
    command += [] if address is None else [f"--address={address}"]
    command += [] if port is None else [f"--port={port}"]
    os.execv(command[0], command)  # noqa: S606 the pid stays, so that it takes the signals

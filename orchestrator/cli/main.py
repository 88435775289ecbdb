"""`outrider`: its verbs, and how errors are printed. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer
from typer.main import get_command

from ...shared.errors import OutriderError, RedisUnreachable, WaitTimeout
from . import answer, cancel, demo, dev, doctor, flower, follow, list_tasks, show, submit, update, worker
from .console import complain
from .endings import BAD_USE, INTERRUPTED, TIMED_OUT, UNREACHABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

EXITS = (
    "Exit codes: 0 done · 1 ended as error, timeout or cancelled, or doctor found something · "
    "2 bad use, unknown id or a refusal · 3 cannot reach Redis · 4 --wait met a question · "
    "5 --wait-timeout passed, the task goes on · 6 done, but its grade is not satisfied"
)

app = typer.Typer(
    name="outrider",
    help="Background agents on Celery and Redis: submit tasks, look at them, wait for them, end them.",
    epilog=EXITS,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

for verb in (submit, list_tasks, show, follow, answer, update, cancel, dev, worker, flower, doctor, demo):
    verb.register(app)


def _version(asked: bool) -> None:  # noqa: FBT001 typer hands the option's value over
    if asked:
        from importlib.metadata import version

        print(version("outrider"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _outrider(
    context: typer.Context,
    _version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help(), file=sys.stderr)
        raise typer.Exit(BAD_USE)


def run(arguments: Sequence[str]) -> int:
    """Carry a command line out; the exit code. Errors become one line on stderr."""
    try:
        # Not by calling `app`: that would end the process by itself on a broken pipe.
        command = get_command(app)
        with command.make_context("outrider", list(arguments)) as context:
            code = command.invoke(context)
        sys.stdout.flush()
    except typer.Exit as done:
        return done.exit_code
    except OutriderError as error:
        complain(str(error))
        return _exit_code(error)
    except OSError as error:
        return _cannot_write(error)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except _USAGE as error:
        complain(_usage_line(error))
        return BAD_USE
    return code if isinstance(code, int) else 0


def main() -> None:
    """The console script."""
    _open_streams()
    sys.exit(run(sys.argv[1:]))


def _open_streams() -> None:
    """Open missing streams, and let stdout print what its encoding lacks as an escape."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # as `<&-` and `>&-` leave it
            setattr(sys, name, open(os.devnull, mode))  # noqa: PTH123, SIM115 as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _cannot_write(error: OSError) -> int:
    """Whoever read has enough, which is fine, or the disk is full."""
    # The interpreter must not try to flush the rest on its way out.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    complain(str(error))
    return BAD_USE


def _exit_code(error: OutriderError) -> int:
    if isinstance(error, RedisUnreachable):
        return UNREACHABLE
    return TIMED_OUT if isinstance(error, WaitTimeout) else BAD_USE


#: The common base of errors in the use of options and arguments; it has no public name.
_USAGE: type[Exception] = typer.BadParameter.__mro__[1]


def _usage_line(error: Exception) -> str:
    """A usage error in one line, with where to read on."""
    message = getattr(error, "format_message", error.__str__)().replace("Value error, ", "")
    if hasattr(error, "option_name") and not error.option_name.startswith("--"):
        message += " (what begins with - and is no option stands after --)"
    path = getattr(getattr(error, "ctx", None), "command_path", "outrider")
    return f"{' '.join(message.split()).rstrip('.')} (see `{path} --help`)"

"""Commands that graders run: time and output are bounded, and they end with their worker, their children with them."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ..shared.text import clean
from ..shared.tied_programs import tied_group

if TYPE_CHECKING:
    from ..shared.grader_config import Command

LAST = 20_000  #: characters of the output that a grader reads: a test suite's summary stands at the end
PIECE = 1 << 20  #: bytes read at once, more than a pipe holds


async def run_command(command: Command, folder: Path, task_id: str) -> str:
    """Run it, and return its exit code with the end of its output; `OSError` where it cannot be started."""
    where = folder / command.folder
    tied = tied_group([_program(command.command[0], where), *command.command[1:]])
    with _Output() as output:
        # A cancel that comes while it starts would else end the command alone: it may have children by then.
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *tied,
                cwd=where,
                env={**os.environ, "OUTRIDER_TASK_ID": task_id},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output.writing,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,  # its children too are ended with it
            )
        )
        try:
            async with asyncio.timeout(command.timeout_seconds):
                process = await asyncio.shield(starting)
                await process.wait()
            ended = f"exit code {process.returncode}"
        except TimeoutError:
            ended = f"it did not end within {command.timeout_seconds:g} seconds, and was stopped"
        finally:
            process = await starting
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
        return f"{ended}\n{output.end()}"


def _program(name: str, folder: Path) -> str:
    """The absolute path of a program, as its folder and `PATH` have it."""
    found = shutil.which(folder / name if os.sep in name else name)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, "no such program", name)
    return str(Path(found).absolute())  # not resolved: programs look at the name that they are called by


class _Output:
    """The end of what a command writes, read as it comes.

    A pipe of our own: asyncio's would make us wait for whoever holds it open, and a child that left the command's
    group may do so for long after its end.
    """

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._kept = b""

    def __enter__(self) -> Self:
        asyncio.get_running_loop().add_reader(self._reading, self._read)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reading)
        os.close(self._reading)
        os.close(self.writing)

    def _read(self) -> None:
        with suppress(BlockingIOError):
            self._kept = (self._kept + os.read(self._reading, PIECE))[-4 * LAST :]

    def end(self) -> str:
        """The last of it, when the command has ended."""
        self._read()
        text = clean(self._kept.decode(errors="replace"))
        return text if len(text) <= LAST else f"(the last {LAST} characters)\n{text[-LAST:]}"

"""The programs of `outrider dev`: each has a session of its own, and its lines go to one terminal with its name."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Final, TypeAlias

from ..shared.tied_programs import tied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from queue import SimpleQueue

WIDTH: Final = 6  #: of the longest name
COLOURS: Final = {"dev": "32", "worker": "36", "flower": "35", "redis": "31"}  #: of names, on a terminal


@dataclass(frozen=True, slots=True)
class ProgramEnded:
    """A program has ended."""

    name: str
    code: int  #: negative: the signal that ended it


@dataclass(frozen=True, slots=True)
class StopRequested:
    """`dev` was told to stop."""

    signal: int


Happened: TypeAlias = ProgramEnded | StopRequested


class Printer:
    """Prints whole lines of several programs, each behind the name of its program.

    On a terminal `clean` makes visible what could move its cursor. When nobody reads any more, `dev` is told to stop.
    """

    def __init__(self, out: IO[str], clean: Callable[[str], str], happened: SimpleQueue[Happened]) -> None:
        self._out, self._happened, self._lock = out, happened, threading.Lock()
        self._clean = clean if out.isatty() else str
        self._coloured = out.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        self._read = True

    def print(self, name: str, text: str) -> None:
        """Print one line."""
        head = f"{name:<{WIDTH}} |"
        if self._coloured:
            head = f"\x1b[{COLOURS[name]}m{head}\x1b[0m"
        with self._lock:
            if not self._read:
                return
            try:
                print(head, self._clean(text), file=self._out, flush=True)
            except (OSError, ValueError):
                self._read = False
                self._happened.put(StopRequested(signal.SIGPIPE))


class Program:
    """A program that was started, with its lines and its end. On Linux it ends with the thread that started it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        env: Mapping[str, str],
        printer: Printer,
        happened: SimpleQueue[Happened],
    ) -> None:
        self.name = name
        self._process = subprocess.Popen(
            tied(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C goes to a terminal's whole group: `dev` stops its programs itself
        )
        threading.Thread(target=self._follow, args=(printer, happened), daemon=True).start()

    def _follow(self, printer: Printer, happened: SimpleQueue[Happened]) -> None:
        for line in self._process.stdout or ():
            printer.print(self.name, line.rstrip("\r\n"))
        happened.put(ProgramEnded(self.name, self._process.wait()))

    def stop(self) -> None:
        """Tell it to end. It may be gone."""
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, with all that it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)

"""`.outrider/dev.json`: the addresses of the `outrider dev` of this folder while it is up.

A lock that its process holds says whether it is up: it goes with the process, however that ends. A process id would
not do, since another program may have it by now.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from .errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER: Final = ".outrider"
# Another command that looks whether a `dev` is up holds the lock for a moment.
LOCK_TRIES, LOCK_PAUSE_SECONDS = 20, 0.02


@dataclass(frozen=True, slots=True)
class Dev:
    """A `dev` that is up."""

    redis_url: str
    flower_url: str
    namespace: str
    pid: int


class DevFolder:
    """The folder `.outrider` of a project, by default of the one that stands in the working directory."""

    def __init__(self, project: Path | None = None) -> None:
        self.path = (project or Path()).absolute() / FOLDER
        self._file, self._lock = self.path / "dev.json", self.path / "dev.lock"

    def live(self) -> Dev | None:
        """The `dev` that is up in this folder, or `None`."""
        try:
            found = Dev(**json.loads(self._file.read_text(encoding="utf-8")))
            with self._lock.open("rb") as lock:
                return None if _take(lock.fileno(), fcntl.LOCK_SH) else found
        except (OSError, ValueError, TypeError):
            return None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the one `dev` of this folder, which is made if missing; `BadInput` names the process of another one."""
        with self._open() as lock:
            for left in reversed(range(LOCK_TRIES)):
                if _take(lock.fileno(), fcntl.LOCK_EX):
                    break
                if not left:
                    lock.seek(0)
                    raise BadInput(
                        f"an `outrider dev` runs in this folder already, as process {lock.read().strip()}: "
                        "use that one, or end it (Ctrl-C there)"
                    )
                time.sleep(LOCK_PAUSE_SECONDS)
            lock.truncate(0)
            lock.write(f"{os.getpid()}\n")
            lock.flush()
            self._file.unlink(missing_ok=True)  # of one that was killed
            try:
                yield
            finally:
                self._file.unlink(missing_ok=True)

    def _open(self) -> IO[str]:
        try:
            self.path.mkdir(mode=0o700, exist_ok=True)
            (self.path / ".gitignore").write_text("*\n")
            return self._lock.open("a+")
        except OSError as error:
            raise BadInput(
                f"{self.path} cannot be written: {error.strerror} (an `outrider dev` keeps its data there)"
            ) from None

    def announce(self, dev: Dev) -> None:
        """Let other commands find this `dev`. Only its owner may read it: a URL may hold a password."""
        new = self._file.with_suffix(".new")
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(dev), file, indent=2)
        new.replace(self._file)


def _take(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

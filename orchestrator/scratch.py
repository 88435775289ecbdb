"""A temporary folder that is removed at the end, also after a kill."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Give a new folder for the `with` block, and remove those of this prefix whose owner was killed.

    An owner holds a lock on its folder, which the kernel lets go with the process: a folder of this user that can be
    locked has nobody.
    """
    _sweep(prefix)
    path, held = _make(prefix)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(held)


def _make(prefix: str) -> tuple[Path, int]:
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix))
        with suppress(FileNotFoundError):
            held = _open(path)
            fcntl.flock(held, fcntl.LOCK_SH)
            # Somebody's sweep may have come between the making and the lock.
            if path.is_dir():
                return path, held
            os.close(held)


def _sweep(prefix: str) -> None:
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError):
            found = _open(path)
            try:
                if os.fstat(found).st_uid == os.getuid():
                    fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(found)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)

"""A free port for a server that is started later: no other `dev` of this user takes it meanwhile."""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def port_near(host: str, wanted: int) -> Iterator[int]:
    """The port that is wanted, or any free one where that is taken, or is being taken by another process of this user.

    A look alone is not enough: of two that look in the same second both find it free.
    """
    name = Path(tempfile.gettempdir()) / f"outrider-port-{wanted}-{os.getuid()}.lock"
    with os.fdopen(os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield _free_port(host)
        else:
            yield _free_port(host, wanted)


def _free_port(host: str, wanted: int = 0) -> int:
    for port in (wanted, 0):
        try:
            with socket.create_server((host, port)) as listener:
                return int(listener.getsockname()[1])
        except OSError:
            continue
    return wanted

"""Programs that end with the thread that started them, also where `kill -9` ends it.

Linux sends a program a signal when that thread ends. The program itself must ask for it, and code between fork and exec
may deadlock in a process with threads: so a small Python asks first. The thread may be gone by then, and nobody would
send the signal. On systems other than Linux nothing is tied.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# It becomes the program, which has its pid.
_TIED: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""
# The signal reaches one process, so this one stays above the program and passes it on to the whole group.
_TIED_GROUP: Final = """
import ctypes, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
ctypes.CDLL(None).prctl(1, signal.SIGTERM, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    ignored_by_python = [signal.SIGPIPE, signal.SIGXFSZ]
    pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, setsigdef=ignored_by_python)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.exit(code if code >= 0 else 128 - code)
"""


def tied(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` (an absolute path first) and ends it when this thread is gone."""
    return _by(_TIED, command)


def tied_group(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` likewise, and ends all of its process group, which it must lead.

    A signal that ends the command makes an exit code above 128, as it does in a shell.
    """
    return _by(_TIED_GROUP, command)


def _by(script: str, command: Sequence[str]) -> list[str]:
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", script, str(os.getpid()), *command]

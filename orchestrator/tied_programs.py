"""Programs that end with the thread that started them."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

# Linux ends the program when the thread that started it ends, also by kill -9. The call must be made in the
# child; a small Python that becomes the program does it, since code between fork and exec may deadlock in a
# process with threads. The parent may be gone before the call: then nobody would send the signal.
_TIED: Final = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def tied(command: Sequence[str]) -> list[str]:
    """The command line that runs `command` (an absolute path first) and ends it when this thread is gone.

    On systems other than Linux it is `command` itself: a `kill -9` of this process leaves the program running.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid()), *command]

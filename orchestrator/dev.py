"""`outrider dev`: Redis, a worker and Flower in one terminal, stopped in order."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from kombu.exceptions import OperationalError

from ..shared.broker import make_app
from ..shared.devfile import Dev, DevFolder
from ..shared.settings import mask_url, redis_is_named
from .embedded import EmbeddedRedis
from .ports import port_near
from .programs import Happened, Printer, Program, ProgramEnded, StopRequested

if TYPE_CHECKING:
    from collections.abc import Callable

    from celery import Celery

    from ..shared.settings import Settings

FLOWER_HOST, FLOWER_PORT = "127.0.0.1", 5555
LOOK_SECONDS: Final = 0.1  #: between two looks whether all is up
ANSWER_SECONDS: Final = 0.5  #: that a program has to answer such a look
END_SECONDS: Final = 5  #: that Flower has to end, and the worker beyond its grace period
FAILED, INTERRUPTED = 1, 130  #: exit codes


class Stopped(Exception):
    """`dev` was told to stop."""


class ProgramFailed(Exception):
    """A program has ended by itself."""

    def __init__(self, ended: ProgramEnded) -> None:
        self.name = ended.name
        how = f"by {signal.Signals(-ended.code).name}" if ended.code < 0 else f"with exit code {ended.code}"
        super().__init__(f"{ended.name} has ended by itself, {how}")


class DevServer:
    """Redis (unless the environment names one), a worker and Flower, for one namespace and one folder.

    `run` returns when it was told to stop and all has ended: 0, or 130 where it was told twice, or 1 where a program
    had ended by itself, which is named.
    """

    def __init__(self, settings: Settings, folder: DevFolder, clean: Callable[[str], str] = str) -> None:
        self._settings, self._folder = settings, folder
        self._happened: SimpleQueue[Happened] = SimpleQueue()
        self._printer = Printer(sys.stdout, clean, self._happened)
        self._redis: EmbeddedRedis | None = None
        self._programs: list[Program] = []
        self._ended: set[str] = set()

    def run(self) -> int:
        """Start all, print the addresses, wait, stop all. Called once; another `dev` in the folder is `BadInput`."""
        began = time.monotonic()
        with ExitStack() as stack:
            stack.enter_context(self._folder.held())
            if not redis_is_named():
                self._redis = stack.enter_context(EmbeddedRedis(self._folder.path))
                self._settings = self._settings.model_copy(update={"redis_url": self._redis.url})
                threading.Thread(target=self._watch_redis, args=(self._redis,), daemon=True).start()
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, lambda told, _frame: self._happened.put(StopRequested(told)))
            code = 0
            try:
                self._live(began, stack.enter_context(port_near(FLOWER_HOST, FLOWER_PORT)))
            except Stopped:
                self._say("stopping: the worker, then Flower, then Redis; Ctrl-C again ends all at once")
            except ProgramFailed as failed:
                self._say(f"{failed}; stopping the rest")
                code = FAILED
            return code if self._stop() else INTERRUPTED

    def _live(self, began: float, port: int) -> None:
        started = (
            "a worker and Flower" if self._redis is None else f"Redis (data in {self._folder.path}), a worker, Flower"
        )
        self._say(f"starting {started}")
        name = f"dev-{os.getpid()}@{socket.gethostname()}"
        self._start("worker", "-m", "outrider.worker", "-n", name)
        monitor = ("-m", "celery", "-A", "outrider.worker.main", "flower")
        self._start("flower", *monitor, f"--address={FLOWER_HOST}", f"--port={port}", "--logging=error")
        flower_url, redis_url = f"http://{FLOWER_HOST}:{port}", self._settings.redis_url
        app = make_app(self._settings)
        while not (_flower_answers(flower_url) and _worker_answers(app, name)):
            self._wait(LOOK_SECONDS)
        self._folder.announce(Dev(redis_url, flower_url, self._settings.namespace, os.getpid()))
        self._say(f"ready in {time.monotonic() - began:.1f} s: Flower at {flower_url}, Redis at {mask_url(redis_url)}")
        self._say("in another terminal, in this folder: outrider submit AGENT TEXT --wait; Ctrl-C here stops all")
        while True:
            self._wait(None)

    def _start(self, name: str, *arguments: str) -> None:
        env = {"OUTRIDER_REDIS_URL": self._settings.redis_url}
        if sys.stdout.isatty():
            env["OUTRIDER_LOG_FORMAT"] = self._settings.log_format or "console"
        self._programs.append(Program(name, (sys.executable, *arguments), env, self._printer, self._happened))

    def _watch_redis(self, redis: EmbeddedRedis) -> None:
        self._happened.put(ProgramEnded("redis", redis.wait()))

    def _wait(self, seconds: float | None) -> None:
        """Wait for the end of a program, or for a signal, at most so long; both end `dev`."""
        try:
            what = self._happened.get(timeout=seconds)
        except Empty:
            return
        if isinstance(what, StopRequested):
            raise Stopped
        self._ended.add(what.name)
        raise ProgramFailed(what)

    def _stop(self) -> bool:
        """End the programs one after the other; `False` where it had to be at once."""
        within = {"worker": self._settings.grace_seconds + END_SECONDS, "flower": END_SECONDS}
        # Without Redis a worker cannot give its runs back: it would wait until its grace period is over.
        orderly = "redis" not in self._ended
        for program in self._programs:
            if orderly:
                program.stop()
                orderly = self._has_ended(program, within[program.name])
            program.kill()
        if not orderly and self._redis:
            self._redis.kill()
        return orderly or "redis" in self._ended

    def _has_ended(self, program: Program, seconds: float) -> bool:
        """Wait for a program's end, at most so long; `False` where all is to end at once."""
        until = time.monotonic() + seconds
        while program.name not in self._ended:
            try:
                what = self._happened.get(timeout=max(0, until - time.monotonic()))
            except Empty:
                self._say(f"{program.name} has not ended within {seconds:g} s: killed")
                return True
            if isinstance(what, StopRequested):
                return False
            self._ended.add(what.name)
        return True

    def _say(self, text: str) -> None:
        self._printer.print("dev", text)


def _flower_answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/healthcheck", timeout=ANSWER_SECONDS):  # noqa: S310 an address of ours
            return True
    except urllib.error.HTTPError:  # a prefix or a login of the user's own: it is up
        return True
    except OSError:
        return False


def _worker_answers(app: Celery, name: str) -> bool:
    try:
        return bool(app.control.ping(destination=[name], timeout=ANSWER_SECONDS, limit=1))
    except (OperationalError, OSError):
        return False

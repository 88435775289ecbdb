"""What the measures share: worker processes, Redis' own counters, the machine, and plain statistics."""

from __future__ import annotations

import asyncio
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    import redis.asyncio

    from outrider.shared.settings import Settings

HERE = Path(__file__).parent
LIBRARIES = ("celery", "kombu", "redis", "hiredis", "langgraph", "langgraph-checkpoint", "langchain-core", "pydantic")
#: What would lead a worker elsewhere than to this benchmark's own Redis.
FOREIGN = frozenset({"REDIS_URL", "CELERY_BROKER_URL"})
ATTEND_SECONDS = 1.0  #: between two looks whether the workers are up

T = TypeVar("T")


class WorkerProcess:
    """One Celery worker, events on, as long as the `with` block."""

    def __init__(
        self,
        app: str,
        settings: Settings,
        concurrency: int,
        log: Path,
        *,
        pool: str = "threads",
        queues: str = "subagents",
    ) -> None:
        self._app, self._settings, self._concurrency, self._log = app, settings, concurrency, log
        self._pool, self._queues = pool, queues

    def __enter__(self) -> Self:
        options = [
            "--without-mingle",
            "--without-gossip",
            "-P",
            self._pool,
            "-c",
            str(self._concurrency),
            "-E",
            "-Q",
            self._queues,
            "-n",
            f"{self._log.stem}@%h",
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", self._app, "worker", *options],
                cwd=HERE,
                env=_environment(self._settings),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,  # Ctrl-C is ours to hear; the block's end ends the worker
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def kill(self) -> None:
        """End it at once, as the system does that has no memory left."""
        self._process.kill()
        self._process.wait()

    def check(self) -> None:
        """Raise `RuntimeError` with the end of its log where the worker is not up any more."""
        if self._process.poll() is not None:
            said = self._log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"worker {self._app} ended with code {self._process.returncode}: {said}")

    def peak_rss(self) -> int | None:
        """Most bytes of memory it ever held; `None` where the system does not tell."""
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:"))


async def attended(work: Coroutine[Any, Any, T], *workers: WorkerProcess) -> T:
    """What `work` comes to, as long as these workers are up; their end is an error at once."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait([task], timeout=ATTEND_SECONDS))[0]:
            for worker in workers:
                worker.check()
        return task.result()
    finally:
        task.cancel()


def _environment(settings: Settings) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if not k.startswith("OUTRIDER_") and k not in FOREIGN}
    return kept | {
        "OUTRIDER_REDIS_URL": settings.redis_url,
        "OUTRIDER_NAMESPACE": settings.namespace,
        "OUTRIDER_CONFIG": settings.config,
        "OUTRIDER_LEASE_SECONDS": str(settings.lease_seconds),
        "OUTRIDER_HEARTBEAT_SECONDS": str(settings.heartbeat_seconds),
        "OUTRIDER_SWEEP_SECONDS": str(settings.sweep_seconds),
        "OUTRIDER_LOG_LEVEL": "warning",  # as `celery worker` has it
    }


@dataclass(frozen=True, slots=True)
class Counters:
    """Redis' own counters at one moment."""

    commands: int  #: those inside scripts are counted as well
    reads: int  #: of sockets: about one for each round trip
    bytes_in: int
    bytes_out: int
    dataset: int  #: bytes that the data take up in memory

    @classmethod
    async def read(cls, client: redis.asyncio.Redis) -> Self:
        """Ask Redis."""
        info = await client.info()
        return cls(
            info["total_commands_processed"],
            info["total_reads_processed"],
            info["total_net_input_bytes"],
            info["total_net_output_bytes"],
            info["used_memory_dataset"],
        )

    def since(self, before: Counters, per: int = 1) -> dict[str, float]:
        """How much was added since then, for each of `per` things."""
        return {
            name: round((getattr(self, name) - getattr(before, name)) / per, 1)
            for name in ("commands", "reads", "bytes_in", "bytes_out", "dataset")
        }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """p50 and p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {"p50": round(cuts[49] * 1000, 2), "p99": round(cuts[98] * 1000, 2)}


async def machine(client: redis.asyncio.Redis) -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "redis": (await client.info("server"))["redis_version"],
        "libraries": {name: version(name) for name in LIBRARIES},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())

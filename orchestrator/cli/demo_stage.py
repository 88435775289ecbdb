"""The demo's Redis and worker processes; all of them end with it, whatever happens."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self

from ...shared.connections import connect
from ...shared.ids import new_token
from ...shared.settings import Settings, redis_is_named
from ...shared.tied_programs import tied
from ..client import Outrider
from ..embedded import EmbeddedRedis

END_SECONDS = 10  #: workers that were told to end have so long
LOG_LINES = 30  #: of the workers' log, shown where one failed


class Stage:
    """An open client in a namespace of its own, workers for it, and a Redis unless the environment names one.

    `async with` starts them and ends them; what the namespace held is deleted.
    """

    def __init__(self, config: Path, *, workers: int, concurrency: int) -> None:
        self._config, self._count, self._concurrency = config, workers, concurrency
        self._workers: list[asyncio.subprocess.Process] = []
        self._exit = AsyncExitStack()
        self._folder = Path()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self._folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outrider-demo-")))
            url = Settings.load().redis_url if redis_is_named() else stack.enter_context(EmbeddedRedis()).url
            namespace = f"demo-{new_token()}"
            # Its bells go through Redis too: another broker may have one set of queues for all namespaces.
            settings = Settings.load(redis_url=url, broker_url=url, namespace=namespace, config=str(self._config))
            self.outrider = await stack.enter_async_context(Outrider(settings))
            await self.outrider.list(limit=0)  # a Redis out of reach is told before a worker starts
            if redis_is_named():
                stack.push_async_callback(self._clean, settings)
            stack.push_async_callback(self._end)
            for _ in range(self._count):
                self._workers.append(await self._start(settings))
            self._exit = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    async def worker_ended(self) -> int:
        """Wait for the end of a worker; its exit code. None has a reason to end by itself."""
        ends = [asyncio.ensure_future(worker.wait()) for worker in self._workers]
        try:
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for end in ends:
                end.cancel()
        return next(iter(done)).result()

    def log(self) -> list[str]:
        """The last lines that the workers wrote."""
        return self._log.read_text(errors="replace").splitlines()[-LOG_LINES:] if self._log.is_file() else []

    @property
    def _log(self) -> Path:
        return self._folder / "workers.log"

    async def _start(self, settings: Settings) -> asyncio.subprocess.Process:
        command = [sys.executable, "-m", "outrider.worker", "--pool", "threads", "-c", str(self._concurrency)]
        named = {
            "OUTRIDER_REDIS_URL": settings.redis_url,
            "OUTRIDER_BROKER_URL": settings.broker_url,
            "OUTRIDER_NAMESPACE": settings.namespace,
            "OUTRIDER_CONFIG": settings.config,
        }
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *tied(command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=os.environ | named,
                # Ctrl-C goes to a terminal's whole group: the demo ends its workers itself.
                process_group=0,
            )

    async def _end(self) -> None:
        for how in (signal.SIGTERM, signal.SIGKILL):
            for worker in self._workers:
                with suppress(ProcessLookupError):
                    worker.send_signal(how)
            with suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    await asyncio.gather(*(worker.wait() for worker in self._workers))
                return

    @staticmethod
    async def _clean(settings: Settings) -> None:
        """Delete all keys of the namespace: nobody would ever look for them."""
        async with connect(settings) as redis:
            async for key in redis.scan_iter(match=f"{{{settings.namespace}}}:*", count=1000):
                await redis.unlink(key)

"""One worker process: the loop that all its runs share, and what runs beside them.

Made in the process that executes: in the main one for threads, in each child for prefork, after the fork.
"""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from redis.exceptions import RedisError

from ..shared import catalogue
from ..shared.broker import ring
from ..shared.connections import connect
from ..shared.filestore import RedisStore
from ..shared.store import Store
from .agents import Agents
from .bell_thread import BellThread
from .cancel_listener import listen
from .control import Held
from .deliverer import Deliverer
from .deps import Deps
from .executor import JobExecutor
from .heartbeat import Heartbeat
from .outcomes import Cancelled, Retried
from .pace import Pace
from .runner import Runner
from .shutdown import leave_by, leave_now
from .sweeper import Sweeper
from .upstream import (
    allow_graphs_without_checkpoints,
    answer_each_question_once,
    begin_what_had_not_begun,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from celery import Celery

    from ..shared.bells import Bell
    from ..shared.catalogue import Published
    from ..shared.config import Config
    from ..shared.settings import Settings
    from .outcomes import Outcome

GARBAGE_THRESHOLD = 20_000  #: new objects between two collections of the youngest
# With many runs at work, commands to Redis gather for a moment before they are sent together: each exchange hands the
# interpreter to another thread and back, which costs a busy worker a quarter of its time (measured).
FEW = 8  #: runs at work; up to so many, commands are sent at once
LINGER_SECONDS, LINGER_PER_RUN = 0.02, 0.001
# How long a thread may keep the interpreter while another one waits for it. Celery's thread that takes bells waits for
# it after each of its system calls: at Python's 5 ms a busy loop starves it, and then has too few runs to be busy with
# (measured).
TURN_SECONDS = 0.001
# How far apart Celery's threads are told that their runs were cancelled. Threads that finish their Celery tasks all at
# once keep the interpreter from the loop, which waits for it after each of its system calls: of 200 runs that were
# cancelled one after the other, most were stopped only when the threads of the first ones had finished (measured).
CANCELLED_SECONDS = 0.002
BEGIN_SECONDS = 5.0  #: how long the loop may take to begin with a bell; then another worker shall hear it too
WITHDRAW_SECONDS = 1.0  #: how long a process that ends may take to withdraw what it published

T = TypeVar("T")

log = structlog.get_logger("outrider.worker")


class WorkerProcess:
    """Executes runs. `start` once; `run` from any number of threads; `drain`, then `stop`."""

    def __init__(self, settings: Settings, config: Config, app: Celery, concurrency: int, node: str) -> None:
        self.settings = settings
        self._id = f"{socket.gethostname()}:{os.getpid()}"  # a worker of prefork has several processes
        self.draining = False
        self._config, self._app, self._node = config, app, node
        self._agents = Agents(config.agents, config.folder)
        self._held = Held()
        self._cancelled = Pace(CANCELLED_SECONDS)
        self._sweeper: Sweeper | None = None
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(JobExecutor(concurrency))
        self._bells = BellThread(app, node)
        self._thread = threading.Thread(target=self._serve, name="outrider-loop", daemon=True)
        self._stopping = asyncio.Event()
        self._ready: asyncio.Future[Runner] = self._loop.create_future()

    def start(self) -> None:
        """Start the loop; loading the agents goes on while this returns, and the first runs wait for it."""
        allow_graphs_without_checkpoints()
        answer_each_question_once()
        begin_what_had_not_begun()
        self._thread.start()

    def when_ready(self, then: Callable[[], None]) -> None:
        """Call this on the loop once the agents are loaded."""
        self._loop.call_soon_threadsafe(self._ready.add_done_callback, lambda _: then())

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        main = self._loop.create_task(self._live())
        while not main.done():
            # An agent that calls `sys.exit()` ends `run_until_complete`: its own run gets the error, the others go on.
            with suppress(BaseException):
                self._loop.run_until_complete(main)
        error = asyncio.CancelledError() if main.cancelled() else main.exception()
        if error is not None:
            # Without its loop this process would take bells and answer none. The leases of its runs run out.
            log.error("worker.failed", exc_info=error)
            leave_now(why=f"its loop ended with {type(error).__name__}")
        with suppress(RuntimeError):
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())

    async def _live(self) -> None:
        settings = self.settings
        async with connect(settings, patient=True, linger=self._linger) as redis:
            store = Store(redis, settings.namespace, **settings.for_store)
            deliverer = Deliverer(settings, store)
            deps = Deps(
                settings=settings,
                config=self._config,
                store=store,
                loop=self._loop,
                files=RedisStore(redis, store.keys),
                agents=self._agents,
                held=self._held,
                ring=self._bells.ring,
                worker=self._node,
                deliver=deliverer.look,
            )
            heartbeat = Heartbeat(settings, self._held, self._loop)
            heartbeat.start()
            slots = {name: self._config.slots(name) for name in self._config.agents}
            self._sweeper = Sweeper(settings, store, self._bells.ring, self._bells.tell, slots)
            beside = [
                self._loop.create_task(listen(settings, store.keys, self._held)),
                self._loop.create_task(self._sweeper.run()),
                self._loop.create_task(deliverer.run()),
            ]
            try:
                published = await asyncio.to_thread(self._load)
                self._ready.set_result(Runner(deps))
                beside.append(self._loop.create_task(self._publish(store, published)))
                await self._stopping.wait()
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
                # Not by the agents' threads: one that does not end would keep the process.
                await self._bells.run(heartbeat.stop)

    def _linger(self) -> float:
        return min(LINGER_SECONDS, LINGER_PER_RUN * (len(self._held) - FEW))

    def _load(self) -> list[Published]:
        self._config.apply_env()
        published = self._agents.warm()
        for agent in published:
            if agent.broken:
                log.error("agent.broken", agent=agent.name, reason=agent.broken)
        # What is loaded by now stays; looking it through again and again costs a fifth of a short run (measured).
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)
        sys.setswitchinterval(TURN_SECONDS)
        return published

    async def _publish(self, store: Store, published: list[Published]) -> None:
        """Publish, once a lease, what this process knows. An entry counts for two leases: this process may die."""
        pause, valid_ms = self.settings.lease_seconds, 2 * self.settings.lease_ms
        try:
            while True:
                try:
                    queues = self._app.amqp.queues.consume_from
                    await catalogue.publish(store.redis, store.keys, self._id, published, valid_ms, queues=queues)
                except RedisError as error:
                    log.warning("catalogue.not_published", error=type(error).__name__)
                await asyncio.sleep(pause)
        finally:
            with suppress(RedisError, TimeoutError):
                async with asyncio.timeout(WITHDRAW_SECONDS):
                    await catalogue.withdraw(store.redis, store.keys, self._id)

    def run(self, task_id: str, run_id: str, pass_on: Callable[[], None]) -> Outcome:
        """Answer one bell, in the thread or the child that Celery gave it; blocks until the run's code has ended.

        `pass_on` rings for another worker: it is called where the loop does not answer, since an agent blocks it.
        """
        begun = threading.Event()
        work = asyncio.run_coroutine_threadsafe(self._run(task_id, run_id, begun), self._loop)
        with suppress(TimeoutError):
            return work.result(BEGIN_SECONDS)
        if not begun.is_set():
            pass_on()  # when the loop answers again, this bell is a doubled one
        return work.result()

    async def _run(self, task_id: str, run_id: str, begun: threading.Event) -> Outcome:
        begun.set()
        runner = await asyncio.shield(self._ready)
        outcome = await runner.run(task_id, run_id)
        if isinstance(outcome, Retried) and outcome.seconds and self._sweeper is not None:
            self._sweeper.look_in(outcome.seconds)
        if isinstance(outcome, Cancelled):
            await self._cancelled.turn()
        return outcome

    def ring(self, task_id: str, run_id: str) -> None:
        """Ring for a run that this process does not finish, from a thread that may block."""
        bell = self._wait(self._bell(task_id, run_id))
        if bell is not None:
            ring(self._app, bell)

    async def _bell(self, task_id: str, run_id: str) -> Bell | None:
        return await (await asyncio.shield(self._ready)).deps.store.bell_of(task_id, run_id)

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def drain(self) -> None:
        """Give back every run after its present step, and start none. From any thread; a second call does nothing."""
        if self.draining:
            return
        self.draining = True
        self._loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        log.info("worker.drains", runs=len(self._held.claims()))  # here: a signal handler must not log
        self._held.drain()

    def drain_at_end_of(self, pipe: int) -> None:
        """Drain when the other end of a pipe is closed, and leave at the end of the grace period."""

        def closed() -> None:
            self._loop.remove_reader(pipe)
            os.close(pipe)
            self.drain()
            leave_by(self.settings.grace_seconds)

        self._loop.call_soon_threadsafe(self._loop.add_reader, pipe, closed)

    def stop(self) -> None:
        """End the loop, once no job waits on it."""
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._bells.stop()

"""What the tests of the worker share: a runner on the test's own loop, worker processes, and the agents' gates."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from unittest.mock import AsyncMock

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import ConstantBackoff

from forked import ForkedCelery
from outrider.shared.config import Config
from outrider.shared.connections import connect
from outrider.shared.filestore import RedisStore
from outrider.shared.limits import Limits
from outrider.shared.settings import Settings
from outrider.shared.store import Store
from outrider.shared.transitions import Submission
from outrider.worker.agents import Agents
from outrider.worker.control import Held
from outrider.worker.deps import Deps
from outrider.worker.executor import JobExecutor
from outrider.worker.runner import Runner
from outrider.worker.sweeper import Sweeper
from outrider.worker.upstream import (
    allow_graphs_without_checkpoints,
    answer_each_question_once,
    begin_what_had_not_begun,
)

AGENTS = Path(__file__).parent / "integration" / "agents" / "langgraph.json"
QUICK = {"OUTRIDER_LEASE_SECONDS": "1.5", "OUTRIDER_HEARTBEAT_SECONDS": "0.3", "OUTRIDER_SWEEP_SECONDS": "0.3"}


class Desk:
    """Submits tasks, opens the gates of the agents, and reads what they did."""

    def __init__(self, store, redis):
        self.store, self.redis = store, redis

    async def submit(self, agent, text="go", *, state=None, queue="subagents", **fields):
        task_id, run_id = uuid.uuid4().hex, uuid.uuid4().hex
        await self.store.submit(
            Submission(
                task_id=task_id,
                run_id=run_id,
                agent=agent,
                title=agent,
                queue=queue,
                input={"text": text, "state": state or {}},
                limits=Limits(**fields.pop("limits", {})),
                **fields,
            )
        )
        return task_id, run_id

    def _key(self, task_id, *parts):
        return ":".join((self.store.keys.namespace, "test", task_id, *parts))

    async def at(self, task_id, gate):
        """Return when the agent is at its gate."""
        while not await self.redis.blpop(self._key(task_id, "at", gate), 1):
            pass

    async def open(self, task_id, gate):
        await self.redis.rpush(self._key(task_id, "open", gate), "x")

    async def did(self, task_id):
        return [entry.decode() for entry in await self.redis.lrange(self._key(task_id, "did"), 0, -1)]

    async def events(self, task_id):
        return await self.store.events(task_id, "0-0", reader=self.redis)

    async def until(self, task_id, event_type, count=1):
        """Return the events when there are `count` of a type."""
        after, seen = "0-0", []
        while sum(event.type == event_type for event in seen) < count:
            batch = await self.store.events(task_id, after, reader=self.redis, block_ms=1000)
            seen += batch
            after = seen[-1].id if seen else after
        return seen


class Bench(Desk):
    """A runner on this loop, as a worker process has one, without Celery."""

    def __init__(self, settings, store, redis, agents=AGENTS):
        super().__init__(store, redis)
        allow_graphs_without_checkpoints()
        answer_each_question_once()
        begin_what_had_not_begun()
        config = Config.load(agents)
        self.settings, self.held, self.bells = settings, Held(), []
        asyncio.get_running_loop().set_default_executor(JobExecutor(8))
        self.agents = Agents(config.agents, config.folder)
        files = RedisStore(store.redis, store.keys)
        loop = asyncio.get_running_loop()
        host = {"settings": settings, "config": config, "store": store, "ring": self._ring, "loop": loop}
        self.runner = Runner(Deps(**host, files=files, agents=self.agents, held=self.held, worker="bench"))

    async def _ring(self, bell):
        self.bells.append(bell)

    def sweeper(self, **slots):
        """A sweeper that rings where this bench does, and tells no monitor."""
        return Sweeper(self.settings, self.store, self._ring, AsyncMock(), slots)

    async def do(self, agent, text="go", **fields):
        """Submit a task and run it; the outcome and the task."""
        task_id, run_id = await self.submit(agent, text, **fields)
        outcome = await self.runner.run(task_id, run_id)
        return outcome, await self.store.get(task_id)


def until_gone(pid):
    """Return when a process that was told to end has ended, also where nobody has asked for its exit code yet."""
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in {"Z", "X"}:
            pass


def plain(redis_url):
    """A client that may block, apart from the one whose commands go together."""
    return redis.asyncio.Redis.from_url(redis_url, retry=Retry(ConstantBackoff(0.05), -1), socket_timeout=None)


@asynccontextmanager
async def desk(settings):
    async with connect(settings) as client, plain(settings.redis_url) as reader:
        yield Desk(Store(client, settings.namespace), reader)


@asynccontextmanager
async def bench(redis_url, namespace, agents=AGENTS, **settings):
    settings = Settings(redis_url=redis_url, namespace=namespace, **settings)
    async with connect(settings) as client, plain(redis_url) as reader:
        yield Bench(settings, Store(client, namespace), reader, agents)


class WorkerProcess:
    """A real worker: what `python -m outrider.worker` becomes, on a Redis and a namespace of the test's."""

    def __init__(self, redis_url, namespace, *args, **env):
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("OUTRIDER_")},
            **QUICK,
            "OUTRIDER_REDIS_URL": redis_url,
            "OUTRIDER_NAMESPACE": namespace,
            "OUTRIDER_CONFIG": str(AGENTS),
            **env,
        }
        # Celery's workers look for each other at start, which takes a second.
        self.args = ("--without-mingle", "--without-gossip", *args)
        self.lines = []
        self._more = threading.Condition()

    def __enter__(self):
        command = ["-A", "outrider.worker.main", "worker", *self.args]
        self.process = ForkedCelery(command, self.environment)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        return self

    def _read(self):
        for line in self.process.stdout:
            with self._more:
                self.lines.append(line.rstrip())
                self._more.notify_all()

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        if "PYTEST_CURRENT_TEST" in os.environ:  # pytest shows it with a test that failed
            sys.stdout.writelines(f"{line}\n" for line in self.lines)

    async def says(self, text):
        """Return when a line of its output has this text."""

        def wait():
            with self._more:
                assert self._more.wait_for(lambda: any(text in line for line in self.lines), 30), self.lines

        await asyncio.to_thread(wait)

    async def ends(self):
        """Return its exit code when it has ended, and all that it said is read."""
        code = await asyncio.to_thread(self.process.wait, 30)
        await asyncio.to_thread(self._reader.join)
        return code

"""What the tests of parents share: workers with the agents of `integration/parents`, and a test that plays models."""

import json
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from outrider import Outrider
from outrider.shared.checkpoints import RedisSaver
from outrider.shared.settings import Settings
from workers import Desk, WorkerProcess, plain

CONFIG = Path(__file__).parent / "integration" / "parents" / "langgraph.json"
AGENTS = ["agent", "deep"]  #: a parent of LangChain and one of deepagents
QUICK = {"OUTRIDER_LEASE_SECONDS": "3", "OUTRIDER_HEARTBEAT_SECONDS": "0.5"}
#: What a test that failed left at a gate does not hold up the end of its workers.
GRACE = {"OUTRIDER_GRACE_SECONDS": "1"}
#: No lease runs out while a test lasts: nothing is set right by a sweeper.
STEADY = {"OUTRIDER_LEASE_SECONDS": "300", "OUTRIDER_HEARTBEAT_SECONDS": "1"}


def worker(url, namespace, *args, **env):
    return WorkerProcess(url, namespace, "-c", "64", *args, OUTRIDER_CONFIG=str(CONFIG), **GRACE | env)


@contextmanager
def workers(url, namespace, count=2, broker=""):
    """So many workers, each with a queue of its own besides."""
    if count:
        queues = f"subagents,parents,worker-{count}"
        env = STEADY | {"OUTRIDER_BROKER_URL": broker}
        with worker(url, namespace, "-Q", queues, **env), workers(url, namespace, count - 1, broker):
            yield
    else:
        yield


def started(text="wait", agent="leaf"):
    return {"name": "start_async_task", "args": {"description": text, "subagent_type": agent}}


def called(name, **args):
    return {"name": name, "args": args}


def notified(messages):
    """Ids of the notifications among messages, in their order, each as often as it stands there."""
    noted = [message.additional_kwargs.get("outrider_notification") for message in messages]
    return [note["id"] for note in noted if note]


class Read:
    """What a parent's model reads in one call."""

    def __init__(self, seen):
        self.prefix, self.messages = seen["prefix"], seen["messages"]

    @property
    def notes(self):
        noted = [message["additional_kwargs"].get("outrider_notification") for message in self.messages]
        return [note["task_id"] for note in noted if note]

    @property
    def last(self):
        return self.messages[-1]["content"]

    @property
    def results(self):
        """Contents of the tool messages at the end."""
        at = max((i for i, message in enumerate(self.messages) if message["type"] == "ai"), default=-1)
        return [message["content"] for message in self.messages[at + 1 :] if message["type"] == "tool"]


class Site(Desk):
    """A namespace with workers: submits parents and plays their models."""

    def __init__(self, o, redis):
        super().__init__(o._session.store, redis)
        self.o = o
        self._calls = 0

    async def parent(self, agent="agent", **fields):
        return (await self.o.submit(agent, "lead", **fields)).task_id

    # a parent's model
    async def read(self, task_id):
        """Return what the model reads at its next call."""
        return Read(json.loads(await self.pop(task_id, "model")))

    async def call(self, task_id, *calls):
        """Let the model call tools; returns what it reads then."""
        await self.let_call(task_id, *calls)
        return await self.read(task_id)

    async def let_call(self, task_id, *calls):
        """Let the model call tools, and return at once."""
        made = []
        for call in calls:
            self._calls += 1
            made.append({"id": f"call-{self._calls}", **call})
        await self.answer(task_id, "model", json.dumps({"content": "", "tool_calls": made}))

    async def say(self, task_id, text="done"):
        await self.answer(task_id, "model", json.dumps({"content": text}))

    async def rest(self, task_id):
        """End a parent's turn while children are open, and return when it rests."""
        rests = sum(event.type == "task.resting" for event in await self.events(task_id))
        await self.say(task_id)
        await self.until(task_id, "task.resting", rests + 1)

    # gates
    async def pop(self, task_id, gate):
        while not (came := await self.redis.blpop(self._key(task_id, "at", gate), 1)):
            pass
        return came[1]

    async def answer(self, task_id, gate, what="x"):
        await self.redis.rpush(self._key(task_id, "open", gate), what)

    async def hold(self, task_id, *gates):
        await self.redis.sadd(self._key(task_id, "hold"), *gates)

    async def release(self, task_id, *gates):
        await self.redis.srem(self._key(task_id, "hold"), *gates)

    async def saved(self, task_id, text, ns=""):
        """Return when a step that is under way has saved a tool's result."""
        saver = RedisSaver(self.redis, self.store.keys)
        while True:
            state = await saver.aget_tuple({"configurable": {"thread_id": task_id, "checkpoint_ns": ns}})
            if text in repr(state.pending_writes):
                return

    # what came of it
    async def children(self, task_id):
        """Ids of the children, oldest first."""
        return [child.task.task_id for child in (await self.o.tree(task_id)).children]

    async def end(self, *task_ids):
        """Let leaves end, and return when they have ended."""
        for task_id in task_ids:
            await self.answer(task_id, "leaf")
        for task_id in task_ids:
            await self.o.wait(task_id)

    async def notes(self, task_id):
        """Task ids of the notifications in the parent's state, each as often as it stands there."""
        messages = (await self.o.state(task_id))["messages"]
        return [name.split(":")[0] for name in notified(messages)]


@asynccontextmanager
async def site(url, namespace, broker=""):
    settings = Settings(redis_url=url, namespace=namespace, broker_url=broker, config=str(CONFIG))
    async with Outrider(settings) as o, plain(url) as reader:
        yield Site(o, reader)

"""A namespace with its queue and its real workers, and a monitor of it."""

import asyncio
import threading
from contextlib import asynccontextmanager

import workers
from outrider.shared.bells import Bell
from outrider.shared.broker import make_app, ring


class Site:
    """A namespace with its desk, its broker, and the workers that a test starts."""

    def __init__(self, desk, settings):
        self.desk, self.settings = desk, settings
        self.app = make_app(settings)

    def worker(self, *args, **env):
        env = {"OUTRIDER_BROKER_URL": self.settings.broker, **env}
        return workers.WorkerProcess(self.settings.redis_url, self.settings.namespace, *args, **env)

    async def online(self):
        """Names of the workers that answer a ping."""
        return await asyncio.to_thread(lambda: sorted(self.app.control.inspect(timeout=2).ping() or ()))

    async def ring(self, task_id, run_id, queue="subagents", label="label"):
        await asyncio.to_thread(ring, self.app, Bell(task_id=task_id, run_id=run_id, queue=queue, label=label))

    async def submit(self, agent, text="go", **fields):
        task_id, run_id = await self.desk.submit(agent, text, **fields)
        await self.ring(task_id, run_id, fields.get("queue", "subagents"))
        return task_id, run_id

    async def settled(self, task_id):
        await self.desk.until(task_id, "task.settled")
        return await self.desk.store.get(task_id)


@asynccontextmanager
async def open_site(settings):
    async with workers.desk(settings) as desk:
        site = Site(desk, settings)
        yield site
        site.app.close()


class Monitor:
    """Hears Celery's events, as Flower does."""

    def __init__(self, app):
        self.events = []
        self._more = threading.Condition()
        self._receiver = app.events.Receiver(app.connection_for_read(), handlers={"*": self._hear})
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        with self._receiver.connection:
            self._receiver.capture(limit=None, timeout=None, wakeup=False)

    def _hear(self, event):
        with self._more:
            self.events.append(event)
            self._more.notify_all()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._receiver.should_stop = True
        self._thread.join()

    async def hears(self, kind, run_id):
        """Return when it has heard an event of this type about a run."""

        def wait():
            with self._more:
                assert self._more.wait_for(lambda: kind in self.of(run_id), 30), self.of(run_id)

        await asyncio.to_thread(wait)

    def of(self, run_id):
        return [event["type"] for event in self.events if event.get("uuid") == run_id]

"""A real Flower for tests, as `outrider flower` starts it, and its HTTP API."""

import asyncio
import json
import os
import re
import subprocess
import sys
import threading
import urllib.error
import urllib.request

CLI = (sys.executable, "-W", "ignore", "-c", "from outrider.orchestrator.cli.main import main; main()")
PAUSE_SECONDS = 0.05  # between two looks at what Flower shows: it tells nobody when that changes


async def until(look):
    """What `look` gives, once that is something."""
    while True:
        if seen := await look():
            return seen
        await asyncio.sleep(PAUSE_SECONDS)


#: As users of Celery start it.
PLAIN = (sys.executable, "-W", "ignore", "-m", "celery", "-A", "outrider.worker.main", "flower")


class Flower:
    """`outrider flower`, on a free port; the `url` once it listens."""

    def __init__(self, redis_url, namespace, *args, command=(*CLI, "flower"), **env):
        self._command = (*command, "--port=0", *args)
        self._env = {**os.environ, "OUTRIDER_REDIS_URL": redis_url, "OUTRIDER_NAMESPACE": namespace, **env}

    def __enter__(self):
        self._process = subprocess.Popen(
            self._command,
            env=self._env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = []
        for line in self._process.stdout:
            said.append(line)
            if found := re.search(r"Visit me at (http://\S+)", line):
                self.url = found[1]
                break
        else:
            raise AssertionError("".join(said))
        self._rest = threading.Thread(target=self._process.stdout.read)
        self._rest.start()
        return self

    def __exit__(self, *_):
        self._process.terminate()
        self._process.wait(20)
        self._rest.join()
        self._process.stdout.close()

    async def ask(self, path, method="GET", **headers):
        """Status and text of an answer."""
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        data = b"" if method == "POST" else None
        request = urllib.request.Request(self.url + path, data, names, method=method)  # noqa: S310 the test's own

        def send():
            try:
                with urllib.request.urlopen(request, timeout=20) as reply:  # noqa: S310 the same
                    return reply.status, reply.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        return await asyncio.to_thread(send)

    async def shows(self, run_id, state, *facts):
        """The job, once Flower shows it in this state, and knows these facts of it."""

        async def look():
            status, text = await self.ask(f"/api/task/info/{run_id}")
            job = json.loads(text) if status == 200 else {}
            return job if job.get("state") == state and all(job[fact] for fact in facts) else None

        return await until(look)

    async def knows_workers(self, count=1):
        """The workers, once Flower knows so many with their queues."""

        async def look():
            _, text = await self.ask("/api/workers?refresh=1")
            known = {name: facts for name, facts in json.loads(text).items() if facts.get("active_queues")}
            return known if len(known) == count else None

        return await until(look)

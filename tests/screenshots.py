"""`make screenshots`: a real Flower beside a real worker, as a person sees it. Needs Chromium and its driver."""

import asyncio
import sys
from pathlib import Path

from browser import Browser, missing
from flowers import Flower, until
from outrider import Outrider
from outrider.orchestrator.embedded import EmbeddedRedis
from workers import AGENTS, WorkerProcess

FOLDER = Path(__file__).parents[1] / ".screenshots"
NAMESPACE = "screenshots"


async def main():
    FOLDER.mkdir(exist_ok=True)
    with (
        EmbeddedRedis() as redis,
        Flower(redis.url, NAMESPACE) as flower,
        WorkerProcess(redis.url, NAMESPACE) as worker,
        Browser() as page,
    ):
        await worker.says("ready")
        await flower.knows_workers()
        async with Outrider(redis_url=redis.url, namespace=NAMESPACE, config=str(AGENTS)) as client:
            lead = await client.submit("held_chat", "x", title="Compare three queues")
            child = await client.submit("sleeper", "x", title="Read about Celery", parent=lead.task_id)
            ends = {"compiled": "SUCCESS", "asks": "SUCCESS", "raises": "FAILURE"}
            ended = {agent: await client.submit(agent, "value", title=f"A task of {agent}") for agent in ends}
            for agent, state in ends.items():
                await flower.shows(ended[agent].run_id, state)
            for task in (lead, child):
                await flower.shows(task.run_id, "STARTED")
            pages = {
                "workers": "/workers",
                "worker": f"/worker/{next(iter(await flower.knows_workers()))}",
                "tasks": "/tasks",
                "task": f"/task/{lead.run_id}",
                "failed": f"/task/{ended['raises'].run_id}",
                "broker": "/broker",
            }
            for name, path in pages.items():
                await take(page, flower.url + path, name)
            page.open(f"{flower.url}/task/{lead.run_id}")
            page.click("#task-terminate")
            for task in (lead, child):
                await flower.shows(task.run_id, "REVOKED")
            await take(page, f"{flower.url}/tasks", "revoked")


async def take(page, url, name):
    """Take a picture once the page has what it asks for."""
    page.open(url)

    async def drawn():
        return page.run("return document.readyState === 'complete' && (!window.jQuery || jQuery.active === 0)")

    await until(drawn)
    page.picture(FOLDER / f"{name}.png")
    sys.stdout.write(f"{FOLDER / name}.png\n")


if __name__ == "__main__":
    if missing():
        sys.exit(f"not on this machine: {missing()} (Debian: apt-get install chromium chromium-driver)")
    asyncio.run(main())

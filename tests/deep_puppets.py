"""What tests of deep agents share: skills and memory in the store, what the puppet of `parents/deep.py` reads."""

import json

from outrider.shared.backend import OutriderBackend
from outrider.shared.statuses import Status
from puppets import called

ADA, BOB = {"user": "ada"}, {"user": "bob"}
SHOP = "---\nname: shop\ndescription: Sells.\nmetadata:\n  include_tools: shop\n---\nAlways be polite.\n"
BROKEN = "---\nname: [broken\n---\n"
READ_SHOP = called("read_file", file_path="/skills/shop/SKILL.md", limit=1000)
SHIP = called("ship", what="a book")


def files(site, *namespace):
    return OutriderBackend(namespace=lambda _: namespace, store=site.o.store)


async def put(site, namespace, contents):
    for path, text in contents.items():
        await files(site, namespace).awrite(path, text)


async def keen(site, **fields):
    """A task for Ada whose model is asked for the first time; its id, and what the model reads."""
    task_id = await site.parent("keen", **{"context": ADA, **fields})
    return task_id, await site.read(task_id)


async def finished(site, task_id):
    await site.say(task_id)
    task = await site.o.wait(task_id)
    assert task.status is Status.SUCCESS, task.error
    return task


def offered(read):
    """Names of the tools that a model is offered."""
    return {tool["function"]["name"] for tool in read.prefix[1]}


def system(read):
    return json.dumps(read.prefix[0])


def pinned(read):
    return [m["content"] for m in read.messages if m["additional_kwargs"].get("lc_source") == "pinned_skill"]

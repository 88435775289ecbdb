"""The demo's tree on real Celery: a lead and its analysts on two worker processes, and what travels between them."""

import asyncio
import base64
import re
from contextlib import suppress
from pathlib import Path

import pytest
import redis.asyncio

from outrider.examples import research
from outrider.examples.research.citations import parse, verify
from outrider.examples.research.folder import open_folder
from outrider.orchestrator.cli.demo_stage import Stage

CONFIG = Path(research.__file__).with_name("langgraph.json")
QUESTION = "When is a release cut?"
ANSWER = "A release is cut on the first Tuesday of a month by the release manager."
BESIDE = "Zanzibar cloves smell of xylophones."  # stands beside the answer, in the same chunk
BROKER = {"LPUSH", "RPUSH", "PUBLISH", "HSET", "ZADD", "SADD", "SET"}


@pytest.fixture
def docs(tmp_path):
    folder = tmp_path / "handbook"
    folder.mkdir()
    (folder / "releases.md").write_text(f"# Releases\n\n{ANSWER}\n{BESIDE}\n")
    for number in range(6):
        (folder / f"team_{number}.md").write_text(f"# Team {number}\n\nTeam {number} wants a release of its own.\n")
    return folder


async def overheard(url, told, until):
    """Keep what clients other than scripts send to Redis: what the broker carries is among it."""
    async with redis.asyncio.Redis.from_url(url, socket_timeout=None) as client, client.monitor() as monitor:
        until.set()
        async for command in monitor.listen():
            if command["client_type"] != "lua" and command["command"].split(" ")[0].upper() in BROKER:
                told.append(command["command"])


def bodies(told):
    """Give what stands in messages of Celery: kombu writes their bodies in base64."""
    found = [re.findall(r'"body": ?"([^"]*)"', command.replace("\\", "")) for command in told]
    return [base64.b64decode(body).decode() for command in found for body in command]


async def test_no_text_of_a_chunk_reaches_the_lead_the_broker_or_celery_s_events(docs, redis_url, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    told, listening = [], asyncio.Event()
    listener = asyncio.create_task(overheard(redis_url, told, listening))
    await listening.wait()
    # One agent at a time: the lead has to rest before its analysts work.
    async with Stage(CONFIG, workers=1, concurrency=1) as stage:
        o = stage.outrider
        submitted = await o.submit("lead", QUESTION, configurable={"docs": str(docs)})
        lead = await o.wait(submitted.task_id)
        tree = await o.tree(lead.task_id)
        messages = (await o.state(lead.task_id))["messages"]
        analysts = [await o.get(child.task.task_id) for child in tree.children]
        read = [(await o.state(analyst.task_id))["messages"] for analyst in analysts]
    listener.cancel()
    with suppress(asyncio.CancelledError):
        await listener

    assert lead.status == "success"
    assert [verify(open_folder(str(docs)), one) for one in parse(lead.result)] == [None]
    assert lead.runs[0].ended_as == "rested"
    assert len(lead.runs) > 1
    assert {run.queue for run in lead.runs[1:-1]} == {"parents"}
    assert (lead.runs[-1].queue, lead.grade.result) == ("graders", "satisfied")
    assert "xylophones" in repr(read)
    assert "xylophones" not in repr(messages)

    sent = bodies(told)
    bells = [body for body in sent if lead.task_id in body or any(one.task_id in body for one in analysts)]
    assert len(bells) >= len(lead.runs) + len(analysts)
    events = [command for command in told if "task-succeeded" in "".join(bodies([command]) or [command])]
    assert events, "Celery's events were heard too"
    for text in ("xylophones", "first Tuesday", "/retrieved/", QUESTION):
        assert not [one for one in (*told, *sent) if text in one]

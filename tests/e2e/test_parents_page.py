"""docs/parents.md tells the truth: each of its parents runs as it stands there, with a stub for its model."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from openai_stub import call, serving
from outrider import Outrider
from outrider.shared.settings import Settings
from outrider.shared.statuses import Status
from workers import WorkerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "parents.md").read_text()
FILES = dict(re.findall(r"^`([\w.]+)`[^\n]*(?:\n[^\n`]+)?:\n\n```\w+\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
MODEL = '"openai:gpt-5-mini"'
REPORT = "It is a small queue."


def reply(request):
    """Play every model of the page: a parent hands out once, and sums up when it was told or has checked."""
    said = request["messages"]
    tools = {tool["function"]["name"]: tool["function"] for tool in request.get("tools", ())}
    last = str(said[-1]["content"])
    if "start_async_task" not in tools or "[The messages above" in str(said[-2]["content"]):
        return {"content": REPORT}
    if any(message["role"] == "assistant" for message in said):
        return {"content": last if REPORT in last else "I wait."}
    subagent = re.search(r"- `(\w+)`", tools["start_async_task"]["description"])[1]
    return {"tool_calls": [call(1, "start_async_task", description="Arq", subagent_type=subagent)]}


@pytest.fixture
async def page(redis_url, namespace, tmp_path, monkeypatch):
    pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    # deepagents asks OpenAI's models in a way that the stub does not know.
    chat = '__import__("langchain_openai").ChatOpenAI(model="gpt-5-mini", use_responses_api=False)'
    (tmp_path / "deep_lead.py").write_text(FILES["deep_lead.py"].replace(MODEL, chat))
    config = str(tmp_path / "langgraph.json")
    for name, value in {"REDIS_URL": redis_url, "NAMESPACE": namespace, "CONFIG": config}.items():
        monkeypatch.setenv(f"OUTRIDER_{name}", value)
    settings = Settings(redis_url=redis_url, namespace=namespace, config=config)
    with serving(reply, monkeypatch), WorkerProcess(redis_url, namespace, OUTRIDER_CONFIG=config) as worker:
        await worker.says("ready")
        async with Outrider(settings) as o:
            yield o, tmp_path


async def program(folder, name):
    """What a file of the page prints."""
    command = [sys.executable, "-W", "ignore", name]
    done = await asyncio.to_thread(subprocess.run, command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


async def test_every_parent_of_the_page_hands_out_rests_and_hears(page):
    o, folder = page
    parents = json.loads(FILES["langgraph.json"])["graphs"].keys() - {"researcher"}
    assert {f"{name}.py" for name in parents} | {
        "researcher.py",
        "own.py",
        "nightly.py",
        "program.py",
        "langgraph.json",
    } == FILES.keys()
    submitted = {name: (await o.submit(name, "Arq")).task_id for name in parents}
    for name, task_id in submitted.items():
        task = await o.wait(task_id)
        (child,) = (await o.tree(task_id)).children
        assert (name, task.status, child.task.status) == (name, Status.SUCCESS, Status.SUCCESS)
        assert (await o.result(child.task.task_id)) == REPORT
        assert child.task.mode == ("fork" if name == "writer" else "isolated")
        told = [m for m in (await o.state(task_id))["messages"] if "outrider_notification" in m.additional_kwargs]
        assert [REPORT in message.text for message in told] == [True]
    assert await program(folder, "program.py") == [f"success {REPORT}"] * 3
    assert sorted(await program(folder, "nightly.py")) == [f"success {REPORT}"] * 3
    assert "\n".join(await program(folder, "own.py")).count(REPORT) == 1

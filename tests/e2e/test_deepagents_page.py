"""docs/deepagents.md tells the truth: its files and commands run as they stand there, with a stub for the models."""

import asyncio
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from flowers import CLI
from openai_stub import call, serving
from outrider import Outrider
from outrider.shared.settings import Settings
from outrider.shared.statuses import Status
from workers import WorkerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "deepagents.md").read_text()
BLOCKS = re.findall(r"^```\w+\n", PAGE, re.MULTILINE)
FILES = dict(re.findall(r"^`([\w.]+)`[^\n]*:\n\n```\w+\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))
(COMMANDS,) = re.findall(r"^```console\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS = {"python": [sys.executable, "-W", "ignore"], "outrider": CLI}
MODEL = '"openai:gpt-5-mini"'
# deepagents asks OpenAI's models in a way that the stub does not know.
STUB = '__import__("langchain_openai").ChatOpenAI(model="gpt-5-mini", use_responses_api=False)'
WAITS = 4  # the exit code
NOTES, MEMORY = "/orders/7.md", "/memories/AGENTS.md"
SCRIPT = {
    "scout": [
        call(1, "write_file", file_path=NOTES, content="never delivered"),
    ],
    "clerk": [
        call(2, "start_async_task", description="Look up order 7", subagent_type="scout"),
        None,  # it rests
        call(3, "read_file", file_path=NOTES),
        call(4, "refund", order="7"),
        call(5, "edit_file", file_path=MEMORY, old_string="of Ada\n", new_string="of Ada\n- order 7: refunded\n"),
    ],
}


def reply(request):
    """Play both models: each goes through its script, and ends with the last result that it reads."""
    said = request["messages"]
    name = "clerk" if "Help the user" in str(said[0]) else "scout"
    turns = [message for message in said if message["role"] == "assistant"]
    todo = SCRIPT[name][len(turns) :]
    if todo and todo[0]:
        return {"tool_calls": [todo[0]]}
    return {"content": str(said[-1]["content"])}


@pytest.fixture
async def page(redis_url, namespace, tmp_path, monkeypatch):
    pytest.importorskip("langchain_openai", reason="langchain-openai is not installed")
    for name, text in FILES.items():
        file = tmp_path / ("skills/refunds" if name == "SKILL.md" else "") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.replace(MODEL, STUB))
    config = str(tmp_path / "langgraph.json")
    for name, value in {"REDIS_URL": redis_url, "NAMESPACE": namespace, "CONFIG": config}.items():
        monkeypatch.setenv(f"OUTRIDER_{name}", value)
    settings = Settings(redis_url=redis_url, namespace=namespace, config=config)
    with serving(reply, monkeypatch) as stub, WorkerProcess(redis_url, namespace, OUTRIDER_CONFIG=config) as worker:
        await worker.says("ready")
        async with Outrider(settings) as o:
            yield o, stub, tmp_path


async def run(folder, line):
    """Run a command of the page; what it prints."""
    program, *words = shlex.split(line)
    process = await asyncio.create_subprocess_exec(
        *PROGRAMS[program], *words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


async def test_the_page_from_its_first_block_to_its_last(page):
    o, stub, folder = page
    assert len(BLOCKS) == len(FILES) + 1
    publish, submit, answer, show, update = COMMANDS.removeprefix("$ ").rstrip().split("\n$ ")
    assert (await run(folder, publish))[0] == 0
    code, asked = await run(folder, submit)
    task_id = re.search(r"outrider answer (\S+) --approve", asked)[1]
    assert (code, (await o.get(task_id)).status) == (WAITS, Status.WAITING)
    assert (await run(folder, answer.replace("ID", task_id)))[0] == 0
    assert NOTES in (await run(folder, show.replace("ID", task_id)))[1]
    messages = [message.text for message in (await o.state(task_id))["messages"]]
    assert any(text.startswith('<skill name="refunds"') for text in messages)
    assert "Order 7 is refunded to ada." in messages
    assert not any("/skills/refunds" in str(request["messages"][0]) for request in stub.asked if of_scout(request))
    memory = await o.store.aget(("memories", "ada"), "/AGENTS.md")
    assert memory.value["content"] == "# What is known of Ada\n- order 7: refunded\n"
    assert (await run(folder, update.replace("ID", task_id)))[0] == 0
    assert (await o.get(task_id)).result == "And order 8?"


def of_scout(request):
    return "Look the order up" in json.dumps(request["messages"][0])

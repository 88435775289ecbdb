"""docs/python.md tells the truth: its table names what the clients have, and its service runs, on a stub of FastAPI."""

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from outrider import Outrider
from outrider.orchestrator.sync import SyncOutrider
from outrider.shared import errors
from outrider.shared.errors import UnknownTask
from workers import AGENTS, WorkerProcess

PAGE = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
SERVICE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]


@dataclass
class FastAPI:
    """As much of FastAPI as the page uses; what is decorated stands under its path."""

    lifespan: Any
    calls: dict[Any, Any] = field(default_factory=dict)

    def get(self, at):
        return lambda call: self.calls.setdefault(at, call)

    post = exception_handler = get


@dataclass
class Response:
    content: Any
    status_code: int = 200
    media_type: str | None = None


@pytest.fixture
async def app(redis_url, namespace, monkeypatch):
    for name, attributes in {
        "fastapi": {"FastAPI": FastAPI},
        "fastapi.responses": {"JSONResponse": Response, "StreamingResponse": Response},
    }.items():
        module = ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    for name, value in {"REDIS_URL": redis_url, "NAMESPACE": namespace, "CONFIG": str(AGENTS)}.items():
        monkeypatch.setenv(f"OUTRIDER_{name}", value)
    service = {}
    exec(SERVICE.replace('"researcher"', '"compiled"'), service)  # noqa: S102 the page's own code
    with WorkerProcess(redis_url, namespace) as worker:
        await worker.says("ready")
        async with service["app"].lifespan(service["app"]):
            yield service["app"].calls


async def test_its_service_hands_over_tells_and_shows(app):
    task_id = (await app["/tasks"]("value"))["task_id"]
    stream = await app["/tasks/{task_id}/events"](task_id)
    sent = [line async for line in stream.content]
    assert "event: task.submitted" in sent[0]
    assert "event: task.settled" in sent[-1]
    seen = sent[-2].split("\n")[0].removeprefix("id: ")
    again = await app["/tasks/{task_id}/events"](task_id, seen)
    assert [line async for line in again.content] == sent[-1:]
    assert (await app["/tasks/{task_id}"](task_id))["status"] == "success"
    with pytest.raises(UnknownTask) as caught:
        await app["/tasks/{task_id}/events"]("nope")
    assert (await app[UnknownTask](None, caught.value)).status_code == 404


def test_its_table_names_the_methods_of_both_clients():
    rows = re.findall(r"^\| (`.*?) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)\(", row)}
    methods = {name for name, value in vars(Outrider).items() if callable(value) and not name.startswith("_")}
    assert named == methods
    assert methods - vars(SyncOutrider).keys() == set()


def test_the_errors_that_it_names_are_there():
    (text,) = re.findall(r"`outrider\.shared\.errors`:(.*?)\n\n", PAGE, re.DOTALL)
    named = set(re.findall(r"`(\w+)`", text))
    assert len(named) > 5
    assert named - vars(errors).keys() == {"TimeoutError"}

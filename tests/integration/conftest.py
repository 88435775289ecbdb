"""What several of these tests start from. A module that needs it otherwise has a fixture of the same name."""

import json
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

import puppets
import workers
from outrider.shared.store import Store

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def store(any_redis, namespace):
    return Store(any_redis, namespace)


@pytest.fixture
def config(tmp_path):
    """A configuration for clients: nothing here runs the agent that it names."""
    path = tmp_path / "langgraph.json"
    path.write_text(json.dumps({"graphs": {"agent": "./agents.py:agent"}}))
    return str(path)


@pytest.fixture(scope="session")
def measure(tmp_path_factory):
    """Run a benchmark with small numbers, and give its report; the machine and each target are named."""

    def run(name):
        file = tmp_path_factory.mktemp("benchmark") / "figures.json"
        command = [sys.executable, BENCHMARKS / name, "--quick", "--json", file]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        report = json.loads(file.read_text())
        assert {"cpu", "cores", "load", "python", "redis", "libraries"} <= report["machine"].keys()
        for target in report["targets"]:
            assert target["name"] in done.stdout
            assert target["reached"] in {True, False, None}
        assert "\x1b" not in done.stdout
        return report

    return run


@pytest.fixture(scope="module")
def place(redis_server):
    """A namespace with a worker, for the tests of a module."""
    namespace = f"puppets-{uuid.uuid4().hex[:8]}"
    with puppets.workers(redis_server.url, namespace, count=1):
        yield redis_server.url, namespace


@pytest.fixture
async def site(place):
    async with puppets.site(*place) as site:
        yield site


@pytest.fixture(params=puppets.AGENTS)
async def parent(site, request):
    """A parent whose model waits for what to say."""
    task_id = await site.parent(request.param)
    await site.read(task_id)
    yield task_id
    await site.o.cancel(task_id)


@pytest.fixture
async def bench(redis_url, namespace, monkeypatch):
    """A worker's own parts, in this process."""
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    async with workers.bench(redis_url, namespace) as bench:
        yield bench

"""The fixtures of all tests: a Redis of their own, a fake one, and a namespace for each test."""

import contextlib
import os
import socket
import sys
import uuid
from pathlib import Path

import fakeredis
import hypothesis
import pytest
import redis.asyncio

import servers
from outrider.orchestrator.embedded import EmbeddedRedis

UNIT = Path(__file__).parent / "unit"

# What the machine is set to must not reach the tests, nor they its Redis, its broker or its tracing service.
FOREIGN = ("OUTRIDER_", "REDIS_URL", "CELERY_", "LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_")
for _name in [name for name in os.environ if name.startswith(FOREIGN)]:
    del os.environ[_name]

# How fast this machine is today says nothing about the code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Twice as many as there are processors: tests wait for processes and leases more than they compute."""
    return (os.cpu_count() or 1) * 2


@pytest.fixture(autouse=True)
def _no_sockets(request, monkeypatch):
    """Hold that unit tests connect to nothing, unless they are marked `sockets`."""
    if UNIT not in request.path.parents or request.node.get_closest_marker("sockets"):
        return

    def refuse(self, address):
        self.close()
        pytest.fail(f"a unit test connects to {address!r}: mark it `sockets`, or move it to tests/integration")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket.socket, "connect_ex", refuse)


@pytest.fixture(autouse=True)
def _forget_agents(monkeypatch):
    """Forget the agents that a test loaded: another folder's module may have the same name."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    path, modules = set(sys.path), set(sys.modules)
    yield
    folders = set(sys.path) - path
    for name in set(sys.modules) - modules:
        file = getattr(sys.modules[name], "__file__", None)
        if file and any(Path(file).is_relative_to(folder) for folder in folders):
            del sys.modules[name]


@pytest.fixture(scope="session")
def redis_server():
    """One real server for the whole session. Tests share it and keep apart by `namespace`."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server):
    return redis_server.url


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory):
    """One RabbitMQ for the whole session. Each test takes a vhost of it."""
    if not (servers.RABBITMQ and servers.EPMD):
        pytest.skip("no RabbitMQ on this machine")
    with servers.RabbitMQ(tmp_path_factory.mktemp("rabbitmq")) as server:
        yield server


@pytest.fixture(params=["redis", "rabbitmq"])
def broker_url(request):
    """Give each test Redis as the broker in one run (an empty URL: the records' Redis) and RabbitMQ in the other."""
    return "" if request.param == "redis" else request.getfixturevalue("rabbitmq").vhost()


def pytest_terminal_summary(terminalreporter):
    """Say in words whether the tests that need RabbitMQ ran: the list of skipped ones is easily overlooked."""
    ran = sum("rabbitmq" in report.nodeid for report in terminalreporter.stats.get("passed", ()))
    skipped = [report for report in terminalreporter.stats.get("skipped", ()) if "no RabbitMQ" in str(report.longrepr)]
    if ran or skipped:
        said = f"{ran} tests passed on it" if ran else f"not on this machine, {len(skipped)} tests skipped"
        terminalreporter.write_line(f"RabbitMQ as the broker: {said}")


@pytest.fixture
def namespace():
    """Give a namespace that no other test uses."""
    return f"t-{uuid.uuid4().hex[:12]}"


@contextlib.asynccontextmanager
async def _real(url):
    async with redis.asyncio.Redis.from_url(url, decode_responses=False) as client:
        yield client


@contextlib.asynccontextmanager
async def _fake():
    async with fakeredis.FakeAsyncRedis(server=fakeredis.FakeServer(version=(7,)), decode_responses=False) as client:
        yield client


@pytest.fixture
async def real_redis(redis_url):
    """Give a client of the real server that answers in bytes."""
    async with _real(redis_url) as client:
        yield client


@pytest.fixture
async def fake_redis():
    """Give an empty fake server's client that answers in bytes and runs Lua."""
    async with _fake() as client:
        yield client


@pytest.fixture(params=["fake", "real"])
def _redis_opener(request):
    if request.param == "fake":
        return _fake
    url = request.getfixturevalue("redis_url")
    return lambda: _real(url)


@pytest.fixture
async def any_redis(_redis_opener):
    """Give each test a fake client in one run and a real one in the other."""
    async with _redis_opener() as client:
        yield client

"""The fixtures of all tests: a Redis of their own, a fake one, and a namespace for each test."""

import contextlib
import os
import socket
import uuid
from pathlib import Path

import fakeredis
import pytest
import redis.asyncio

from outrider.orchestrator.embedded import EmbeddedRedis

UNIT = Path(__file__).parent / "unit"

# What the machine is set to must not reach the tests, nor they its Redis, its broker or its tracing service.
FOREIGN = ("OUTRIDER_", "REDIS_URL", "CELERY_", "LANGSMITH_", "LANGCHAIN_", "LANGGRAPH_")
for _name in [name for name in os.environ if name.startswith(FOREIGN)]:
    del os.environ[_name]


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


@pytest.fixture(scope="session")
def redis_server():
    """One real server for the whole session. Tests share it and keep apart by `namespace`."""
    with EmbeddedRedis() as server:
        yield server


@pytest.fixture
def redis_url(redis_server):
    return redis_server.url


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

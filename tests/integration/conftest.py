"""What several of these tests start from. A module that needs it otherwise has a fixture of the same name."""

import uuid

import pytest

import puppets
import workers
from outrider.shared.store import Store


@pytest.fixture
def store(any_redis, namespace):
    return Store(any_redis, namespace)


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

"""What workers tell of their agents and queues, and for how long it counts."""

import math
from types import SimpleNamespace

import pytest

from outrider.shared import catalogue
from outrider.shared.catalogue import Published
from outrider.shared.keys import Keys

GOOD = Published(name="a", description="Reads.", input_keys=("messages", "files"))
BROKEN = Published(name="a", broken="ImportError")


async def test_the_queues_of_the_workers_that_live_are_known(fake_redis, namespace):
    keys = Keys(namespace)
    await catalogue.publish(fake_redis, keys, "gone", [GOOD], 0, queues=["old"])
    await catalogue.publish(fake_redis, keys, "w1", [GOOD], 60_000, queues=["subagents", "slow"])
    await catalogue.publish(fake_redis, keys, "w2", [GOOD], 60_000, queues=["subagents"])
    assert (await catalogue.read(fake_redis, keys)).queues == {"subagents", "slow"}


async def test_what_a_worker_publishes_is_read_back_and_replaced(fake_redis, namespace):
    keys = Keys(namespace)
    assert (await catalogue.read(fake_redis, keys)).agents == {}
    await fake_redis.hset(keys.catalogue(), "of a later version", "{}")
    await catalogue.publish(fake_redis, keys, "w", [BROKEN], 60_000)
    assert (await catalogue.read(fake_redis, keys)).agents == {"a": BROKEN}
    await catalogue.publish(fake_redis, keys, "w", [GOOD], 60_000)
    assert (await catalogue.read(fake_redis, keys)).agents == {"a": GOOD}


@pytest.mark.parametrize(("first", "last"), [(GOOD, BROKEN), (BROKEN, GOOD)])
async def test_a_worker_does_not_speak_for_those_who_can_build_an_agent(fake_redis, namespace, first, last):
    keys = Keys(namespace)
    await catalogue.publish(fake_redis, keys, "w1", [first], 60_000)
    await catalogue.publish(fake_redis, keys, "w2", [last], 60_000)
    assert (await catalogue.read(fake_redis, keys)).agents == {"a": GOOD}


async def test_what_a_worker_said_goes_with_it(fake_redis, namespace):
    keys = Keys(namespace)
    await catalogue.publish(fake_redis, keys, "gone", [GOOD, Published(name="b")], 0)
    assert (await catalogue.read(fake_redis, keys)).agents == {}
    await catalogue.publish(fake_redis, keys, "w", [BROKEN], 60_000)
    assert (await catalogue.read(fake_redis, keys)).agents == {"a": BROKEN}
    assert await fake_redis.hkeys(keys.catalogue()) == [b"w"]


async def test_a_worker_that_ends_takes_back_what_it_said(fake_redis, namespace):
    keys = Keys(namespace)
    await catalogue.publish(fake_redis, keys, "w1", [BROKEN], 60_000, queues=["slow"])
    await catalogue.publish(fake_redis, keys, "w2", [Published(name="b")], 60_000)
    for _ in range(2):
        await catalogue.withdraw(fake_redis, keys, "w1")
    read = await catalogue.read(fake_redis, keys)
    assert (list(read.agents), read.queues) == (["b"], frozenset())


async def test_what_was_read_a_moment_ago_is_not_read_anew(fake_redis, namespace, monkeypatch):
    keys, cached = Keys(namespace), catalogue.CachedCatalogue()
    assert (await cached.read(fake_redis, keys)).agents == {}
    await catalogue.publish(fake_redis, keys, "w", [BROKEN], 60_000)
    monkeypatch.setattr(catalogue, "CACHED_SECONDS", 3600)
    assert (await cached.read(fake_redis, keys)).agents == {"a": BROKEN}
    await catalogue.publish(fake_redis, keys, "w", [GOOD], 60_000)
    assert (await cached.read(fake_redis, keys)).agents == {"a": BROKEN}
    monkeypatch.setattr(catalogue, "time", SimpleNamespace(monotonic=lambda: math.inf))
    assert (await cached.read(fake_redis, keys)).agents == {"a": GOOD}

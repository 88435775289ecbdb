"""The same walks on a real Redis: more of them, longer, and other ones each time."""

import pytest
import redis
import redis.asyncio

from machine import Connections, walk


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_no_interleaving_loses_or_doubles_anything(redis_url):
    url = f"{redis_url.rsplit('/', 1)[0]}/15"  # the walks empty a database of their own

    def connect():
        reader = redis.Redis.from_url(url)
        reader.flushdb()
        return Connections(lambda: redis.asyncio.Redis.from_url(url), reader)

    walk(connect, examples=400, steps=60, shrink=True)

"""The client that batches: what callers see is what any client would show them."""

import asyncio

import pytest
from redis.asyncio import BlockingConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared.batching import BatchingRedis


def client_of(url):
    return BatchingRedis.from_pool(BlockingConnectionPool.from_url(url))


@pytest.fixture
async def client(redis_url):
    async with client_of(redis_url) as client:
        yield client


@pytest.fixture
def key(namespace):
    return f"{{{namespace}}}:key"


async def test_each_caller_gets_its_own_reply(client, key):
    replies = await asyncio.gather(
        client.hset(key, "field", "value"), client.hgetall(key), *(client.echo(str(n)) for n in range(50))
    )
    assert replies == [1, {b"field": b"value"}, *(str(n).encode() for n in range(50))]


async def test_what_is_asked_together_goes_on_one_connection(client):
    await asyncio.gather(*(client.ping() for _ in range(50)))
    assert len(client.connection_pool._available_connections) == 1


async def test_an_error_is_its_own_callers_alone(client, key):
    await client.set(key, "text")
    wrong, right = await asyncio.gather(client.hget(key, "field"), client.get(key), return_exceptions=True)
    assert isinstance(wrong, ResponseError)
    assert right == b"text"


async def test_a_text_that_cannot_be_encoded_fails_alone(client, key):
    wrong, right = await asyncio.gather(client.set(key, "\ud800"), client.echo("here"), return_exceptions=True)
    assert isinstance(wrong, UnicodeEncodeError)
    assert right == b"here"


async def test_a_cancelled_caller_leaves_the_others_alone(client):
    cancelled, other = (asyncio.create_task(client.echo(text)) for text in ("gone", "here"))
    await asyncio.sleep(0)
    cancelled.cancel()
    assert await other == b"here"
    with pytest.raises(asyncio.CancelledError):
        await cancelled


async def test_a_script_that_redis_does_not_know_is_loaded(client, namespace):
    script = client.register_script(f"return {{ARGV[1], '{namespace}'}}")
    assert await asyncio.gather(script(args=[1]), script(args=[2])) == [
        [b"1", namespace.encode()],
        [b"2", namespace.encode()],
    ]


async def test_pipelines_work_beside_it(client, key):
    async with client.pipeline(transaction=True) as pipe:
        pipe.set(key, "1")
        pipe.incr(key)
        replies, echoed = await asyncio.gather(pipe.execute(), client.echo("here"))
    assert (replies, echoed) == ([True, 2], b"here")


async def test_every_caller_hears_that_redis_is_gone_and_that_it_is_back():
    with EmbeddedRedis() as server:
        async with client_of(server.url) as client:
            await client.ping()
            server.kill()
            failed = await asyncio.gather(*(client.ping() for _ in range(3)), return_exceptions=True)
            assert [type(error) for error in failed] == [RedisConnectionError] * 3
            server.restart()
            assert await client.ping()

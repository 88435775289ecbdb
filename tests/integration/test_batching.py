"""The client that batches: what callers see is what any client would show them."""

import asyncio
import re

import pytest
from redis.asyncio import BlockingConnectionPool
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared import batching
from outrider.shared.batching import BatchingRedis
from outrider.shared.connections import connect, reachable
from outrider.shared.errors import RedisUnreachable
from outrider.shared.refusals import REFUSALS, TooLarge, is_away, refusal
from outrider.shared.settings import Settings


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


async def test_commands_gather_as_long_as_they_shall(client, monkeypatch):
    sizes = []
    exchange = client._exchange

    async def told(connection, batch):
        sizes.append(len(batch))
        return await exchange(connection, batch)

    monkeypatch.setattr(client, "_exchange", told)
    monkeypatch.setattr(client, "linger", lambda: 3600)
    asked = []
    for text in "abc":  # each in a turn of its own
        asked.append(asyncio.create_task(client.echo(text)))
        await asyncio.sleep(0)
    assert not sizes
    client._send()
    assert await asyncio.gather(*asked) == [b"a", b"b", b"c"]
    assert sizes == [3]


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


@pytest.fixture
def own_server():
    """Give a server whose settings a test may change."""
    with EmbeddedRedis() as server:
        yield server


@pytest.mark.parametrize("patient", [True, False])
async def test_a_command_that_redis_does_not_take_keeps_nobody_from_a_reply(own_server, patient, monkeypatch):
    monkeypatch.setattr(batching, "PAUSES", (0, 0))
    async with connect(Settings(redis_url=own_server.url), patient=patient) as client:
        await client.config_set("proto-max-bulk-len", 2**20)
        big, mate = await asyncio.gather(client.set("y", b"x" * 3_000_000), client.echo("here"), return_exceptions=True)
        assert isinstance(big, TooLarge)
        assert "SET with 3,000,0" in str(big)
        assert mate == b"here"


async def test_a_reply_that_ends_its_connection_fails_alone(own_server, monkeypatch):
    monkeypatch.setattr(batching, "PAUSES", (0, 0))
    async with connect(Settings(redis_url=own_server.url), patient=True) as client:
        await client.set("big", b"x" * 10_000_000)
        await client.config_set("client-output-buffer-limit", "normal 1mb 1mb 1")
        big, mate = await asyncio.gather(client.get("big"), client.echo("here"), return_exceptions=True)
        assert isinstance(big, RedisConnectionError)
        assert mate == b"here"


async def test_what_is_asked_together_is_bounded_in_bytes(client, key):
    texts = [b"x" * 400_000, b"y" * 400_000, b"z" * 400_000, b"w" * 2_000_000, b"small"]
    assert await asyncio.gather(*(client.echo(text) for text in texts)) == texts
    assert len(client.connection_pool._available_connections) == 4


REFUSED = {
    "READONLY": ({"replicaof": ("127.0.0.1", 1)}, {"replicaof": ("NO", "ONE")}),
    "OOM": ({"config_set": ("maxmemory", 1)}, {"config_set": ("maxmemory", 0)}),
    "NOREPLICAS": ({"config_set": ("min-replicas-to-write", 1)}, {"config_set": ("min-replicas-to-write", 0)}),
}


@pytest.mark.parametrize("code", REFUSED)
@pytest.mark.parametrize("script", [True, False])
async def test_what_redis_refuses_for_now_is_sat_out_or_told(own_server, code, script):
    settings = Settings(redis_url=own_server.url)

    def write(client):
        return client.eval("return redis.call('SET', KEYS[1], 'x')", 1, "k") if script else client.set("k", "x")

    async def do(commands):
        for name, args in commands.items():
            await getattr(admin, name)(*args)

    refuse, serve = REFUSED[code]
    async with connect(settings) as admin, connect(settings, patient=True) as client:
        await do(refuse)
        with pytest.raises(RedisUnreachable, match=re.escape(REFUSALS[code][1])), reachable(settings):
            await write(admin)
        refused = asyncio.Event()
        exchange = client._exchange

        async def told(*args):
            replies = await exchange(*args)
            refused.set()
            return replies

        client._exchange = told
        writing = asyncio.create_task(write(client))
        await refused.wait()
        await do(serve)
        assert await writing
        assert await admin.get("k") == b"x"


def test_an_id_in_an_error_s_text_is_no_code():
    assert refusal(ResponseError("user_script:12: MOVE task job-OOM BUSY: start, a > b")) is None
    assert not is_away(ResponseError("WRONGTYPE Operation against a key"))


async def test_each_caller_has_an_error_of_its_own(own_server):
    async with client_of(own_server.url) as client:
        await client.ping()
        own_server.kill()
        one, other = await asyncio.gather(client.ping(), client.ping(), return_exceptions=True)
        assert one is not other
        assert (type(one), str(one)) == (type(other), str(other))


async def test_every_caller_hears_that_redis_is_gone_and_that_it_is_back():
    with EmbeddedRedis() as server:
        async with client_of(server.url) as client:
            await client.ping()
            server.kill()
            failed = await asyncio.gather(*(client.ping() for _ in range(3)), return_exceptions=True)
            assert [type(error) for error in failed] == [RedisConnectionError] * 3
            server.restart()
            assert await client.ping()

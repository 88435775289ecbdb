"""Webhooks on real workers: each end is told with one id and one body, whatever the receiver and workers do."""

import asyncio
import json
import random

import pytest

import puppets
from outrider import Outrider
from outrider.orchestrator.doctor import examine
from outrider.shared.errors import BadInput, IdempotencyConflict
from outrider.shared.settings import Settings
from outrider.shared.statuses import Status
from outrider.worker.deliverer import Deliverer
from puppets import started
from receivers import SECRET, receiving
from servers import make_certificates
from workers import AGENTS, WorkerProcess

QUICK = {"OUTRIDER_LEASE_SECONDS": "3", "OUTRIDER_HEARTBEAT_SECONDS": "0.5", "OUTRIDER_SWEEP_SECONDS": "1"}
ALLOWED = {"OUTRIDER_WEBHOOK_SECRET": SECRET, "OUTRIDER_WEBHOOK_ALLOW_PRIVATE": "true"}


@pytest.fixture
async def o(redis_url, namespace):
    settings = Settings(
        redis_url=redis_url,
        namespace=namespace,
        config=str(AGENTS),
        webhook_secret=SECRET,
        webhook_allow_private=True,
    )
    async with Outrider(settings) as opened:
        yield opened


def worker(redis_url, namespace, *args, **env):
    return WorkerProcess(redis_url, namespace, *args, **ALLOWED | env)


async def delivery(o, task_id, status, *, tried=False):
    """The delivery of a task's last run, when it has this status, and was tried where that is asked for."""
    while True:
        run = (await o.get(task_id)).runs[-1]
        if run.delivery and run.delivery.status == status and (run.delivery.updated_at or not tried):
            return run.delivery


@pytest.mark.parametrize("ends", [40, pytest.param(500, marks=pytest.mark.faults)])
async def test_each_end_is_told_with_one_id_and_one_body_also_when_a_worker_is_killed(o, redis_url, namespace, ends):
    def answers(delivery_id, number):
        drawn = random.Random(f"{delivery_id} {number}").random()  # noqa: S311 no secret
        return 503 if number <= 3 and drawn < 0.3 else 204

    with (
        receiving(answers=answers) as receiver,
        worker(redis_url, namespace, **QUICK) as first,
        worker(redis_url, namespace, **QUICK) as second,
    ):
        await first.says("ready")
        await second.says("ready")
        ids = set()
        for _ in range(ends // 20):
            made = await asyncio.gather(*(o.submit("chat", "hello", webhook=receiver.url) for _ in range(20)))
            ids |= {one.task_id for one in made}
        await asyncio.to_thread(receiver.await_accepted, ends // 10)
        first.process.kill()
        await asyncio.to_thread(receiver.await_accepted, ends, 120)
    assert {delivery_id.split(":")[0] for delivery_id in receiver.came} == ids
    assert len(receiver.came) == ends
    for delivery_id, tries in receiver.came.items():
        assert len({body for _, body, _ in tries}) == 1, delivery_id


async def test_what_a_receiver_reads(o, redis_url, namespace):
    fails_once = receiving(answers=lambda _, number: 500 if number == 1 else 200)
    with fails_once as receiver, worker(redis_url, namespace) as process:
        await process.says("ready")
        task = await o.submit("chat", "hello", webhook=receiver.url, title="a title")
        await asyncio.to_thread(receiver.await_accepted, 1)
        told = await delivery(o, task.task_id, "delivered")
    ended = await o.get(task.task_id)
    delivery_id = f"{task.task_id}:{task.run_id}:success"
    assert (told.id, told.tries, told.error, told.next_at) == (delivery_id, 2, None, None)
    assert ended.to_json()["webhook"] == receiver.url.partition("?")[0] + "?***"
    body = receiver.facts(delivery_id)
    assert body["type"] == "task.settled"
    data = body["data"]
    assert (data["id"], data["task_id"], data["status"], data["title"]) == (
        delivery_id,
        task.task_id,
        "success",
        "a title",
    )
    assert data["result"] == ended.result
    (path, _, headers), _ = receiver.came[delivery_id]
    assert (path, headers["content-type"]) == ("/hook?key=s", "application/json")
    assert headers["host"] in receiver.url
    assert not any("key=s" in line or "hello" in line for line in process.lines)
    assert any("webhook.not_delivered" in line and "HTTP 500" in line for line in process.lines)


async def test_a_redirect_is_not_followed_and_a_private_address_is_not_called(o, redis_url, namespace):
    with receiving(answers=lambda _, number: 307 if number == 1 else 200) as receiver:
        with worker(redis_url, namespace, OUTRIDER_WEBHOOK_ALLOW_PRIVATE="false") as strict:
            await strict.says("ready")
            task = await o.submit("chat", "hello", webhook=receiver.url)
            await strict.says("webhook.not_delivered")
            assert any("private, loopback" in line for line in strict.lines)
            assert receiver.came == {}
        with worker(redis_url, namespace) as process:
            await process.says("HTTP 307")
            await asyncio.to_thread(receiver.await_accepted, 1)
    assert {path for tries in receiver.came.values() for path, _, _ in tries} == {"/hook?key=s"}
    assert (await delivery(o, task.task_id, "delivered")).tries >= 3


async def test_a_host_that_is_no_name_is_an_attempt_that_failed(o, redis_url, namespace, monkeypatch):
    """Submit refuses it; one that is in the records all the same is not tried for ever."""
    monkeypatch.setattr("outrider.orchestrator.submitting.check_webhook", lambda *_: None)
    with receiving() as receiver, worker(redis_url, namespace) as process:
        await process.says("ready")
        task = await o.submit("chat", "hello", webhook="https://a..example/hook")
        await process.says("its host is no name")
        told = await delivery(o, task.task_id, "pending")
        assert (told.tries >= 1, told.error) == (True, "its host is no name")
        await o.submit("chat", "hello", webhook=receiver.url)
        await asyncio.to_thread(receiver.await_accepted, 1)


@pytest.fixture
def called_by_name(monkeypatch):
    """Give `hook.example` the address of this machine; the list of what was looked up."""
    looked_up = []

    def resolve(host, port):
        looked_up.append((host, port))
        return ["127.0.0.1"]

    monkeypatch.setattr("outrider.worker.deliverer.resolve", resolve)
    return looked_up


async def test_over_tls_a_receiver_proves_its_name_at_the_address_that_was_checked(
    o, tmp_path, monkeypatch, called_by_name
):
    pytest.importorskip("cryptography", reason="cryptography makes this test's certificates")
    authorities, told = b"", {}
    # The third is of an authority that nobody knows.
    for at, name in enumerate(("hook.example", "127.0.0.1", "hook.example")):
        (folder := tmp_path / f"{at}").mkdir()
        authority, *certificate = make_certificates(folder, name)
        authorities += authority.read_bytes() if at < 2 else b""
        told[at] = certificate
    (tmp_path / "known.pem").write_bytes(authorities)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "known.pem"))
    deliverer = Deliverer(o.settings, o._session.store)
    delivering = asyncio.create_task(deliverer.run())
    for at, certificate in told.items():
        with receiving(certificate, host="hook.example") as receiver:
            task = await o.submit("chat", "hello", webhook=receiver.url)
            await o.cancel(task.task_id)
            deliverer.look()
            made = await delivery(o, task.task_id, "delivered" if at == 0 else "pending", tried=True)
        port = int(receiver.url.rpartition(":")[2].partition("/")[0])
        assert ("hook.example", port) in called_by_name
        assert set(receiver.asked_for) == {"hook.example"}
        if at == 0:
            ((_, _, headers),) = receiver.came[made.id]
            assert headers["host"] == f"hook.example:{port}"
        else:
            assert (made.error, receiver.came) == ("ConnectError", {})
    delivering.cancel()


async def test_a_subagent_s_own_webhook_is_told_of_the_tasks_that_its_parent_starts(redis_url, namespace):
    with receiving() as receiver:
        hook = {**ALLOWED, "TEST_WEBHOOK": receiver.url}
        with puppets.worker(redis_url, namespace, **hook) as process:
            await process.says("ready")
            async with puppets.site(redis_url, namespace) as site:
                parent = await site.parent("teller")
                await site.read(parent)
                await site.let_call(parent, started("now"))
                await asyncio.to_thread(receiver.await_accepted, 1)
                (child,) = await site.children(parent)
                assert [receiver.facts(came)["data"]["task_id"] for came in receiver.came] == [child]
                assert (await site.o.get(parent)).webhook is None


async def test_a_cancel_is_told_and_a_wait_for_a_person_is_not(o, redis_url, namespace):
    with receiving() as receiver, worker(redis_url, namespace) as process:
        await process.says("ready")
        asks = await o.submit("asks", "hello", webhook=receiver.url)
        waiting = await o.wait(asks.task_id)
        assert waiting.status is Status.WAITING
        assert waiting.runs[-1].delivery is None
        await o.cancel(asks.task_id)
        await asyncio.to_thread(receiver.await_accepted, 1)
    assert list(receiver.came) == [f"{asks.task_id}:{asks.run_id}:cancelled"]


async def test_a_bad_url_changes_nothing_and_another_one_conflicts(o):
    strict = Settings(**{**o.settings.model_dump(), "webhook_allow_private": False})
    async with Outrider(strict) as client:
        for url in ("/hook", "http://127.0.0.1:9/", "http://user:pw@example.com/"):
            with pytest.raises(BadInput, match="webhook"):
                await client.submit("chat", "hello", webhook=url)
        assert (await client.list()).tasks == ()
    await o.submit("chat", "hello", webhook="http://127.0.0.1:9/", idempotency_key="k")
    with pytest.raises(IdempotencyConflict):
        await o.submit("chat", "hello", webhook="http://127.0.0.1:8/", idempotency_key="k")


async def test_doctor_tells_of_deliveries_that_fail(o, redis_url, namespace):
    with receiving(answers=lambda *_: 410) as receiver, worker(redis_url, namespace) as process:
        await process.says("ready")
        await o.submit("chat", "hello", webhook=receiver.url)
        await process.says("webhook.not_delivered")
        report = await examine(o.settings)
    assert any("HTTP 410" in finding.what for finding in report.findings), json.dumps(report.to_json())

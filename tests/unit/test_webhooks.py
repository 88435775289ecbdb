"""Webhooks: what is refused at submit, which addresses are public, how deliveries are signed and told."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from outrider.orchestrator.webhook_check import check_webhook
from outrider.shared import store_deliveries, webhooks
from outrider.shared.errors import BadInput, ConfigError
from outrider.shared.notification import note_of
from outrider.shared.settings import Settings
from outrider.shared.statuses import Status
from outrider.shared.store_deliveries import Attempt, delivery_of
from outrider.shared.text import clean
from outrider.shared.transitions import Facts

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture
def settings():
    return Settings(webhook_secret=SECRET)


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("/hook", "must be a whole http:// or https:// URL"),
        ("ftp://example.com/x", "must be a whole http"),
        ("https:///x", "must be a whole http"),
        ("https://example.com/x#part", "without a fragment"),
        ("https://user:hunter2@example.com/", "must not have a user or a password"),
        ("https://example.com:99999/", "Port out of range"),
        ("https://a..example.com/", "empty or longer than 63"),
        (f"https://{'a' * 64}.example.com/", "empty or longer than 63"),
        ("https://exa mple.com/", "without spaces"),
        ("https://example.com/\x00", "printable ASCII"),
        ("https://example.com/" + "x" * 2048, "at most 2,048"),
        (7, "must be a URL"),
        *(
            (f"http://{host}/", "private, loopback, link-local or reserved")
            for host in (
                "127.0.0.1",
                "127.1",
                "2130706433",
                "localhost",
                "0.0.0.0",  # noqa: S104 refused
                "10.1.2.3",
                "172.16.0.1",
                "192.168.1.1:8080",
                "169.254.169.254",
                "100.64.0.1",
                "224.0.0.1",
                "[::1]",
                "[::]",
                "[fe80::1]",
                "[fd00::1]",
                "[::ffff:127.0.0.1]",
                "[64:ff9b::7f00:1]",
                "[2002:7f00:1::]",
            )
        ),
    ],
)
def test_what_is_no_public_url_is_refused_without_its_secrets(settings, url, told):
    with pytest.raises(BadInput) as refused:
        check_webhook(url, settings)
    assert told in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_public_addresses_are_taken_and_private_ones_where_a_setting_allows_them(settings):
    for url in ("https://93.184.215.14/x?token=1", "http://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]:8080/"):
        check_webhook(url, settings)
    check_webhook("http://127.0.0.1:9/", Settings(webhook_secret=SECRET, webhook_allow_private=True))


def test_a_name_with_one_private_address_is_refused_and_one_without_any_is_left_to_workers(settings, monkeypatch):
    monkeypatch.setattr("outrider.orchestrator.webhook_check.resolve", lambda *_: ["93.184.215.14", "10.0.0.1"])
    with pytest.raises(BadInput, match="private"):
        check_webhook("https://example.com/", settings)

    def unknown(host, port):
        raise OSError

    monkeypatch.setattr("outrider.orchestrator.webhook_check.resolve", unknown)
    check_webhook("https://example.com/", settings)


def test_without_a_secret_none_is_taken():
    with pytest.raises(BadInput, match="OUTRIDER_WEBHOOK_SECRET is not set"):
        check_webhook("https://93.184.215.14/", Settings())


@pytest.mark.parametrize(("secret", "told"), [("whsec_?", "must be base64"), ("short", "at least 16 bytes")])
def test_a_bad_secret_is_named_and_not_shown(secret, told, monkeypatch):
    monkeypatch.setenv("OUTRIDER_WEBHOOK_SECRET", secret)
    with pytest.raises(ConfigError, match=f"OUTRIDER_WEBHOOK_SECRET = .*{told}") as refused:
        Settings.load()
    assert f"= {secret}" not in str(refused.value)
    assert f"'{secret}'" not in str(refused.value)


def test_the_signature_is_that_of_the_standard():
    """The example of the specification's libraries."""
    headers = webhooks.signed(
        webhooks.key_of(SECRET), "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}'
    )
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }
    assert webhooks.key_of(SECRET) == base64.b64decode(SECRET[6:])
    assert webhooks.key_of("plain text of some length") == b"plain text of some length"


def test_what_is_told_is_bounded_and_says_how_to_fetch_the_rest():
    result = [{"type": "text", "text": "x" * 500_000}, {"type": "image", "url": "https://example.com/i.png"}]
    facts = Facts("t", "agent", "title", webhook=True)
    note = note_of(facts, "r", Status.SUCCESS, json.dumps(result), "")
    delivery = delivery_of(facts, "r", note)
    assert (delivery["told_by"], delivery["delivery_id"]) == ("r", "t:r:success")
    told = delivery["told"]
    assert len(told) < 90_000
    shown = json.loads(told)
    assert (shown["media"], shown["status"], shown["whole_result"]) == (1, "success", "outrider show t --result")
    assert shown["result_length"] > len(shown["result"]) == 80_000
    assert delivery_of(Facts("t", "agent"), "r", note) == dict.fromkeys(delivery, "")


@settings_of(max_examples=50)
@given(st.text(), st.text(), st.text(alphabet="\ud800\udfff\x00\u2028\u202e\x1b<>&\"'\\"))
def test_whatever_an_agent_wrote_a_body_is_plain_json_and_whole(title, words, hostile):
    facts = Facts("t", "a", clean(title), webhook=True)
    for status, body in (Status.SUCCESS, words + hostile), (Status.ERROR, None):
        note = note_of(facts, "r", status, json.dumps(body), clean(hostile))
        delivery = delivery_of(facts, "r", note)
        delivery_id, told = delivery["delivery_id"], delivery["told"]
        attempt = Attempt("t", "r", 1, "https://example.com/", datetime.now(UTC), delivery_id, told)
        data = json.loads(attempt.body.decode("ascii"))["data"]
        assert (data["title"], data["result"]) == (clean(title), clean(body or ""))
        assert data["error_type"] == (clean(hostile) or None)
        assert attempt.body == Attempt("t", "r", 9, attempt.url, attempt.ended_at, delivery_id, told).body


def test_the_tries_end_within_a_day_and_not_within_an_hour():
    pauses = [
        min(store_deliveries.FIRST_PAUSE_MS * 2**n, store_deliveries.LONGEST_PAUSE_MS)
        for n in range(store_deliveries.MAX_TRIES - 1)
    ]
    assert 3_600_000 < sum(pauses) < 86_400_000

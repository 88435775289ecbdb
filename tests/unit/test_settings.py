"""Settings are read from the environment and checked together; errors are one line and name the variable."""

import pytest

from outrider.shared.errors import ConfigError
from outrider.shared.settings import Settings, mask_url, redis_is_named


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith("OUTRIDER_") or name in {"REDIS_URL", "CELERY_BROKER_URL"}:
            monkeypatch.delenv(name)


def test_defaults():
    settings = Settings.load()
    assert (settings.redis_url, settings.namespace) == ("redis://localhost:6379/0", "outrider")
    assert settings.broker == settings.redis_url
    assert not redis_is_named()


def test_our_variable_wins_over_the_common_one(monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://common/1")
    monkeypatch.setenv("CELERY_BROKER_URL", "amqp://common/")
    assert (Settings.load().redis_url, Settings.load().broker) == ("redis://common/1", "amqp://common/")
    monkeypatch.setenv("OUTRIDER_REDIS_URL", "redis://ours/2")
    monkeypatch.setenv("OUTRIDER_BROKER_URL", "amqp://ours/")
    assert (Settings.load().redis_url, Settings.load().broker) == ("redis://ours/2", "amqp://ours/")
    assert redis_is_named()


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("OUTRIDER_LEASE_SECONDS", "x", "OUTRIDER_LEASE_SECONDS = 'x'"),
        ("OUTRIDER_LEASE_SECONDS", "0", "OUTRIDER_LEASE_SECONDS = '0'"),
        ("OUTRIDER_LEASE_SECONDS", "14", "OUTRIDER_LEASE_SECONDS = 14 must be at least three times OUTRIDER_HEARTBEAT"),
        ("OUTRIDER_HEARTBEAT_SECONDS", "nan", "OUTRIDER_HEARTBEAT_SECONDS = 'nan'"),
        ("OUTRIDER_SWEEP_SECONDS", "inf", "OUTRIDER_SWEEP_SECONDS = 'inf'"),
        ("OUTRIDER_MAX_ATTEMPTS", "0", "OUTRIDER_MAX_ATTEMPTS = '0'"),
        ("OUTRIDER_NAMESPACE", "a b", "OUTRIDER_NAMESPACE = 'a b'"),
        ("OUTRIDER_GRACE_SECONDS", "inf", "OUTRIDER_GRACE_SECONDS = 'inf'"),
        ("OUTRIDER_LOG_LEVEL", "loud", "OUTRIDER_LOG_LEVEL = 'loud'"),
        ("OUTRIDER_REDIS_URL", "http://u:hush@h/", "OUTRIDER_REDIS_URL = http://u:***@h/"),
        ("OUTRIDER_REDIS_URL", "redis://:hush@h:port/", "OUTRIDER_REDIS_URL = redis://:***@h:port/: Port could not"),
        (
            "OUTRIDER_BROKER_URL",
            "amqps://u:hush@h/?ssl_ca_certs=/no/ca.pem",
            "OUTRIDER_BROKER_URL = amqps://u:***@h/?ssl_ca_certs=/no/ca.pem: ssl_ca_certs=/no/ca.pem is not a file",
        ),
        (
            "OUTRIDER_REDIS_URL",
            "rediss://h/?ssl_cert_reqs=CERT_NONE",
            "OUTRIDER_REDIS_URL = rediss://h/?ssl_cert_reqs=CERT_NONE: ssl_cert_reqs must be required, optional or",
        ),
        ("OUTRIDER_RETENTION_DAYS", "0", "OUTRIDER_RETENTION_DAYS = '0': "),
        ("OUTRIDER_RETENTION_DAYS", "-1", "OUTRIDER_RETENTION_DAYS = '-1': "),
        ("OUTRIDER_RETENTION_DAYS", "nan", "OUTRIDER_RETENTION_DAYS = 'nan': "),
        ("OUTRIDER_RETENTION_DAYS", "inf", "OUTRIDER_RETENTION_DAYS = 'inf': "),
        ("OUTRIDER_MAX_PENDING", "0", "OUTRIDER_MAX_PENDING = '0': "),
    ],
)
def test_a_bad_setting_is_named_in_one_line(monkeypatch, name, value, said):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError) as error:
        Settings.load()
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
    assert "hush" not in str(error.value)


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://h:1/0", "redis://h:1/0"),
        ("redis://u:hush@h:1/0", "redis://u:***@h:1/0"),
        ("redis://:hush@h", "redis://:***@h"),
        ("redis://:hu@sh@h", "redis://:***@h"),
        ("redis://h/0?username=u&password=hush&x=1", "redis://h/0?username=u&password=***&x=1"),
        ("rediss://h/0?ssl_password=hush", "rediss://h/0?ssl_password=***"),
    ],
)
def test_a_password_is_masked(url, masked):
    assert mask_url(url) == masked

"""One URL for redis-py and kombu: what kombu is given means what redis-py, or RabbitMQ's documents, read in it."""

import ssl

import pytest
from kombu import Connection

from outrider.shared.broker_url import for_kombu


@pytest.mark.parametrize(
    ("url", "kombu"),
    [
        ("redis://h", "redis://h:6379/0"),
        ("redis://h:1/2", "redis://h:1/2"),
        ("redis://h:1?db=3&socket_timeout=5", "redis://h:1/3"),
        ("redis://[::1]:1/0", "redis://[::1]:1/0"),
        ("redis://:p%40%2Fw@h:1/0", "redis://:p%40%2Fw@h:1/0"),
        ("redis://h:1/0?username=u&password=p%25w", "redis://u:p%25w@h:1/0"),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock"),
        ("unix://u:p@/run/redis.sock?db=3", "redis+socket://u:p@/run/redis.sock?virtual_host=3"),
        ("amqp://u:p@h/vhost", "amqp://u:p@h/vhost"),
    ],
)
def test_without_tls(url, kombu):
    broker = for_kombu(url)
    assert (broker.url, broker.ssl, broker.on_redis) == (kombu, None, not url.startswith("amqp"))
    Connection(broker.url).as_uri()
    assert "p%" not in repr(broker)


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {"ssl_cert_reqs": "required"}),
        ("?ssl_cert_reqs=none", {"ssl_cert_reqs": "none"}),
        (
            "?ssl_ca_certs=%2Fca.pem&ssl_check_hostname=false",
            {"ssl_cert_reqs": "required", "ssl_ca_certs": "/ca.pem", "ssl_check_hostname": False},
        ),
    ],
)
def test_redis_is_verified_unless_told_otherwise(query, options):
    assert for_kombu("rediss://h:1/0" + query).ssl == options


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("", {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "h"}),
        ("?ssl_ca_certs=/ca", {"ca_certs": "/ca", "cert_reqs": ssl.CERT_REQUIRED, "server_hostname": "h"}),
        ("?ssl_cert_reqs=none", {"cert_reqs": ssl.CERT_NONE}),
    ],
)
def test_amqp_is_verified_too(query, options):
    broker = for_kombu("amqps://u:p@h/v" + query)
    assert (broker.url, broker.ssl) == ("amqps://u:p@h/v", options)

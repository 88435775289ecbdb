"""The broker's URL in kombu's words: one URL serves redis-py and kombu, which read its options in different ways.

Left to itself, kombu takes a `rediss://` URL without options as leave not to verify the server, and py-amqp does not
look at the name in a certificate. Here both are verified unless the URL says `ssl_cert_reqs=none`.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from redis.connection import parse_url

REDIS: Final = frozenset({"redis", "rediss", "unix", "sentinel", "redis+socket"})
_REQUIRED: Final = {"required": ssl.CERT_REQUIRED, "optional": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


@dataclass(frozen=True, slots=True)
class BrokerUrl:
    """What Celery is given."""

    url: str = field(repr=False)  #: may hold a password
    ssl: dict[str, Any] | None  #: Celery's `broker_use_ssl`
    on_redis: bool


def for_kombu(url: str) -> BrokerUrl:
    """Translate a URL as redis-py, or RabbitMQ's documents, have it."""
    scheme = urlsplit(url).scheme
    match scheme:
        case "redis" | "rediss":
            return _redis(scheme, _as_redis_reads(url))
        case "unix":
            return _unix(_as_redis_reads(url))
        case "amqps":
            return _amqps(url)
        case _:
            return BrokerUrl(url, None, scheme in REDIS)


def _as_redis_reads(url: str) -> dict[str, Any]:
    facts: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return facts


def _redis(scheme: str, facts: dict[str, Any]) -> BrokerUrl:
    host = facts.get("host", "localhost")
    place = f"[{host}]" if ":" in host else host
    port, db = facts.get("port", 6379), facts.get("db", 0)
    options = {name: value for name, value in facts.items() if name.startswith("ssl_")}
    tls = {"ssl_cert_reqs": "required", **options} if scheme == "rediss" else None
    return BrokerUrl(f"{scheme}://{_who(facts)}{place}:{port}/{db}", tls, on_redis=True)


def _unix(facts: dict[str, Any]) -> BrokerUrl:
    query = f"?virtual_host={facts['db']}" if "db" in facts else ""
    return BrokerUrl(f"redis+socket://{_who(facts)}{quote(facts['path'])}{query}", None, on_redis=True)


def _who(facts: dict[str, Any]) -> str:
    if "password" not in facts and "username" not in facts:
        return ""
    return f"{quote(facts.get('username', ''), safe='')}:{quote(facts.get('password', ''), safe='')}@"


def _amqps(url: str) -> BrokerUrl:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    options: dict[str, Any] = {name.removeprefix("ssl_"): query.pop(name) for name in [*query] if name[:4] == "ssl_"}
    options["cert_reqs"] = _REQUIRED[options.get("cert_reqs", "required")]
    if options["cert_reqs"] != ssl.CERT_NONE:
        options["server_hostname"] = parts.hostname
    return BrokerUrl(urlunsplit(parts._replace(query=urlencode(query))), options, on_redis=False)

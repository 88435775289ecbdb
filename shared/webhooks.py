"""Webhooks: which URLs are taken, which addresses are called, and how a delivery is signed (Standard Webhooks)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from .errors import BadInput
from .ids import shorten

if TYPE_CHECKING:
    from urllib.parse import SplitResult

MAX_URL = 2048  #: characters
PREFIX = "whsec_"
LEAST_KEY = 16  #: bytes of the key that signs
NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Forbidden(Exception):
    """An address that no webhook may be sent to."""


def check_url(url: object) -> None:
    """Raise `BadInput` where this cannot be the URL of a webhook. Its host is not looked up."""
    shown = f"webhook {shorten(repr(url))}"
    if not isinstance(url, str) or len(url) > MAX_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise BadInput(f"webhook must be a URL of at most {MAX_URL:,} printable ASCII characters, without spaces")
    try:
        parts = urlsplit(url)
        port_of(parts)
        (parts.hostname or "").encode("idna")  # as it is looked up
    except UnicodeError:
        raise BadInput(f"{shown}: a part of its host's name is empty or longer than 63 characters") from None
    except ValueError as error:
        raise BadInput(f"{shown}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise BadInput("webhook must not have a user or a password in it: deliveries are signed")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.fragment:
        raise BadInput(f"{shown} must be a whole http:// or https:// URL, without a fragment")


def port_of(parts: SplitResult) -> int:
    """The port that a URL means."""
    return parts.port or (443 if parts.scheme == "https" else 80)


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host; blocks. Raise `OSError` where it has none."""
    return [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]


def check_addresses(addresses: list[str]) -> None:
    """Raise `Forbidden` if any address is not a public one: a name with one of them is not to be trusted at all."""
    for address in addresses:
        if not _is_public(address):
            raise Forbidden("its address is private, loopback, link-local or reserved")


def _is_public(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return _is_public(str(inner))
    return address.is_global and not (address.is_multicast or address.is_reserved)


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: base64 after `whsec_`, else its bytes. Raise `ValueError` for bad base64."""
    if secret.startswith(PREFIX):
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()


def signed(key: bytes, delivery_id: str, at: int, body: bytes) -> dict[str, str]:
    """The headers of a delivery that is sent at a moment (Unix seconds)."""
    digest = hmac.new(key, f"{delivery_id}.{at}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": delivery_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }

"""Whom a Flower that asks for no login answers. Against a real one, and in a browser: tests/e2e/test_flower.py."""

import pytest

from outrider.shared.flower_guard import is_foreign, is_loopback

OWN = "localhost:5555"


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.9.10", "::1", "[::1]", "localhost"])
def test_only_this_machine_reaches_these(address):
    assert is_loopback(address)


@pytest.mark.parametrize(
    "address", ["", "0", "::", "192.0.2.1", "10.0.0.1", "localhost.evil.example", "127.0.0.1.evil.example", "my-host"]
)
def test_others_may_reach_these(address):
    assert not is_loopback(address)


@pytest.mark.parametrize(
    ("method", "host", "headers"),
    [
        ("GET", OWN, {}),  # a program
        ("POST", OWN, {}),
        ("POST", "[::1]:5555", {}),
        ("POST", "127.0.0.1", {"Sec-Fetch-Site": "same-origin"}),
        ("GET", OWN, {"Sec-Fetch-Site": "none", "Sec-Fetch-Dest": "document"}),  # typed
        ("GET", OWN, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}),  # a link
        ("POST", OWN, {"Origin": f"http://{OWN}"}),
    ],
)
def test_its_own_pages_and_programs_are_answered(method, host, headers):
    assert not is_foreign(method, host, headers)


@pytest.mark.parametrize(
    ("method", "host", "headers"),
    [
        ("GET", "evil.example", {}),  # a name that a stranger lets point here
        ("GET", "localhost.evil.example:5555", {"Sec-Fetch-Site": "same-origin"}),
        ("GET", "", {}),
        ("GET", OWN, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "image"}),
        ("GET", OWN, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}),
        ("POST", OWN, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "document"}),  # a form
        ("POST", OWN, {"Sec-Fetch-Site": "same-site"}),  # a page of another port
        ("POST", OWN, {"Sec-Fetch-Site": "cross-site", "Origin": f"http://{OWN}"}),
        ("POST", OWN, {"Origin": "http://localhost:3000"}),
        ("POST", OWN, {"Origin": "null"}),
    ],
)
def test_pages_of_others_are_not(method, host, headers):
    assert is_foreign(method, host, headers)

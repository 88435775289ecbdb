"""The same walks on a real Redis: more of them, longer, and other ones each time."""

import pytest

from machine import on_server, walk


@pytest.mark.faults
@pytest.mark.timeout(900)
def test_no_interleaving_loses_or_doubles_anything(redis_url):
    walk(on_server(redis_url), examples=400, steps=60, shrink=True)

"""Random interleavings of workers, sweepers, cancellers and stray bells, against a model. On a fake Redis."""

import pytest

from machine import fake_redis, walk


@pytest.mark.timeout(300)
def test_no_interleaving_loses_or_doubles_anything():
    walk(fake_redis, examples=30, steps=40, same=True)  # a red run is red again

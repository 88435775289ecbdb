import socket

import pytest

from outrider.orchestrator.ports import port_near

pytestmark = pytest.mark.sockets
HERE = "127.0.0.1"


@pytest.fixture
def wanted(monkeypatch, tmp_path):
    """Give a port that nobody has, and a folder of its own for the locks."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with socket.create_server((HERE, 0)) as listener:
        return listener.getsockname()[1]


def test_the_port_that_is_wanted_is_given_to_one_at_a_time(wanted):
    with port_near(HERE, wanted) as first, port_near(HERE, wanted) as second:
        assert first == wanted
        assert second not in {0, wanted}
    with port_near(HERE, wanted) as after:
        assert after == wanted


def test_another_one_is_given_where_someone_listens(wanted):
    with socket.create_server((HERE, wanted)), port_near(HERE, wanted) as port:
        assert port not in {0, wanted}

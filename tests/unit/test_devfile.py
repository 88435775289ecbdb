"""`.outrider/dev.json` is believed while the `dev` that wrote it lives, and no longer."""

import pytest

from outrider.shared.devfile import Dev, DevFolder
from outrider.shared.errors import BadInput
from outrider.shared.settings import Settings

DEV = Dev("redis://127.0.0.1:7/0", "http://127.0.0.1:5555", "mine", 42)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return DevFolder()


def test_it_is_found_while_it_lives(folder):
    assert folder.live() is None
    with folder.held():
        assert folder.live() is None  # it starts
        folder.announce(DEV)
        assert folder.live() == DEV
    assert folder.live() is None


def test_what_a_killed_one_left_is_not_believed(folder, tmp_path):
    with folder.held():
        folder.announce(DEV)
        left = (tmp_path / ".outrider" / "dev.json").read_bytes()
    (tmp_path / ".outrider" / "dev.json").write_bytes(left)
    assert folder.live() is None
    with folder.held():
        assert folder.live() is None


def test_a_second_one_is_told_who_is_first(folder):
    import os

    with folder.held(), pytest.raises(BadInput, match=f"process {os.getpid()}"), DevFolder().held():
        pytest.fail("two at once")
    with folder.held():
        pass


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"redis_url": 1}', '"x"'])
def test_a_file_that_is_no_good_is_none(folder, tmp_path, text):
    with folder.held():
        (tmp_path / ".outrider" / "dev.json").write_text(text)
        assert folder.live() is None


def test_a_folder_that_cannot_be_made_is_told(folder, tmp_path):
    (tmp_path / ".outrider").write_text("a file")
    with pytest.raises(BadInput, match="cannot be written"), folder.held():
        pytest.fail("held")


def test_settings_take_its_redis_and_its_namespace(folder, monkeypatch):
    with folder.held():
        folder.announce(DEV)
        assert (Settings.load().redis_url, Settings.load().namespace) == (DEV.redis_url, "mine")
        assert Settings.load(namespace="other").namespace == "other"
        monkeypatch.setenv("REDIS_URL", "redis://elsewhere/0")
        assert (Settings.load().redis_url, Settings.load().namespace) == ("redis://elsewhere/0", "outrider")
        monkeypatch.setenv("OUTRIDER_REDIS_URL", "redis://ours/0")
        assert Settings.load().redis_url == "redis://ours/0"
    monkeypatch.delenv("OUTRIDER_REDIS_URL")
    monkeypatch.delenv("REDIS_URL")
    assert Settings.load().redis_url == "redis://localhost:6379/0"

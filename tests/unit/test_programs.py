"""The lines of several programs in one terminal or pipe."""

import io
import signal
from queue import SimpleQueue

import pytest

from outrider.orchestrator.cli.console import visible
from outrider.orchestrator.programs import COLOURS, WIDTH, Printer, StopRequested


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Closed(io.StringIO):
    def write(self, _):
        raise BrokenPipeError


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def printed(out):
    Printer(out, visible, SimpleQueue()).print("dev", "up \x1b[2J")
    return out.getvalue()


def test_in_a_pipe_lines_are_as_they_came():
    assert printed(io.StringIO()) == "dev    | up \x1b[2J\n"


def test_on_a_terminal_names_have_colours_and_controls_are_shown():
    assert printed(Terminal()) == "\x1b[32mdev    |\x1b[0m up \N{REPLACEMENT CHARACTER}[2J\n"


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colours_are_left_out_where_they_are_not_wanted(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert printed(Terminal()).startswith("dev    | ")


def test_every_name_fits():
    assert max(map(len, COLOURS)) == WIDTH


def test_that_nobody_reads_is_told_once():
    happened = SimpleQueue()
    lines = Printer(Closed(), visible, happened)
    for _ in range(3):
        lines.print("dev", "up")
    assert happened.get_nowait() == StopRequested(signal.SIGPIPE)
    assert happened.empty()

"""What `langgraph.json` names: the agents, with their defaults.

Reading the file imports no agent: importing costs seconds and needs the agents' own packages, which a machine that
only submits need not have.
"""

from __future__ import annotations

import io
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from . import grader_config
from .errors import BadInput, ConfigError
from .grader_config import GraderEntry, Grading, read_text, reason
from .ids import NAME_RULE, is_name, shorten
from .limits import MOST, Limits
from .text import clean

SECTION_KEYS = frozenset({"agents", "grader"})
AGENT_KEYS = (
    frozenset({"queue", "input", "limits", "description", "concurrency", "max_attempts", "retry_on"})
    | grader_config.AGENT_KEYS
)


@dataclass(frozen=True, slots=True)
class AgentEntry:
    """One agent of `langgraph.json`, with its defaults."""

    name: str
    path: str  #: `path/or/module:name`, relative to the file
    queue: str | None = None  #: for all its runs
    input: str | None = None  #: state key that takes the text, for a graph without `messages`
    limits: Limits = field(default_factory=Limits)
    description: str | None = None
    concurrency: int | None = None  #: how many of its runs may be at work at once, on all workers together
    grading: Grading = field(default_factory=Grading)
    max_attempts: int | None = None  #: of each run, from one new checkpoint to the next; `None`: as the settings say
    retry_on: tuple[str, ...] = ()  #: types of errors that are worth another attempt, bare or with their module


@dataclass(frozen=True, slots=True)
class Config:
    """What outrider reads of `langgraph.json`. Other tools' keys are ignored."""

    file: Path
    agents: dict[str, AgentEntry]
    env: dict[str, str]  #: for the process; what it has set already wins
    grader: GraderEntry = field(default_factory=GraderEntry)

    @property
    def folder(self) -> Path:
        """The file's folder: goes on `sys.path`, and relative paths start there."""
        return self.file.parent

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read and check the file; `ConfigError` names the file, the key and the remedy."""
        file = Path(path).absolute()
        whole = _object(_parse(file), f"{path}")
        graphs = _object(whole.get("graphs", {}), f'{path}: "graphs"')
        if not graphs:
            raise ConfigError(f'{path}: names no agent: add {{"graphs": {{"name": "./file.py:agent"}}}}')
        section = _object(whole.get("outrider", {}), f'{path}: "outrider"')
        _known(section, SECTION_KEYS, f'{path}: "outrider"')
        defaults = _object(section.get("agents", {}), f'{path}: "outrider.agents"')
        _known(defaults, frozenset(graphs), f'{path}: "outrider.agents"', what="agent")
        agents = {
            name: _entry(name, graph, defaults.get(name, {}), f"{path}", file.parent) for name, graph in graphs.items()
        }
        where = f'{path}: "outrider.grader"'
        grader = grader_config.grader(_object(section.get("grader", {}), where), where)
        return cls(file, agents, _env(whole.get("env", {}), file), grader)

    def queues(self) -> list[str]:
        """The queues that entries name of their own, each once."""
        return sorted({entry.queue for entry in self.agents.values() if entry.queue})

    def slots(self, agent: str) -> int:
        """How many runs of an agent may be at work at once; 0 is no bound."""
        entry = self.agents.get(agent)
        return entry.concurrency or 0 if entry else 0

    def apply_env(self) -> None:
        """Put `env` into the process's environment, where a name is not set yet."""
        for name, value in self.env.items():
            os.environ.setdefault(name, value)


def _parse(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no {file.name} in {file.parent}: make one, or name one with OUTRIDER_CONFIG") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}") from None


def _entry(name: str, graph: Any, defaults: Any, path: str, folder: Path) -> AgentEntry:
    where = f'{path}: "graphs.{shorten(name)}"'
    if not is_name(name):
        raise ConfigError(f"{where}: the name {NAME_RULE}")
    target = graph.get("path") if isinstance(graph, dict) else graph
    if not isinstance(target, str) or not all(target.rpartition(":")[::2]):
        shown = _shown(target)
        raise ConfigError(f'{where} = {shown}: must be "path/or/module:name", or an object with such a "path"')
    where = f'{path}: "outrider.agents.{name}"'
    section = _object(defaults, where)
    _known(section, AGENT_KEYS, where)
    for key in ("queue", "input", "description"):
        if key in section and not (isinstance(section[key], str) and section[key]):
            raise ConfigError(f'{where}: "{key}" = {_shown(section[key])}: must be text that is not empty')
    queue = section.get("queue")
    if queue is not None and not is_name(queue):
        raise ConfigError(f'{where}: "queue" = {_shown(queue)}: {NAME_RULE}')
    limits = _limits(section.get("limits", {}), f'{where}: "limits"')
    return AgentEntry(
        name,
        target,
        queue,
        section.get("input"),
        limits,
        section.get("description"),
        _count(section.get("concurrency"), f'{where}: "concurrency"'),
        grader_config.grading(section, where, folder),
        _count(section.get("max_attempts"), f'{where}: "max_attempts"'),
        _retry_on(section.get("retry_on", []), where),
    )


def _count(value: Any, where: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST):
        raise ConfigError(f"{where} = {_shown(value)}: must be a whole number above zero, at most {MOST:,}")
    return value


def _retry_on(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and _is_type_name(name) for name in value):
        example = '["httpx.HTTPError", "Flaky"]'
        raise ConfigError(
            f'{where}: "retry_on" = {_shown(value)}: must be a list of types of errors, such as {example}'
        )
    return tuple(value)


def _is_type_name(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _limits(value: Any, where: str) -> Limits:
    try:
        return Limits.check(_object(value, where), where)
    except BadInput as error:
        raise ConfigError(str(error)) from None


def _object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} = {_shown(value)}: must be an object")
    return value


def _known(section: dict[str, Any], known: frozenset[str], where: str, what: str = "key") -> None:
    for key in section:
        if key not in known:
            raise ConfigError(f"{where}: unknown {what} {_shown(key)} (known: {', '.join(sorted(known))})")


def _env(value: Any, file: Path) -> dict[str, str]:
    if isinstance(value, str):
        from dotenv import dotenv_values  # noqa: PLC0415 only files that use it pay for it

        try:
            named = dotenv_values(stream=io.StringIO(read_text(file.parent / value)))
        except (OSError, ValueError) as error:
            raise ConfigError(f'{file}: "env" = {_shown(value)}: cannot be read: {reason(error)}') from None
        env = {name: text for name, text in named.items() if text is not None}
    else:
        given = _object(value, f'{file}: "env"')
        for name, text in given.items():
            if isinstance(text, bool) or not isinstance(text, str | int | float):
                raise ConfigError(f'{file}: "env.{shorten(name)}" = {_shown(text)}: must be text or a number')
        env = {name: str(text) for name, text in given.items()}
    for name, text in env.items():
        if not name or "=" in name or not (_is_storable(name) and _is_storable(text)):
            raise ConfigError(
                f'{file}: "env" has {_shown(name)}, which no environment takes: a name is not empty and has no "=", '
                "and neither it nor its value has a NUL or half a character"
            )
    return env


def _shown(value: Any) -> str:
    return shorten(repr(value))


def _is_storable(text: str) -> bool:
    return clean(text) == text

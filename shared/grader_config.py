"""Grading in `langgraph.json`: an agent's rubric and checks, and the graders' model and tools."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, ValidationError

from .errors import BadInput, ConfigError
from .ids import shorten
from .limits import PositiveSeconds  # noqa: TC001 pydantic reads it
from .record_base import Record
from .rubric import Rubric, Said

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

AGENT_KEYS = frozenset({"rubric", "checks", "grades_itself"})
FILES = "files"  #: the name of the tools that read the files of the task's tree
OURS = frozenset({"list_files", "read_file", "Verdict"})  #: tools that graders have of their own
_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"  #: what providers take as a tool's name


class Command(Record):
    """A command that a grader may run, as it stands here: the model gives it no arguments."""

    name: Annotated[Said, Field(pattern=_NAME)]
    command: Annotated[tuple[Said, ...], Field(min_length=1)]
    description: Said = "Run it and return its exit code and its output."
    folder: Said = "."  #: relative to the file's
    timeout_seconds: PositiveSeconds = 120


_MUST = {
    "name": "must be of letters, digits and `_`, at most 64, no digit first",
    "command": 'must be a list of words, as in ["pytest", "-q"]',
    "description": "must be text that is not empty",
    "folder": "must be text that is not empty",
    "timeout_seconds": "must be a number above zero",
}


@dataclass(frozen=True, slots=True)
class Grading:
    """How the work of an agent is graded unless its submit says otherwise."""

    rubric: Rubric | None = None
    checks: str | None = None  #: `path.py:name` of a callable that decides in code
    grades_itself: bool = False  #: the rubric goes into the agent's state, and no grader follows


@dataclass(frozen=True, slots=True)
class GraderEntry:
    """What graders work with."""

    model: str | None = None
    tools: tuple[str | Command, ...] = ()  #: `files`, `path.py:name` of LangChain's tools, or a command

    def chosen(self, names: tuple[str, ...] | None) -> tuple[str | Command, ...]:
        """Those that a rubric names, or all; `BadInput` names one that is not there."""
        if names is None:
            return self.tools
        known = {_name(tool): tool for tool in self.tools}
        for name in names:
            if name not in known:
                raise BadInput(
                    f"rubric: tools: there is no {name!r} (graders have {', '.join(known) or 'none'}: "
                    '"outrider.grader.tools" in langgraph.json)'
                )
        return tuple(known[name] for name in names)


def _name(tool: str | Command) -> str:
    return tool if isinstance(tool, str) else tool.name


def is_file(model: str) -> bool:
    """Whether a model's name is `path.py:name`, and not one for LangChain."""
    return model.rpartition(":")[0].endswith(".py")


def grading(section: Mapping[str, Any], where: str, folder: Path) -> Grading:
    """Read an agent's part; `ConfigError` names the key and the remedy."""
    itself, checks = section.get("grades_itself", False), section.get("checks")
    if not isinstance(itself, bool):
        raise ConfigError(f'{where}: "grades_itself" = {shorten(repr(itself))}: must be true or false')
    if checks is not None and not _is_target(checks):
        raise ConfigError(f'{where}: "checks" = {shorten(repr(checks))}: must be "path.py:name" or "module:name"')
    if itself and checks:
        raise ConfigError(f'{where}: "checks" are not made where the agent grades itself: leave one of them out')
    try:
        rubric = Rubric.check(_read(section.get("rubric"), folder), f'{where}: "rubric"')
    except BadInput as error:
        raise ConfigError(str(error)) from None
    except (OSError, ValueError) as error:
        shown = shorten(repr(section["rubric"]))
        raise ConfigError(f'{where}: "rubric" = {shown}: cannot be read: {reason(error)}') from None
    return Grading(rubric, checks, itself)


def grader(section: Mapping[str, Any], where: str) -> GraderEntry:
    """Read the graders' part; `ConfigError` names the key and the remedy."""
    for key in section:
        if key not in {"model", "tools"}:
            raise ConfigError(f"{where}: unknown key {shorten(repr(key))} (known: model, tools)")
    model, tools = section.get("model"), section.get("tools", [])
    if model is not None and not (isinstance(model, str) and model.strip()):
        raise ConfigError(f'{where}: "model" = {shorten(repr(model))}: must be text that is not empty')
    if not isinstance(tools, list):
        raise ConfigError(f'{where}: "tools" = {shorten(repr(tools))}: must be a list')
    entry = GraderEntry(model, tuple(_tool(tool, f'{where}: "tools"') for tool in tools))
    for tool in entry.tools:
        if isinstance(tool, Command) and tool.name in OURS:
            raise ConfigError(f'{where}: "tools": {tool.name!r} is a name of ours: give the command another')
    for name, count in Counter(map(_name, entry.tools)).items():
        if count > 1:
            raise ConfigError(f'{where}: "tools": {shorten(repr(name))} stands there {count} times')
    return entry


def _tool(value: Any, where: str) -> str | Command:
    if value == FILES or _is_target(value):
        return str(value)
    if isinstance(value, dict):
        try:
            return Command.model_validate(value)
        except ValidationError as error:
            raise ConfigError(f"{where}: {_fault(value, str(error.errors()[0]['loc'][0]))}") from None
    raise ConfigError(
        f'{where}: {shorten(repr(value))}: must be "{FILES}", "path.py:name", or an object with name and command'
    )


def _fault(value: Mapping[str, Any], key: str) -> str:
    """What is wrong with this key of a command."""
    if key not in _MUST:
        return f"unknown key {shorten(repr(key))} of a command (known: {', '.join(_MUST)})"
    shown = shorten(repr(value[key])) if key in value else "nothing"
    return f'"{key}" = {shown} of {shorten(repr(value.get("name", value)))}: {_MUST[key]}'


def _is_target(value: Any) -> bool:
    return isinstance(value, str) and all(value.rpartition(":")[::2])


def _read(rubric: Any, folder: Path) -> Any:
    """A rubric as it was given, or the text of the file that `@file` names."""
    if isinstance(rubric, str) and rubric.startswith("@"):
        return read_text(folder / rubric[1:])
    return rubric


def read_text(file: Path) -> str:
    """The text of a file that `langgraph.json` names; `OSError`, or `ValueError` where it holds no UTF-8."""
    if file.exists() and not file.is_file():  # a pipe would block for ever
        raise OSError(0, "is no regular file")
    return file.read_text(encoding="utf-8")


def reason(error: OSError | ValueError) -> str:
    """Why a file could not be read."""
    return (isinstance(error, OSError) and error.strerror) or str(error)

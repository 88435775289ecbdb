"""What a parent may start: the subagents of `BackgroundSubagents`, with their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ..shared.config import Config
from ..shared.errors import BadInput, OutriderError
from ..shared.settings import Settings
from ..shared.statuses import Strategy
from ..shared.webhooks import check_url
from .submit_request import FORK, ISOLATED


class SubagentSettings(TypedDict, total=False):
    """How a parent uses a subagent. A description alone may stand in its place."""

    description: str  #: for the parent's model; where it is left out, that of `langgraph.json`
    mode: Literal["isolated", "fork"]  #: `fork`: it begins with the parent's conversation
    update_strategy: Literal["interrupt", "enqueue"]  #: what a message does about its active run
    notify_parent: bool  #: `False`: the parent is not told of its end, and does not stay open for it
    webhook: str  #: URL that is told of its end


@dataclass(frozen=True, slots=True)
class Subagent:
    """A subagent that a parent may start."""

    name: str
    description: str
    mode: Literal["isolated", "fork"] = "isolated"
    update_strategy: Literal["interrupt", "enqueue"] = "interrupt"
    notify_parent: bool = True
    webhook: str | None = None

    @property
    def line(self) -> str:
        """What the parent's model reads of it."""
        remarks = [
            "(begins with your conversation as it is then)" if self.mode == FORK else "",
            "(does not report: read its result with check_async_task)" if not self.notify_parent else "",
        ]
        return " ".join((f"- `{self.name}`: {self.description}", *filter(None, remarks)))


Given = Mapping[str, str | SubagentSettings] | Sequence[str] | None


def subagents(given: Given) -> dict[str, Subagent]:
    """The subagents by name, as a caller gave them; of all agents in `langgraph.json` where nothing is given.

    Raises `OutriderError` for a name that is not there, or a setting that is not known.
    """
    if given is not None and not given:
        raise OutriderError("BackgroundSubagents: no subagent is named (leave them out for all of langgraph.json)")
    if isinstance(given, str):  # a sequence of letters otherwise
        raise OutriderError(f"BackgroundSubagents: {given!r} is one name: give a list of names, [{given!r}]")
    if isinstance(given, Mapping) and all(_describes(settings) for settings in given.values()):
        return {name: _subagent(name, settings, "") for name, settings in given.items()}
    config = Config.load(Settings.load().config)
    named: Mapping[str, str | SubagentSettings] = (
        given if isinstance(given, Mapping) else {name: {} for name in (config.agents if given is None else given)}
    )
    unknown = [name for name in named if name not in config.agents]
    if unknown:
        raise OutriderError(
            f"BackgroundSubagents: {config.file.name} names no agent {', '.join(unknown)} (it has "
            f"{', '.join(config.agents)})"
        )
    return {name: _subagent(name, how, config.agents[name].description or "a subagent") for name, how in named.items()}


def _describes(settings: Any) -> bool:
    return isinstance(settings, str) or (isinstance(settings, Mapping) and "description" in settings)


def _subagent(name: str, given: Any, description: str) -> Subagent:
    settings = {"description": given} if isinstance(given, str) else given
    known = SubagentSettings.__annotations__
    for key in settings:
        if key not in known:
            raise OutriderError(f"BackgroundSubagents: {name}: unknown setting {key!r} (known: {', '.join(known)})")
    made = Subagent(name, **{"description": description, **settings})
    if not isinstance(made.notify_parent, bool):
        raise OutriderError(f"BackgroundSubagents: {name}: notify_parent {made.notify_parent!r} must be True or False")
    if made.webhook is not None:
        try:
            check_url(made.webhook)
        except BadInput as error:
            raise OutriderError(f"BackgroundSubagents: {name}: {error}") from None
    if made.mode not in {ISOLATED, FORK}:
        raise OutriderError(f"BackgroundSubagents: {name}: mode {made.mode!r} must be {ISOLATED!r} or {FORK!r}")
    if made.update_strategy not in set(Strategy):
        raise OutriderError(
            f"BackgroundSubagents: {name}: update_strategy {made.update_strategy!r} must be of {', '.join(Strategy)}"
        )
    return made

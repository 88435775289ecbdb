"""The agents of `langgraph.json` as graphs, in every form in which it may name them; each is loaded once."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph.graph import StateGraph
from langgraph.pregel import Pregel

from ..shared.catalogue import Published
from ..shared.errors import BrokenAgent, UnknownAgent
from ..shared.text import one_line
from .loading import load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from langchain_core.runnables import RunnableConfig

    from ..shared.config import AgentEntry

MAX_REASON = 500  #: characters of why an agent is broken


@dataclass(frozen=True, slots=True)
class Shape:
    """What a graph takes."""

    input_keys: tuple[str, ...] | None
    has_messages: bool

    @classmethod
    def of(cls, graph: Pregel[Any, Any, Any, Any]) -> Shape:
        """Read the shape of a graph; without a state schema (an `@entrypoint`) its keys are unknown."""
        builder = getattr(graph, "builder", None)
        if builder is None:
            return cls(None, has_messages=False)
        keys = tuple(map(str, builder.schemas[builder.input_schema]))
        return cls(keys, has_messages="messages" in keys)


class Agents:
    """The agents that a worker process can run."""

    def __init__(self, entries: Mapping[str, AgentEntry], folder: Path) -> None:
        self._entries, self._folder = entries, folder
        self._made: dict[str, Pregel[Any, Any, Any, Any] | Factory | BrokenAgent] = {}

    def entry(self, name: str) -> AgentEntry:
        """What the file says of an agent; `UnknownAgent` where it does not name it."""
        if name not in self._entries:
            raise UnknownAgent(name, sorted(self._entries))
        return self._entries[name]

    def warm(self) -> list[Published]:
        """Load every agent, and return what is to be published of each; a broken one does not hinder the others."""
        return [self._publish(entry) for entry in self._entries.values()]

    def _publish(self, entry: AgentEntry) -> Published:
        known = Published(name=entry.name, description=entry.description, input=entry.input, queue=entry.queue)
        try:
            made = self._make(entry)
        except BrokenAgent as error:
            return known.model_copy(update={"broken": error.reason})
        if isinstance(made, Factory):
            return known  # what it makes is known when it is called, which is once per run
        shape = Shape.of(made)
        return known.model_copy(update={"input_keys": shape.input_keys, "has_messages": shape.has_messages})

    @asynccontextmanager
    async def open(self, name: str, config: RunnableConfig) -> AsyncIterator[Pregel[Any, Any, Any, Any]]:
        """The graph of an agent for one run. A factory is called with `config`; what it opened is closed at the end.

        Raises `UnknownAgent` or `BrokenAgent`; what a factory itself raises comes through.
        """
        made = self._make(self.entry(name))
        if isinstance(made, Factory):
            async with made.open(name, config) as graph:
                yield graph
        else:
            yield made

    def _make(self, entry: AgentEntry) -> Pregel[Any, Any, Any, Any] | Factory:
        made = self._made.get(entry.name)
        if made is None:
            made = self._made[entry.name] = self._load(entry)
        if isinstance(made, BrokenAgent):
            raise BrokenAgent(made.agent, made.reason)
        return made

    def _load(self, entry: AgentEntry) -> Pregel[Any, Any, Any, Any] | Factory | BrokenAgent:
        try:
            target = load(entry.path, self._folder)
            graph = as_graph(target)
            if graph is not None:
                Shape.of(graph)  # one whose state cannot be read is broken
                return graph
            return Factory.of(target)
        except (Exception, SystemExit) as error:  # noqa: BLE001 importing runs a user's code
            what = f"{type(error).__name__}{_place(error, self._folder)}"
            return BrokenAgent(entry.name, one_line(f"{entry.path}: {what}: {error}", MAX_REASON))


def _place(error: BaseException, folder: Path) -> str:
    """The last line of the folder's own code that led to an error: ` at agents.py:12`; empty where there is none."""
    root = folder.resolve()
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(root) and "site-packages" not in path.parts:  # a .venv may lie in it
            return f" at {path.relative_to(root)}:{frame.lineno}"
    return ""


def as_graph(value: Any) -> Pregel[Any, Any, Any, Any] | None:
    """The compiled graph that `value` is or can be compiled to; `None` where it is no graph."""
    if isinstance(value, Pregel):
        return value
    if isinstance(value, StateGraph):
        return value.compile()
    return None


@dataclass(frozen=True, slots=True)
class Factory:
    """A callable that makes a graph for each run: plain, async, or an async context manager."""

    call: Callable[..., Any]
    config: inspect.Parameter | None  #: the parameter that takes the `RunnableConfig`

    @classmethod
    def of(cls, target: Any) -> Factory:
        """Check that `target` is one; `TypeError` says why it is not."""
        kind = type(target).__name__
        if inspect.isclass(target) or not callable(target):
            raise TypeError(
                f"a {'class' if inspect.isclass(target) else kind} is no agent: name a compiled graph, a StateGraph, "
                "or a factory of one"
            )
        wanted = inspect.signature(target, eval_str=False).parameters.values()
        required = [p for p in wanted if p.default is p.empty and p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}]
        if len(required) > 1:
            names = ", ".join(p.name for p in required)
            raise TypeError(f"the factory wants {names}: it must take the RunnableConfig or nothing")
        return cls(target, required[0] if required else next((p for p in wanted if _is_config(p)), None))

    @asynccontextmanager
    async def open(self, name: str, config: RunnableConfig) -> AsyncIterator[Pregel[Any, Any, Any, Any]]:
        """Make the graph for one run."""
        made = await self._call(config)
        if inspect.isawaitable(made):
            made = await made
        if isinstance(made, AbstractAsyncContextManager):
            async with made as opened:
                yield _graph_of(name, opened)
        else:
            yield _graph_of(name, made)

    async def _call(self, config: RunnableConfig) -> Any:
        args: tuple[Any, ...] = ()
        kwargs: dict[str, Any] = {}
        if self.config is not None and self.config.kind is self.config.POSITIONAL_ONLY:
            args = (config,)
        elif self.config is not None:
            kwargs = {self.config.name: config}
        if inspect.iscoroutinefunction(self.call) or inspect.isasyncgenfunction(inspect.unwrap(self.call)):
            return self.call(*args, **kwargs)
        # A plain one may read files or build for a while: not on the loop that all runs share.
        return await asyncio.to_thread(self.call, *args, **kwargs)


def _is_config(parameter: inspect.Parameter) -> bool:
    return parameter.name == "config" or "RunnableConfig" in str(parameter.annotation)


def _graph_of(name: str, value: Any) -> Pregel[Any, Any, Any, Any]:
    graph = as_graph(value)
    if graph is None:
        raise BrokenAgent(name, f"its factory gave a {type(value).__name__}, not a graph")
    return graph

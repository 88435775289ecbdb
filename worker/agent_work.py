"""What a run of an agent does: its graph is built and streamed, and its last state gives the outcome."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, cast

import structlog
from langgraph.errors import is_invalid_resume
from langgraph.graph import END
from redis.exceptions import RedisError

from ..shared.checkpoints import RedisSaver
from ..shared.errors import ClaimLost
from ..shared.input_layout import ANSWERS
from .control import Stop
from .graph_view import View
from .inner_conversations import close_kept
from .meter import Meter
from .outcomes import Failed, Finished, Paused, TimedOut, type_of
from .upstream import attached

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel
    from langgraph.types import StateSnapshot

    from ..shared.limits import Usage
    from ..shared.transitions import Claimed
    from .control import Control
    from .deps import Deps
    from .emitter import Emitter
    from .outcomes import Outcome

log = structlog.get_logger("outrider.worker")


class AgentWork:
    """One run of an agent."""

    def __init__(self, deps: Deps, claimed: Claimed, control: Control, emitter: Emitter) -> None:
        self._deps, self._claimed, self._control, self._emitter = deps, claimed, control, emitter
        self._meter = Meter(claimed.task, control.stop, emitter.emit)
        self._view = View(emitter.emit)
        self.task = claimed.task

    @property
    def usage(self) -> Usage:
        """What the models of the whole task consumed, this run included."""
        return self._meter.usage

    async def prepare(self) -> None:
        """There is nothing to read beforehand."""

    async def run(self) -> None:
        """Build the graph, with our saver on it, and stream it to its end."""
        run, task = self._claimed.run, self._claimed.task
        config: RunnableConfig = {
            "configurable": {**self._claimed.configurable, "thread_id": task.task_id},
            # LangGraph applies the same run's input once, and goes on from its checkpoint.
            "metadata": {"run_id": run.run_id},
            "callbacks": [self._meter],
        }
        async with self._deps.agents.open(task.agent, config) as agent:
            saver = RedisSaver(self._deps.store.redis, self._deps.store.keys, self._claimed.claim)
            graph = attached(agent, saver, self._deps.files)
            so_far = await self._conversation(graph, config, saver)
            given = self._view.input_for(graph, self._claimed, self._deps.agents.entry(task.agent), so_far)
            stream = graph.astream(
                given,
                config,
                context=self._claimed.context,
                stream_mode=self._view.modes,
                durability="sync",
                control=self._control.drain,
            )
            try:
                async with aclosing(cast("AsyncGenerator[Any]", stream)) as pieces:
                    async for mode, payload in pieces:
                        self._emitter.heard()
                        self._view.take(mode, payload)
            except Exception as error:
                if not is_invalid_resume(error):
                    raise
                self._view.ask_again((await graph.aget_state(config)).interrupts, error)

    async def _conversation(
        self, graph: Pregel[Any, Any, Any, Any], config: RunnableConfig, saver: RedisSaver
    ) -> Sequence[Any]:
        """The saved conversation that a run goes on with; empty for a first run and for one with answers."""
        if ANSWERS in self._claimed.input or self._claimed.task.saved_run in {None, self._claimed.run.run_id}:
            return ()
        await close_kept(saver, self._claimed.task.task_id, self._claimed.run.run_id)
        try:
            state = await self._saved(graph, config)
        except (ClaimLost, RedisError):
            raise
        except Exception as error:  # noqa: BLE001 the agent's own code merges what a step did
            # That failed the earlier run too, and would fail every later one: let LangGraph drop it.
            log.warning("run.step_dropped", error=type_of(error))
            head = await saver.aget_tuple(config)  # read by its id, a state is as it was before that step
            state = await graph.aget_state(head.config if head else config)
        return state.values.get("messages", ()) if isinstance(state.values, dict) else ()

    async def _saved(self, graph: Pregel[Any, Any, Any, Any], config: RunnableConfig) -> StateSnapshot:
        """The saved state, with what an earlier run did in a step that it did not end."""
        state = await graph.aget_state(config)
        if state.tasks and (state.metadata or {}).get("run_id") != self._claimed.run.run_id:
            # New input would drop what that step had done: save it first, under no run's id, so that LangGraph still
            # applies this run's input.
            await graph.aupdate_state({"configurable": config["configurable"]}, None, as_node=END)
            state = await graph.aget_state(config)
        return state

    def finished(self) -> Outcome:
        """The agent came to its end, or asks a person."""
        asks = self._view.interrupts
        return self._result() if asks is None else Paused(asks, self._view.refused)

    def failed(self, error: BaseException) -> Failed:
        """The agent ended in an error."""
        return Failed.by(error)

    def stopped(self, reason: Stop) -> Outcome:
        """The outcome where a limit ended the run."""
        limits = self._claimed.task.limits
        match reason:
            case Stop.TIMED_OUT:
                return TimedOut(limits.timeout_seconds or 0, self._so_far())
            case Stop.LIMIT_IDLE:
                told = f"nothing came from it for limits.idle_seconds = {limits.idle_seconds:g}"
            case _:
                told = self._meter.why(reason)
        return Failed(reason.value, told, self._so_far())

    def _result(self) -> Outcome:
        try:
            return Finished(self._view.result(self._deps.settings.max_result_bytes))
        except Exception as error:  # noqa: BLE001 a state may hold anything; its task settles all the same
            return Failed.by(error)

    def _so_far(self) -> str | None:
        outcome = self._result() if self._view.began else None
        return outcome.result if isinstance(outcome, Finished) else None

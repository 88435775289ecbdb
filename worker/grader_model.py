"""A grader that is a model: built when it is first needed, and asked in checkpoint threads of the grade run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import HumanMessage

from ..shared.checkpoints import RedisSaver
from ..shared.grader_config import is_file
from ..shared.grades import Verdict
from ..shared.text import render_json
from .grader_prompt import SYSTEM, request
from .grader_tools import tools_for
from .grader_transcript import cut, transcript
from .grader_verdict import NoVerdict, asked
from .loading import load
from .upstream import attached

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from langchain_core.callbacks import BaseCallbackHandler
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel
    from langgraph.runtime import RunControl

    from ..shared.context import Claim
    from .deps import Deps
    from .grader_subject import Subject

NO_MODEL = 'graders have no model: "outrider": {"grader": {"model": …}} in langgraph.json, or Rubric(model=…)'
STEPS = 10_000  #: of one answer, at most: limits of turns, tokens and time end a grading before


@dataclass(frozen=True, slots=True)
class ModelGrader:
    """Asks a model about the work of one grade run."""

    deps: Deps
    claim: Claim
    subject: Subject
    state: Mapping[str, Any]
    callbacks: list[BaseCallbackHandler]
    control: RunControl

    async def verdicts(self) -> AsyncIterator[Verdict]:
        """Its answers; the last one counts. Whatever building the model or asking it first raises comes through."""
        graph = await asyncio.to_thread(self._build)

        async def ask(reason: str | None) -> Verdict:
            return await self._ask(graph, self.threads[reason is not None], reason)

        async for verdict in asked(ask, self.subject.wanted):
            yield verdict

    @property
    def threads(self) -> tuple[str, str]:
        """Checkpoint threads of the first and of the second try."""
        run_id = self.claim.run_id
        return run_id, f"{run_id}-again"

    async def forget(self) -> None:
        """Delete the conversations: the record has the grade."""
        for thread_id in self.threads:
            await self._saver().adelete_thread(thread_id)

    def _saver(self) -> RedisSaver:
        return RedisSaver(self.deps.store.redis, self.deps.store.keys, self.claim)

    def _build(self) -> Pregel[Any, Any, Any, Any]:
        from langchain.agents import create_agent  # noqa: PLC0415 only graders pay for it
        from langchain.agents.structured_output import ToolStrategy  # noqa: PLC0415

        from .grader_reprompt import AskingAgain  # noqa: PLC0415

        config, rubric = self.deps.config, self.subject.task.rubric
        name = (rubric.model if rubric else None) or config.grader.model
        if not name:
            raise NoVerdict(NO_MODEL)
        wanted = config.grader.chosen(rubric.tools if rubric else None)
        tools = tools_for(wanted, self.subject.task, self.deps.files, config.folder)
        made = create_agent(
            model_of(name, config.folder),
            tools,
            system_prompt=SYSTEM,
            middleware=[AskingAgain()],
            response_format=ToolStrategy(Verdict),  # of every provider: so what is wrong with a verdict can be told
        )
        return cast("Pregel[Any, Any, Any, Any]", made)

    async def _ask(self, graph: Pregel[Any, Any, Any, Any], thread_id: str, reason: str | None) -> Verdict:
        rubric = self.subject.task.rubric
        text = request(rubric.text if rubric else "", self.subject.wanted, self._transcript(), self._result(), reason)
        config: RunnableConfig = {
            "configurable": {"thread_id": thread_id},
            "metadata": {"run_id": thread_id},  # LangGraph applies the same run's input once
            "callbacks": self.callbacks,
            "recursion_limit": STEPS,
        }
        grader = attached(graph, self._saver(), self.deps.files)
        given = {"messages": [HumanMessage(text, id=f"{thread_id}-input")]}
        async for _ in grader.astream(given, config, stream_mode="updates", durability="sync", control=self.control):
            pass
        state = await grader.aget_state(config)
        if state.interrupts:
            raise NoVerdict("the grader asks a person, and nobody answers graders: take tools that ask nothing")
        said = state.values.get("structured_response")
        if said is None:
            raise NoVerdict("the grader's model ended without a verdict: take one that can call tools")
        return said if isinstance(said, Verdict) else Verdict.model_validate(said)

    def _transcript(self) -> str:
        messages: Sequence[Any] = self.state.get("messages") or ()
        subject = self.subject
        return transcript(messages, subject.asked_id, subject.request, forked=subject.task.mode == "fork")

    def _result(self) -> str | None:
        """The result where the transcript does not show it."""
        result = self.subject.result
        if result is None or (isinstance(result, str) and self.state.get("messages")):
            return None
        return cut(result if isinstance(result, str) else render_json(result))


def model_of(name: str, folder: Path) -> BaseChatModel:
    """The model that is meant: `path.py:name` of one, or of a callable that makes one, or a name for LangChain."""
    if is_file(name):
        named = load(name, folder)
        made = named if isinstance(named, BaseChatModel) else named()
        if not isinstance(made, BaseChatModel):
            raise TypeError(f"{name} gives a {type(made).__name__}, not a chat model")
        return made
    from langchain.chat_models import init_chat_model  # noqa: PLC0415 only graders pay for it

    return init_chat_model(name)

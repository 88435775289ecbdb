"""An offline chat model: it searches, reads around the best passage, and answers with sentences of the documents.

It knows no language and invents nothing. What it says stands in the results of its tools, or it says that the
documents do not answer. The same conversation always gets the same reply.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage, ToolMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from outrider.examples.research.evidence import answer
from outrider.examples.research.frame import parse_counts, parse_passages
from outrider.examples.research.terms import words

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool

#: The whole answer to a question that the documents do not answer, for any model.
NOT_ANSWERED = "The documents do not answer this question."
SEARCH, READ = "search_documents", "read_document"
_MAX_QUERY_WORDS = 24
_AROUND_LINES = 8


class ExtractiveChatModel(BaseChatModel):
    """Answers the last human message from what its tools found. Tokens in `usage_metadata` are words between spaces."""

    @property
    def _llm_type(self) -> str:
        return "outrider-extractive"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,  # noqa: ARG002 - it chooses by itself
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Let it call those of `search_documents` and `read_document` that are among `tools`."""
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools], **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002 - no sentence of a document is cut
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=_reply(messages, kwargs))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> ChatResult:
        return self._generate(messages, stop, **kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,  # noqa: ARG002
        run_manager: CallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        reply = _reply(messages, kwargs)
        for word in re.findall(r"\s*\S+", reply.text):
            yield ChatGenerationChunk(message=AIMessageChunk(content=word))
        calls = [
            tool_call_chunk(name=call["name"], args=_json(call["args"]), id=call["id"], index=at)
            for at, call in enumerate(reply.tool_calls)
        ]
        yield ChatGenerationChunk(
            message=AIMessageChunk(
                content="", tool_call_chunks=calls, usage_metadata=reply.usage_metadata, chunk_position="last"
            )
        )

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,  # noqa: ARG002
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        for chunk in self._stream(messages, stop, **kwargs):
            yield chunk


def _reply(messages: list[BaseMessage], kwargs: dict[str, Any]) -> AIMessage:
    """Search, then read around the best passage, then answer: what comes next shows in the messages."""
    asked = max((at for at, one in enumerate(messages) if isinstance(one, HumanMessage)), default=-1)
    question = messages[asked].text if messages else ""
    results = [one for one in messages[asked + 1 :] if isinstance(one, ToolMessage)]
    tools = {tool["function"]["name"] for tool in kwargs.get("tools", ())}
    query = " ".join(dict.fromkeys(word for word, _ in words(question)[:_MAX_QUERY_WORDS]))
    passages = [passage for result in results for passage in parse_passages(result.text)]
    if not results and query and SEARCH in tools:
        return _call(messages, SEARCH, {"query": query})
    total, counts = parse_counts(results[0].text) if results else (0, {})
    claims = answer(question, passages, counts, total)
    if len(results) == 1 and claims and READ in tools:
        best = claims[0]
        first, _, last = best.line.partition("-")
        start, end = max(1, int(first) - _AROUND_LINES), int(last or first) + _AROUND_LINES
        return _call(messages, READ, {"path": best.file, "start_line": start, "end_line": end})
    return _message(messages, "\n".join(map(str, claims)) or NOT_ANSWERED)


def _call(messages: list[BaseMessage], name: str, args: dict[str, Any]) -> AIMessage:
    # The place in the conversation makes the id: the same in every attempt, and no other call has it.
    return _message(messages, "", [tool_call(name=name, args=args, id=f"extractive-{len(messages)}")])


def _message(messages: list[BaseMessage], text: str, calls: Sequence[Any] = ()) -> AIMessage:
    read = sum(len(message.text.split()) for message in messages)
    wrote = len(text.split()) + sum(len(str(value).split()) for call in calls for value in call["args"].values())
    usage = UsageMetadata(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)
    return AIMessage(content=text, tool_calls=list(calls), usage_metadata=usage)


def _json(args: dict[str, Any]) -> str:
    return json.dumps(args, ensure_ascii=False)

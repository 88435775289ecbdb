"""An offline chat model for the two parts of this example: the lead, and the analyst.

It knows no language and invents nothing. What it says of the documents stands in the results of its tools, or it says
that the documents do not answer. The same conversation always gets the same reply.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk
from langchain_core.messages.ai import UsageMetadata
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.utils.function_calling import convert_to_openai_tool

from outrider.examples.research.analysing import analyse
from outrider.examples.research.leading import lead
from outrider.examples.research.policy import START

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import LanguageModelInput
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import Runnable
    from langchain_core.tools import BaseTool


class ExtractiveChatModel(BaseChatModel):
    """Plays the lead where it can start tasks, else the analyst.

    It answers the last message of a person or a parent. Tokens in `usage_metadata` are words between spaces.
    """

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
        """Let it call those of `tools` that it knows: see `policy.py`."""
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
    """The next message, by the part that its tools give it."""
    tools = {tool["function"]["name"] for tool in kwargs.get("tools", ())}
    reply = lead(messages) if START in tools else analyse(messages, tools)
    # The place in the conversation makes the id: the same in every attempt, and no other call has it.
    calls = [
        tool_call(name=name, args=args, id=f"extractive-{len(messages)}-{number}")
        for number, (name, args) in enumerate(reply.calls)
    ]
    read = sum(len(message.text.split()) for message in messages)
    wrote = len(reply.text.split()) + sum(len(str(value).split()) for _, args in reply.calls for value in args.values())
    usage = UsageMetadata(input_tokens=read, output_tokens=wrote, total_tokens=read + wrote)
    return AIMessage(content=reply.text, tool_calls=calls, usage_metadata=usage)


def _json(args: dict[str, Any]) -> str:
    return json.dumps(args, ensure_ascii=False)

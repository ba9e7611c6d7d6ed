"""llama-index: a chat, a stream and an agent with a tool, through OpenAILike."""

# packages: llama-index-core>=0.13 llama-index-llms-openai-like

from __future__ import annotations

import asyncio

from _client import V1, versions, weather
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike


async def main() -> None:
    model = OpenAILike(
        model="tiny", api_base=V1, api_key="none", is_chat_model=True, is_function_calling_model=True,
        context_window=16384,
    )  # fmt: skip
    assert model.chat([ChatMessage(content="hi")]).message.content == "You said: hi"
    assert [*model.stream_chat([ChatMessage(content="hi")])][-1].message.content == "You said: hi"
    for streaming in (True, False):
        agent = FunctionAgent(tools=[weather], llm=model, system_prompt="Be brief.", streaming=streaming)
        found = await agent.run("Weather in Paris?")
        assert str(found) == "The tool says: rain in Paris", found


asyncio.run(main())
print(versions("llama-index-core", "llama-index-llms-openai-like"))

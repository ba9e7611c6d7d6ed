"""pydantic-ai: an agent with a tool, run and streamed, and outputs of a type; over chats, responses and
Anthropic's messages.
"""

# packages: pydantic-ai-slim[openai,anthropic]

from __future__ import annotations

import asyncio

from _client import URL, V1, Person, versions, weather
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ToolOrOutput

EXPECTED = "The tool says: rain in Paris"


def news(topic: str) -> str:
    raise AssertionError(f"news of {topic} were not to be asked for")


def clock() -> str:
    return "noon"


async def main() -> None:
    openai = OpenAIProvider(base_url=V1, api_key="none")
    anthropic = AnthropicProvider(base_url=URL, api_key="none")
    models = [
        OpenAIChatModel("tiny", provider=openai),
        OpenAIResponsesModel("tiny", provider=openai),
        AnthropicModel("tiny", provider=anthropic),
    ]
    for model in models:
        agent = Agent(model, tools=[weather], instructions="Be brief.")
        assert (await agent.run("Weather in Paris?")).output == EXPECTED
        some = ToolOrOutput(function_tools=["weather", "clock"])
        chooser = Agent(model, tools=[news, weather, clock])
        assert (await chooser.run("Weather?", model_settings={"tool_choice": some})).output == EXPECTED
        async with agent.run_stream_events("Weather in Paris?") as events:
            streamed = [event async for event in events]
        assert streamed[-1].result.output == EXPECTED
        async with Agent(model).run_stream("hi") as stream:
            assert await stream.get_output() == "You said: hi"
        outputs = [Person, ToolOutput(Person)]
        if not isinstance(model, AnthropicModel):  # which knows by its name whether a model has them
            outputs.append(NativeOutput(Person))
        for output in outputs:
            found = await Agent(model, output_type=output).run("Who?")
            assert isinstance(found.output, Person), found


asyncio.run(main())
print(versions("pydantic-ai-slim"))

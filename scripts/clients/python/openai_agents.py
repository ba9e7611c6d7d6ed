"""openai-agents: agents with a tool over responses that are stored, which go on by previous_response_id, run
and streamed; and over responses that are not, whose thoughts the client keeps sealed.
"""

# packages: openai-agents

from __future__ import annotations

import asyncio

from _client import STORING_V1, V1, versions, weather
from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

EXPECTED = "The tool says: rain in Paris"
THOUGHTS = "I thought: I need a tool."


def agent_at(url: str, **settings: object) -> Agent:
    model = OpenAIResponsesModel(model="tiny", openai_client=AsyncOpenAI(base_url=url, api_key="none"))
    tools = [function_tool(weather)]
    return Agent(
        name="a", instructions="Be brief.", model=model, tools=tools, model_settings=ModelSettings(**settings)
    )


async def main() -> None:
    set_tracing_disabled(True)
    agent = agent_at(STORING_V1)
    first = await Runner.run(agent, "Weather in Paris?", auto_previous_response_id=True)
    assert first.final_output == EXPECTED, first.final_output
    again = await Runner.run(agent, "What did you think?", previous_response_id=first.last_response_id)
    assert again.final_output == THOUGHTS, again.final_output
    streamed = Runner.run_streamed(agent, "Weather in Paris?", auto_previous_response_id=True)
    kinds = {event.type async for event in streamed.stream_events()}
    assert {"raw_response_event", "run_item_stream_event"} <= kinds
    assert streamed.final_output == EXPECTED

    agent = agent_at(V1, store=False, response_include=["reasoning.encrypted_content"])
    first = await Runner.run(agent, "Weather in Paris?")
    assert first.final_output == EXPECTED
    asked = [*first.to_input_list(), {"role": "user", "content": "What did you think?"}]
    again = await Runner.run(agent, asked)
    assert again.final_output == THOUGHTS, again.final_output


asyncio.run(main())
print(versions("openai-agents"))

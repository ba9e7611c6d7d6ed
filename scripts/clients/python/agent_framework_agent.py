"""Microsoft's Agent Framework: an agent with a tool over responses, run and streamed: where they are stored,
and where they are not and the client keeps the thoughts, sealed.
"""

# packages: agent-framework-openai

from __future__ import annotations

import asyncio

from _client import STORING_V1, V1, versions, weather
from agent_framework import Agent
from agent_framework_openai import OpenAIChatClient

QUESTIONS = {
    "Weather in Paris?": "The tool says: rain in Paris",
    "What did you think?": "I thought: I need a tool.",
}


async def main() -> None:
    for url, options in ((STORING_V1, {}), (V1, {"store": False})):
        client = OpenAIChatClient(model="tiny", base_url=url, api_key="none")
        agent = Agent(client=client, instructions="Be brief.", tools=[weather], default_options=options)
        session = agent.create_session()
        for question, expected in QUESTIONS.items():
            found = await agent.run(question, session=session)
            assert found.text.endswith(expected), found.text
        session = agent.create_session()
        for question, expected in QUESTIONS.items():
            stream = agent.run(question, session=session, stream=True)
            updates = [update async for update in stream]
            assert len(updates) > 5
            found = await stream.get_final_response()
            assert found.text.endswith(expected), found.text


asyncio.run(main())
print(versions("agent-framework-core", "agent-framework-openai"))

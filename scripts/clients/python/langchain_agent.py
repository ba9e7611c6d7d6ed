"""langchain-openai: a model, a stream, an agent with a tool, structured output; over chats and over
responses.
"""

# packages: langchain langchain-openai

from __future__ import annotations

from _client import V1, Person, versions, weather
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

for responses in (False, True):
    model = ChatOpenAI(model="tiny", base_url=V1, api_key="none", use_responses_api=responses)
    assert model.invoke("hi").text == "You said: hi", model.invoke("hi")
    assert "".join(chunk.text for chunk in model.stream("hi")) == "You said: hi"
    bound = model.bind_tools([tool(weather)])
    called = bound.invoke("Weather?")
    assert called.tool_calls[0]["args"] == {"city": "Paris"}, called
    gathered = None
    for chunk in bound.stream("Weather?"):
        gathered = chunk if gathered is None else gathered + chunk
    assert gathered is not None
    assert gathered.tool_calls[0]["args"] == {"city": "Paris"}, gathered
    agent = create_agent(model, tools=[tool(weather)], system_prompt="Be brief.")
    found = agent.invoke({"messages": [{"role": "user", "content": "Weather in Paris?"}]})
    assert found["messages"][-1].text == "The tool says: rain in Paris", found
    for method in ("json_schema", "function_calling", "json_mode"):
        held = model.with_structured_output(Person if method != "json_mode" else None, method=method)
        answer = held.invoke("Who? Answer in JSON.")
        assert isinstance(answer, dict if method == "json_mode" else Person), (method, answer)
    forced = model.bind_tools([tool(weather)], tool_choice="any").invoke("Weather?")
    assert set(forced.tool_calls[0]["args"]) == {"city"}, forced
    agent = create_agent(model, tools=[tool(weather)], response_format=ProviderStrategy(Person))
    found = agent.invoke({"messages": [{"role": "user", "content": "Weather in Paris?"}]})
    assert isinstance(found["structured_response"], Person), found
print(versions("langchain", "langchain-openai"))

"""openai: chats, completions, tools streamed and not, responses, helpers of streams, parsed answers."""

# packages: openai pydantic

from __future__ import annotations

import asyncio
import json
import time

import openai
from _client import STORING_V1, V1, WEATHER, Person, versions, weather

client = openai.OpenAI(base_url=V1, api_key="none", _strict_response_validation=True)
TOOLS = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": WEATHER}}]
ASK = [{"role": "user", "content": "Weather in Paris?"}]

# chats
answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hi"}])
assert answer.choices[0].message.content == "You said: hi", answer
assert answer.choices[0].message.reasoning_content == "Hm."
assert answer.usage.completion_tokens_details.reasoning_tokens > 0
answer = client.chat.completions.create(
    model="tiny", messages=ASK, reasoning_effort="none", extra_body={"chat_template_kwargs": {}}
)
assert client.completions.create(model="tiny", prompt="x", max_tokens=5).choices[0].finish_reason == "length"

# tools, whole
answer = client.chat.completions.create(model="tiny", messages=ASK, tools=TOOLS)
message = answer.choices[0].message
assert answer.choices[0].finish_reason == "tool_calls"
(call,) = message.tool_calls
result = weather(**json.loads(call.function.arguments))
history = [*ASK, message, {"role": "tool", "tool_call_id": call.id, "content": result}]
answer = client.chat.completions.create(model="tiny", messages=history, tools=TOOLS)
assert answer.choices[0].message.content == "The tool says: rain in Paris"

# tools, streamed through the client's own accumulation
with client.chat.completions.stream(model="tiny", messages=ASK, tools=TOOLS) as stream:
    kinds = {event.type for event in stream}
    final = stream.get_final_completion()
assert final.choices[0].message.tool_calls[0].function.arguments == '{"city": "Paris"}', final
assert final.choices[0].message.content == "One moment."
assert {"content.delta", "tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"} <= kinds

# parse, with a type and without
parsed = client.chat.completions.parse(model="tiny", messages=[{"role": "user", "content": "hi"}])
assert parsed.choices[0].message.content == "You said: hi"
parsed = client.chat.completions.parse(model="tiny", messages=ASK, response_format=Person)
assert isinstance(parsed.choices[0].message.parsed, Person), parsed
parsed = client.responses.parse(model="tiny", input="Who?", text_format=Person)
assert isinstance(parsed.output_parsed, Person), parsed
tool = openai.pydantic_function_tool(Person, name="person")
parsed = client.chat.completions.parse(model="tiny", messages=ASK, tools=[tool], tool_choice="required")
assert isinstance(parsed.choices[0].message.tool_calls[0].function.parsed_arguments, Person), parsed
with client.chat.completions.stream(model="tiny", messages=ASK, response_format=Person) as stream:
    assert isinstance(stream.get_final_completion().choices[0].message.parsed, Person)
as_object = {"type": "json_object"}
answer = client.chat.completions.create(model="tiny", messages=ASK, response_format=as_object)
assert isinstance(json.loads(answer.choices[0].message.content), dict)

# responses
TOOL = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": False}
response = client.responses.create(model="tiny", input=ASK, tools=[TOOL])
(call,) = [item for item in response.output if item.type == "function_call"]
output = {
    "type": "function_call_output",
    "call_id": call.call_id,
    "output": weather(**json.loads(call.arguments)),
}
response = client.responses.create(model="tiny", input=[*ASK, *response.output, output], tools=[TOOL])
assert response.output_text == "The tool says: rain in Paris"
others = [{"type": "web_search"}, {"type": "custom", "name": "apply_patch"}]
instructing = [{"role": "developer", "content": "Be kind."}, {"role": "developer", "content": "Be quick."}]
response = client.responses.create(
    model="tiny", input=[*instructing, *ASK], instructions="Be brief.", tools=[*others, TOOL]
)
assert [tool.type for tool in response.tools] == ["function"]
assert [item.type for item in response.output] == ["reasoning", "message", "function_call"]
with client.responses.stream(model="tiny", input="hi") as stream:
    kinds = {event.type for event in stream}
    assert stream.get_final_response().output_text == "You said: hi"
assert {"response.output_text.delta", "response.reasoning_text.delta", "response.completed"} <= kinds

# responses that are stored: continued, found, deleted, and computed in the background
storing = openai.OpenAI(base_url=STORING_V1, api_key="none", _strict_response_validation=True)
first = storing.responses.create(model="tiny", input=ASK, tools=[TOOL])
output["call_id"] = next(item.call_id for item in first.output if item.type == "function_call")
second = storing.responses.create(model="tiny", input=[output], tools=[TOOL], previous_response_id=first.id)
assert second.output_text == "The tool says: rain in Paris"
third = storing.responses.create(model="tiny", input="What did you think?", previous_response_id=second.id)
assert third.output_text == "I thought: I need a tool.", third
assert storing.responses.retrieve(third.id) == third
assert [item.output for item in storing.responses.input_items.list(second.id)] == ["rain in Paris"]
queued = storing.responses.create(model="tiny", input="hi", background=True)
while queued.status in ("queued", "in_progress"):
    time.sleep(0.05)
    queued = storing.responses.retrieve(queued.id)
assert (queued.status, queued.output_text) == ("completed", "You said: hi")
long = storing.responses.create(model="tiny", input="long " * 2000, background=True)
assert storing.responses.cancel(long.id).status == "cancelled"
storing.responses.delete(first.id)
statuses = []
for refused in (
    lambda: storing.responses.retrieve(first.id),
    lambda: storing.responses.create(model="tiny", input="x", previous_response_id=second.id),
):
    try:
        refused()
    except openai.APIStatusError as error:
        statuses.append(error.status_code)
assert statuses == [404, 400]

# thoughts that the client keeps
sealed = client.responses.create(
    model="tiny", input="hi", store=False, include=["reasoning.encrypted_content"]
)
assert sealed.output[0].encrypted_content
kept = {"type": "reasoning", "summary": [], "encrypted_content": sealed.output[0].encrypted_content}
asked = [{"role": "user", "content": "hi"}, kept, {"role": "user", "content": "What did you think?"}]
assert client.responses.create(model="tiny", input=asked, store=False).output_text == "I thought: Hm."


# asynchronous, and errors
async def concurrently() -> None:
    async with openai.AsyncOpenAI(base_url=V1, api_key="none") as many:
        jobs = [many.chat.completions.create(model="tiny", messages=ASK, tools=TOOLS) for _ in range(8)]
        assert all(found.choices[0].message.tool_calls for found in await asyncio.gather(*jobs))


asyncio.run(concurrently())
told = None
try:
    client.chat.completions.create(model="tiny", messages=ASK, tool_choice="required")
except openai.BadRequestError as error:
    told = error.param
assert told == "tool_choice"
assert [model.id for model in client.models.list()] == ["tiny"]
print(versions("openai"))

"""anthropic: messages, tools, thinking, streams, counts."""

# packages: anthropic

from __future__ import annotations

import anthropic
from _client import URL, WEATHER, versions, weather

client = anthropic.Anthropic(base_url=URL, api_key="none", _strict_response_validation=True)
TOOLS = [{"name": "weather", "description": "d", "input_schema": WEATHER}]
ASK = [{"role": "user", "content": "Weather in Paris?"}]
COMMON = {"model": "tiny", "max_tokens": 500}

message = client.messages.create(messages=[{"role": "user", "content": "hi"}], system="Be brief.", **COMMON)
assert [block.type for block in message.content] == ["thinking", "text"]
assert message.content[0].signature
assert message.content[1].text == "You said: hi"
assert message.stop_reason == "end_turn"

message = client.messages.create(messages=ASK, tools=TOOLS, **COMMON)
assert message.stop_reason == "tool_use"
use = next(block for block in message.content if block.type == "tool_use")
result = {"type": "tool_result", "tool_use_id": use.id, "content": weather(**use.input)}
history = [*ASK, {"role": "assistant", "content": message.content}, {"role": "user", "content": [result]}]
message = client.messages.create(messages=history, tools=TOOLS, **COMMON)
assert message.content[-1].text == "The tool says: rain in Paris", message
failed = [*history[:-1], {"role": "user", "content": [{**result, "is_error": True}]}]
message = client.messages.create(messages=failed, tools=TOOLS, output_config={"effort": "high"}, **COMMON)
assert message.content[-1].text == "The tool says: Error: rain in Paris", message

with client.messages.stream(messages=ASK, tools=TOOLS, **COMMON) as stream:
    text = "".join(stream.text_stream)
    final = stream.get_final_message()
assert text == "One moment."
assert final.content[0].signature
assert final.content[-1].input == {"city": "Paris"}
assert final.usage.output_tokens > 0
assert final.stop_reason == "tool_use"

stopped = client.messages.create(
    messages=[{"role": "user", "content": "a, b"}], stop_sequences=[","], **COMMON
)
assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", ",")
count = client.messages.count_tokens(model="tiny", messages=ASK, tools=TOOLS)
assert count.input_tokens > 20
for messages, words in (
    ([], "'messages'"),
    ([{"role": "user", "content": "a b " * 9000}], "prompt is too long: "),
):
    told = ""
    try:
        client.messages.create(messages=messages, **COMMON)
    except anthropic.BadRequestError as error:
        told = error.message
    assert words in told
print(versions("anthropic"))

"""litellm: chats, tools and streams through its OpenAI and its Anthropic provider."""

# packages: litellm

from __future__ import annotations

import json

import litellm
from _client import URL, V1, WEATHER, versions

TOOLS = [{"type": "function", "function": {"name": "weather", "description": "d", "parameters": WEATHER}}]
ASK = [{"role": "user", "content": "Weather in Paris?"}]

for model, base in (("openai/tiny", V1), ("hosted_vllm/tiny", V1), ("anthropic/tiny", URL)):
    common = {"model": model, "api_base": base, "api_key": "none", "max_tokens": 500}
    answer = litellm.completion(messages=[{"role": "user", "content": "hi"}], **common)
    assert answer.choices[0].message.content == "You said: hi", (model, answer)
    assert answer.choices[0].message.reasoning_content == "Hm.", (model, answer)
    answer = litellm.completion(messages=ASK, tools=TOOLS, **common)
    message = answer.choices[0].message
    (call,) = message.tool_calls
    assert json.loads(call.function.arguments) == {"city": "Paris"}
    history = [*ASK, message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    answer = litellm.completion(messages=history, tools=TOOLS, **common)
    assert answer.choices[0].message.content == "The tool says: rain", (model, answer)
    chunks = list(litellm.completion(messages=ASK, tools=TOOLS, stream=True, **common))
    whole = litellm.stream_chunk_builder(chunks)
    assert json.loads(whole.choices[0].message.tool_calls[0].function.arguments) == {"city": "Paris"}, model
print(versions("litellm"))

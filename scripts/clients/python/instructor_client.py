"""instructor: answers of a type, by a tool and by a schema, whole and streamed."""

# packages: instructor openai

from __future__ import annotations

import instructor
import openai
from _client import V1, Person, versions
from instructor import Mode

ASK = [{"role": "user", "content": "Who?"}]
for mode in (Mode.TOOLS, Mode.TOOLS_STRICT, Mode.JSON_SCHEMA):
    client = instructor.from_openai(openai.OpenAI(base_url=V1, api_key="none"), mode=mode)
    asked = {"model": "tiny", "messages": ASK}
    found = client.chat.completions.create(response_model=Person, max_retries=0, **asked)
    assert isinstance(found, Person), (mode, found)
    partial = [*client.chat.completions.create_partial(response_model=Person, max_retries=0, **asked)]
    assert partial[-1].kind in ("child", "adult"), (mode, partial[-1])
print(versions("instructor"))

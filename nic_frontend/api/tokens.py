"""/tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

from nic_frontend.api.continuation import end_of
from nic_frontend.api.conversation import (
    Conversation,
    for_template,
    options_of,
    prompt_of,
    tools_for_template,
)
from nic_frontend.api.fields import UNSUPPORTED, check_tokens, refuse
from nic_frontend.api.schema.checked import checked
from nic_frontend.api.schema.tokens import DetokenizeRequest, TokenizeRequest
from nic_frontend.api.served import Served
from nic_frontend.errors import bad_request
from nic_frontend.http.long_json import Batches, LongText, numbers_of


async def tokenize(body: dict[str, Any], served: Served) -> dict[str, Any]:
    refuse(body, UNSUPPORTED)
    request = checked(body, TokenizeRequest)
    if (request.prompt is None) == (request.messages is None):
        raise bad_request("one of 'prompt' and 'messages' is needed", "prompt", "invalid_value")
    if request.prompt is not None:
        special = request.add_special_tokens is not False
        (found,) = await served.tokenizer.encode([request.prompt], special=special, param="prompt")
    else:
        talk = Conversation(
            messages=await for_template(body["messages"]),
            tools=tools_for_template(body["tools"]) if request.tools else None,
            options=options_of(request.chat_template_kwargs),
            end=end_of(request),
            special=bool(request.add_special_tokens),
        )
        found = (await prompt_of(talk, served)).tokens
    longest = served.limits.max_context
    strings = None
    if request.return_token_strs:
        parts = numbers_of(found).make
        strings = Batches(lambda: map(served.tokenizer.strings, parts()))
    return {
        "count": len(found),
        "max_model_len": longest,
        "tokens": numbers_of(found),
        "token_strs": strings,
    }


async def detokenize(body: dict[str, Any], served: Served) -> dict[str, Any]:
    request = checked(body, DetokenizeRequest)
    check_tokens("tokens", request.tokens, served.limits.vocab_size)
    (text,) = await served.tokenizer.decode([request.tokens])
    return {"prompt": LongText(text)}

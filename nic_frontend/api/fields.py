"""The fields of a request's JSON object: which are refused, which ignored, and which look like mistakes."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import Any

from nic_frontend.api.schema.rows import Neutral
from nic_frontend.errors import bad_request
from nic_frontend.http.json_text import TooMuch, read_json

# Fields that would change the answer and that no endpoint serves, with the values that ask for nothing. Where
# some endpoint serves a field, the field's row has these values (schema/rows.py).
UNSUPPORTED: Neutral = {
    "audio": (None,),
    "chat_template": (None,),
    "custom_logit_processor": (None,),
    "documents": (None, []),
    "ec_transfer_params": (None, {}),
    "function_call": (None, "none"),
    "functions": (None, []),
    "guided_whitespace_pattern": (None,),
    "kv_transfer_params": (None, {}),
    "length_penalty": (None, 1.0),
    "logprob_token_ids": (None, []),
    "modalities": (None, ["text"]),
    "prompt_embeds": (None,),
    "repetition_detection": (None,),
    "return_prompt_text": (None, False),
    "return_token_offsets": (None, False),
    "structural_tag": (None,),
    "suffix": (None, ""),
    "use_beam_search": (None, False),
    "vllm_xargs": (None, {}),
    "watermarking": (None, False),
    "web_search_options": (None,),
}
UNSUPPORTED_IN_RESPONSES: Neutral = {
    "conversation": (None,),
    "max_tokens": (None,),
    "max_tool_calls": (None,),
    "prompt": (None,),
}
UNSUPPORTED_IN_MESSAGES: Neutral = {"container": (None,), "mcp_servers": (None, [])}

# Fields of OpenAI's, Anthropic's and vLLM's that change nothing about an answer: no word about them, but to
# clients of /v1/responses (effects.py).
IGNORED = frozenset({
    "guided_decoding_backend", "metadata", "moderation", "prediction", "prompt_cache_key",
    "prompt_cache_retention", "request_id", "safety_identifier", "service_tier", "session_id",
    "spaces_between_special_tokens", "speed", "store", "stream_interval", "user", "verbosity",
})  # fmt: skip

MAX_UNKNOWN = 16  # fields that are compared with the known ones
MAX_NAME = 64  # characters of such a field
LIKENESS = 0.8  # of 1


def parse_object(body: bytes) -> dict[str, Any]:
    """The request's JSON object. Raises ApiError 400 when it is none."""
    try:
        found = read_json(body)
    except TooMuch as error:
        raise bad_request(f"the body {error}", code="invalid_value") from error
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not UTF-8 at byte {error.start}") from error
    except ValueError as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    if not isinstance(found, dict):
        raise bad_request(f"the body must be a JSON object, it is {article(found)}")
    return found


def with_typed_choice(fields: dict[str, Any]) -> dict[str, Any]:
    """The same, but a `tool_choice` that has no type names a function: some clients leave the type out."""
    choice = fields.get("tool_choice")
    if not isinstance(choice, dict) or "type" in choice:
        return fields
    return {**fields, "tool_choice": {"type": "function", **choice}}


def refuse(fields: dict[str, Any], unsupported: Neutral) -> None:
    """Raises ApiError 400 that names all fields which ask for something."""
    refused = [
        name
        for name in fields.keys() & unsupported.keys()
        if not any(_same(fields[name], neutral) for neutral in unsupported[name])
    ]
    if not refused:
        return
    refused.sort()
    names = ", ".join(f"'{name}'" for name in refused)
    verb, them = ("is", "it") if len(refused) == 1 else ("are", "them")
    raise bad_request(
        f"{names} {verb} not supported by this server; leave {them} out", refused[0], "unsupported_parameter"
    )


def likely_mistakes(fields: dict[str, Any], known: frozenset[str]) -> list[str]:
    """A sentence for each unknown field that looks like a known one."""
    sentences = []
    for name in islice((name for name in fields if name not in known), MAX_UNKNOWN):
        if len(name) <= MAX_NAME and (like := difflib.get_close_matches(name, known, 1, LIKENESS)):
            sentences.append(f"the unknown field '{name}' was ignored; did you mean '{like[0]}'?")
    return sentences


def _same(value: Any, neutral: Any) -> bool:
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def article(value: Any) -> str:
    """What JSON calls the value: "a string", "null". Callers in Python may give what JSON does not have."""
    names = {
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        list: "an array",
        dict: "an object",
        type(None): "null",
    }
    return names.get(type(value)) or f"of type {type(value).__name__}"


def is_token_list(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {int}


def check_tokens(name: str, tokens: list[int], vocab_size: int) -> None:
    for token in (min(tokens, default=0), max(tokens, default=0)):
        if not 0 <= token < vocab_size:
            raise bad_request(
                f"'{name}' has the token {token}; this model's tokens are 0 to {vocab_size - 1}",
                name,
                "invalid_value",
            )

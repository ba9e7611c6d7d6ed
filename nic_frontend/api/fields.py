"""The fields of a request's JSON object, taken with their types and ranges checked.

Unknown fields are ignored, as OpenAI does.
"""

from __future__ import annotations

import gc
import json
import math
from typing import Any

from nic_frontend.errors import bad_request

Neutral = dict[str, tuple[Any, ...]]

# Fields that would change the answer and are not served, with the values that ask for nothing.
UNSUPPORTED: Neutral = {
    "allowed_token_ids": (None, []),
    "audio": (None,),
    "bad_words": (None, []),
    "chat_template": (None,),
    "continue_final_message": (None, False),
    "documents": (None, []),
    "function_call": (None, "none"),
    "functions": (None, []),
    "guided_choice": (None,),
    "guided_grammar": (None,),
    "guided_json": (None,),
    "guided_regex": (None,),
    "length_penalty": (None, 1.0),
    "logit_bias": (None, {}),
    "logprobs": (None, False),
    "modalities": (None, ["text"]),
    "prompt_embeds": (None,),
    "prompt_logprobs": (None,),
    "response_format": (None, {"type": "text"}),
    "structured_outputs": (None, {}),
    "suffix": (None, ""),
    "tool_choice": (None, "none", "auto"),
    "tools": (None, []),
    "top_logprobs": (None, 0),
    "truncate_prompt_tokens": (None,),
    "use_beam_search": (None, False),
    "web_search_options": (None,),
}
UNSUPPORTED_IN_CHAT: Neutral = {"echo": (None, False)}


def parse_object(body: bytes) -> dict[str, Any]:
    """The request's JSON object. Raises ApiError 400 when it is none."""
    gc.disable()  # it would look at what is being built again and again, most of the time of a large body
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is not valid JSON: {error}") from error
    finally:
        gc.enable()
    if not isinstance(found, dict):
        raise bad_request(f"the body must be a JSON object, it is {article(found)}")
    return found


def refuse_unsupported(fields: dict[str, Any], unsupported: Neutral = UNSUPPORTED) -> None:
    """Raises ApiError 400 for a field that asks for something."""
    for name in fields.keys() & unsupported.keys():
        if not any(_same(fields[name], neutral) for neutral in unsupported[name]):
            raise bad_request(
                f"'{name}' is not supported by this server; leave it out", name, "unsupported_parameter"
            )


def _same(value: Any, neutral: Any) -> bool:
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def article(value: Any) -> str:
    """What JSON calls the value: "a string", "null"."""
    names = {
        str: "a string",
        bool: "a boolean",
        int: "an integer",
        float: "a number",
        list: "an array",
        dict: "an object",
    }
    return names.get(type(value), "null")


def wrong_type(name: str, expected: str, value: Any) -> Exception:
    return bad_request(f"'{name}' must be {expected}, it is {article(value)}", name, "invalid_type")


class Fields:
    """Typed access to the top-level fields. null counts as absent.

    Every method raises ApiError 400 naming the field.
    """

    def __init__(self, body: dict[str, Any]) -> None:
        self.body = body

    def flag(self, name: str, default: bool) -> bool:
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise wrong_type(name, "a boolean", value)
        return value

    def string(self, name: str) -> str | None:
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            raise wrong_type(name, "a string", value)
        return value

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        value = self.body.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(name, "an integer", value)
        if not low <= value <= high:
            raise bad_request(
                f"'{name}' must be between {low} and {high}, it is {value}", name, "invalid_value"
            )
        return value

    def count(self, name: str, default: int, low: int, high: int) -> int:
        value = self.integer(name, default, low, high)
        assert value is not None
        return value

    def number(self, name: str, default: float, low: float, high: float, *, above_low: bool = False) -> float:
        """A finite number in [low, high], or in (low, high] if `above_low`."""
        value = self.body.get(name)
        if value is None:
            return default
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise wrong_type(name, "a number", value)
        if not (low < value if above_low else low <= value) or not value <= high or not math.isfinite(value):
            least = f"above {low:g}" if above_low else f"at least {low:g}"
            most = f" and at most {high:g}" if math.isfinite(high) else ""
            raise bad_request(f"'{name}' must be {least}{most}, it is {value}", name, "invalid_value")
        return float(value)

    def strings(self, name: str, limit: int, max_characters: int) -> tuple[str, ...]:
        """A non-empty string, or an array of up to `limit`, of `max_characters` together."""
        value = self.body.get(name)
        if value is None:
            return ()
        listed = [value] if isinstance(value, str) else value
        if isinstance(listed, list) and len(listed) > limit:
            raise bad_request(
                f"'{name}' takes up to {limit} strings, it has {len(listed)}", name, "invalid_value"
            )
        if not isinstance(listed, list) or not all(isinstance(item, str) for item in listed):
            raise wrong_type(name, "a string or an array of strings", value)
        if "" in listed:
            raise bad_request(f"'{name}' must not contain an empty string", name, "invalid_value")
        if (characters := sum(map(len, listed))) > max_characters:
            raise bad_request(
                f"'{name}' takes up to {max_characters} characters in all, it has {characters}",
                name,
                "invalid_value",
            )
        return tuple(listed)

    def token_ids(self, name: str, limit: int, vocab_size: int) -> tuple[int, ...]:
        value = self.body.get(name)
        if value is None:
            return ()
        if isinstance(value, list) and len(value) > limit:
            raise bad_request(
                f"'{name}' takes up to {limit} tokens, it has {len(value)}", name, "invalid_value"
            )
        if not is_token_list(value):
            raise wrong_type(name, "an array of token ids", value)
        check_tokens(name, value, vocab_size)
        return tuple(value)


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

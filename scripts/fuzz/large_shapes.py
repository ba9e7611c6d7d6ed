"""Requests' bodies that grow in one place: a list, a map, a text or a level of nesting. What may be there is
limited, and the limits are the interesting sizes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from nic_frontend.http.json_text import MOST_DEPTH, MOST_PARTS, MOST_TEXTS, MOST_VALUES, shape_of

SIZE = 8 << 20  # bytes that a body may have
LIMITS = {"size": SIZE, "parts": MOST_PARTS, "texts": MOST_TEXTS, "values": MOST_VALUES, "depth": MOST_DEPTH}
FIRST = 1_000_000  # the number of what comes first: all have as many digits, so bodies grow evenly
CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
COMPLETIONS = "/v1/completions"
USER = {"role": "user", "content": "x"}
SPOKEN = {"messages": [USER]}
BOUNDS = {  # of answers
    COMPLETIONS: "max_tokens",
    CHAT: "max_tokens",
    RESPONSES: "max_output_tokens",
    MESSAGES: "max_tokens",
}

Make = Callable[[int], str]  # JSON with so many of what it grows by


class Place(NamedTuple):
    """Where a body grows. `make` returns the JSON of the field, or members of the body where that is ""."""

    path: str
    field: str
    make: Make
    others: Mapping[str, Any] = MappingProxyType({})

    def body(self, n: int) -> bytes:
        return body_of(self.path, self.others, [(self.field, self.make(n))])

    def most(self) -> dict[str, int]:
        """How many it may have by each limit."""
        one, two = (costs_of(self.body(n)) for n in (1, 2))
        return {
            name: 1 + (limit - one[name]) // (two[name] - one[name])
            for name, limit in LIMITS.items()
            if two[name] > one[name]
        }


def body_of(path: str, others: Mapping[str, Any], grown: Iterable[tuple[str, str]]) -> bytes:
    bound = {BOUNDS[path]: 1} if path in BOUNDS else {}
    members = [json.dumps({**bound, **others})[1:-1]]
    members += [f"{json.dumps(field)}:{text}" if field else text for field, text in grown]
    return ("{" + ",".join(filter(None, members)) + "}").encode(errors="surrogatepass")


def costs_of(body: bytes) -> dict[str, int]:
    return {"size": len(body), **shape_of(body)._asdict()}


def listed(item: str) -> Make:
    """A list. In the item's text, # is its number."""
    if "#" in item:
        return lambda n: "[" + ",".join(item.replace("#", str(FIRST + i)) for i in range(n)) + "]"
    return lambda n: "[" + (item + ",") * (n - 1) + item + "]" if n > 0 else "[]"


def members(value: str, name: str = "temperature#") -> Make:
    """Those of an object. In the value's text, # is its number."""
    member = f"{json.dumps(name)}:{value}"
    return lambda n: ",".join(member.replace("#", str(FIRST + i)) for i in range(n))


def mapped(value: str, name: str = "temperature#") -> Make:
    made = members(value, name)
    return lambda n: "{" + made(n) + "}"


def text(piece: str) -> Make:
    written = json.dumps(piece, ensure_ascii=False)[1:-1]
    return lambda n: '"' + written * n + '"'


def nested(opening: str = '{"a":', end: str = "1", closing: str = "}") -> Make:
    return lambda n: opening * n + end + closing * n


def within(before: str, make: Make, behind: str) -> Make:
    """What `make` makes, in a JSON text."""
    return lambda n: before + make(n) + behind


def as_text(make: Make) -> Make:
    """JSON in a text in JSON, as the arguments of a call are."""
    return lambda n: json.dumps(make(n))


CALL = '{"role":"assistant","tool_calls":[{"id":"#","function":{"name":"f#","arguments":ARGUMENTS}}]}'
CALLS = CALL.replace("ARGUMENTS", '"{}"')
ARGUMENTS = json.dumps(f'{{"a":[{"[]," * 1000}1]}}')
NUMBERS = json.dumps(f'{{"a":[{"7.5," * 1000}1]}}')
FUNCTION = '{"type":"function","function":{"name":"f#","parameters":{"type":"object"}}}'
SPOKEN_TURN = '{"role":"user","content":"x"}'
RESULT = '{"role":"tool","tool_call_id":"#","content":"y"}'
THINKING = '{"role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"y"}]}'
CALL_ITEM = '{"type":"function_call","call_id":"#","name":"f","arguments":"{}"}'
RESULT_ITEM = '{"type":"function_call_output","call_id":"#","output":"y"}'
USE = '{"role":"assistant","content":[{"type":"tool_use","id":"#","name":"f","input":{}}]}'
USE_RESULT = '{"role":"user","content":[{"type":"tool_result","tool_use_id":"#","content":"y"}]}'
TEXT_PART = '{"type":"text","text":"x"}'

LISTS = {
    "messages": Place(CHAT, "messages", listed(SPOKEN_TURN)),
    "messages of nothing": Place(CHAT, "messages", listed("{}")),
    "arrays": Place(CHAT, "messages", listed("[]")),
    "parts": Place(
        CHAT, "messages", listed(f'{{"role":"user","content":[{",".join([TEXT_PART] * 30)}]}}')
    ),
    "calls": Place(CHAT, "messages", listed(CALLS)),
    "calls and their results": Place(CHAT, "messages", listed(f"{SPOKEN_TURN},{CALLS},{RESULT}")),
    "function roles": Place(
        CHAT, "messages", listed(f'{CALLS},{{"role":"function","name":"f#","content":""}}')
    ),
    "arguments": Place(CHAT, "messages", listed(CALL.replace("ARGUMENTS", ARGUMENTS))),
    "numbers in arguments": Place(CHAT, "messages", listed(CALL.replace("ARGUMENTS", NUMBERS))),
    "tools": Place(CHAT, "tools", listed(FUNCTION), SPOKEN),
    "strict tools": Place(CHAT, "tools", listed(FUNCTION.replace("{", '{"strict":true,', 1)), SPOKEN),
    "tools to choose from": Place(CHAT, "tools", listed(FUNCTION), {**SPOKEN, "tool_choice": "required"}),
    "choices": Place(CHAT, "guided_choice", listed('"#"'), SPOKEN),
    "stops": Place(CHAT, "stop", listed('"#"'), SPOKEN),
    "bad words": Place(CHAT, "bad_words", listed('"x#"'), SPOKEN),
    "allowed tokens": Place(CHAT, "allowed_token_ids", listed("7"), SPOKEN),
    "allowed floats": Place(CHAT, "allowed_token_ids", listed("7.0"), SPOKEN),
    "stop tokens": Place(CHAT, "stop_token_ids", listed("7.0"), SPOKEN),
    "prompt": Place(COMPLETIONS, "prompt", listed("7")),
    "prompt of floats": Place(COMPLETIONS, "prompt", listed("7.0")),
    "prompt to render": Place(COMPLETIONS + "/render", "prompt", listed("7")),
    "prompts of tokens": Place(COMPLETIONS, "prompt", listed("[7]")),
    "prompts of texts": Place(COMPLETIONS, "prompt", listed('"x"')),
    "prompt that is none": Place(COMPLETIONS, "prompt", listed("7.5")),
    "big numbers": Place(COMPLETIONS, "prompt", listed("9" * 1000)),
    "many digits": Place(COMPLETIONS, "prompt", listed("0." + "9" * 200)),
    "tokens": Place("/detokenize", "tokens", listed("7")),
    "tokens as floats": Place("/detokenize", "tokens", listed("7.0")),
    "messages to tokenize": Place("/tokenize", "messages", listed(SPOKEN_TURN)),
    "messages to render": Place(CHAT + "/render", "messages", listed(SPOKEN_TURN)),
    "items": Place(RESPONSES, "input", listed(SPOKEN_TURN)),
    "calls as items": Place(RESPONSES, "input", listed(CALL_ITEM)),
    "calls and results as items": Place(RESPONSES, "input", listed(f"{CALL_ITEM},{RESULT_ITEM}")),
    "tools of other kinds": Place(
        RESPONSES, "tools", listed('{"type":"web#","name":"w"}'), {"input": "x"}
    ),
    "tools of responses": Place(
        RESPONSES, "tools", listed('{"type":"function","name":"f#"}'), {"input": "x"}
    ),
    "includes": Place(RESPONSES, "include", listed('"x"'), {"input": "x"}),
    "turns": Place(MESSAGES, "messages", listed('{"role":"user","content":"' + "x" * 60 + '"}')),
    "turns of an assistant": Place(MESSAGES, "messages", listed(THINKING)),
    "uses of tools and results": Place(MESSAGES, "messages", listed(f"{USE},{USE_RESULT}")),
    "turns to count": Place(MESSAGES + "/count_tokens", "messages", listed(SPOKEN_TURN)),
    "blocks of system": Place(MESSAGES, "system", listed(TEXT_PART), SPOKEN),
    "tools of messages": Place(MESSAGES, "tools", listed('{"name":"f#","input_schema":{}}'), SPOKEN),
}  # fmt: skip
MAPS = {
    "unknown fields": Place(CHAT, "", members("#"), SPOKEN),
    "biases": Place(CHAT, "logit_bias", mapped("#"), SPOKEN),
    "template's options": Place(CHAT, "chat_template_kwargs", mapped("#"), SPOKEN),
    "metadata": Place(RESPONSES, "metadata", mapped('"v"'), {"input": "x"}),
    "schema": Place(
        CHAT, "tools", within('[{"function":{"name":"f","parameters":', mapped("#"), "}}]"), SPOKEN
    ),
}  # fmt: skip
PIECES = {"letters": "a", "controls": "\x01", "kanji": "漢", "surrogates": "\ud800", "ends": "\u2028"}
TEXTS: dict[str, Callable[[Make], Place]] = {
    "prompt": lambda made: Place(COMPLETIONS, "prompt", made, {"echo": True}),
    "text to tokenize": lambda made: Place("/tokenize", "prompt", made, {"return_token_strs": True}),
    "message": lambda made: Place(CHAT, "messages", within('[{"role":"user","content":', made, "}]")),
    "instructions": lambda made: Place(RESPONSES, "instructions", made, {"input": "x", "stream": True}),
    "system": lambda made: Place(MESSAGES, "system", made, SPOKEN),
    "model": lambda made: Place(CHAT, "model", made, SPOKEN),
    "salt": lambda made: Place(CHAT, "cache_salt", made, SPOKEN),
    "name of a tool": lambda made: Place(CHAT, "tools", within('[{"function":{"name":', made, "}}]"), SPOKEN),
    "name of the tool that is chosen": lambda made: Place(
        CHAT, "tool_choice", within('{"type":"function","function":{"name":', made, "}}"), SPOKEN
    ),
    "bad word": lambda made: Place(CHAT, "bad_words", within("[", made, "]"), SPOKEN),
    "unknown field": lambda made: Place(CHAT, "", within("", made, ":1"), SPOKEN),
    "option": lambda made: Place(CHAT, "chat_template_kwargs", within("{", made, ":1}"), SPOKEN),
}
NESTED: dict[str, Callable[[Make], Place]] = {
    "options": lambda made: Place(CHAT, "chat_template_kwargs", made, SPOKEN),
    "a schema": lambda made: Place(
        CHAT, "tools", within('[{"function":{"name":"f","parameters":', made, "}}]"), SPOKEN
    ),
    "arguments": lambda made: Place(
        CHAT, "messages", lambda n: "[" + CALL.replace("ARGUMENTS", as_text(made)(n)) + "]"
    ),
    "a call": lambda made: Place(
        MESSAGES, "messages", lambda n: f"[{SPOKEN_TURN},{USE.replace('{}', made(n))},{SPOKEN_TURN}]"
    ),
    "a tool": lambda made: Place(
        RESPONSES, "tools", within('[{"name":"f","parameters":', made, "}]"), {"input": "x"}
    ),
    "what is unknown": lambda made: Place(COMPLETIONS, "unknown", made, {"prompt": "x"}),
}  # fmt: skip
SCHEMAS: dict[str, Callable[[Make], Place]] = {  # where an answer is held to one
    "response_format": lambda made: Place(
        CHAT, "response_format", within('{"type":"json_schema","json_schema":{"schema":', made, "}}"), SPOKEN
    ),
    "structured_outputs": lambda made: Place(
        COMPLETIONS, "structured_outputs", within('{"json":', made, "}"), {"prompt": "x"}
    ),
    "guided_json": lambda made: Place(COMPLETIONS, "guided_json", as_text(made), {"prompt": "x"}),
    "a tool that has to be called": lambda made: Place(
        CHAT,
        "tools",
        within('[{"function":{"name":"f","strict":true,"parameters":', made, "}}]"),
        {**SPOKEN, "tool_choice": "required"},
    ),
    "text": lambda made: Place(
        RESPONSES,
        "text",
        within('{"format":{"type":"json_schema","name":"s","schema":', made, "}}"),
        {"input": "x"},
    ),
    "output_format": lambda made: Place(
        MESSAGES, "output_format", within('{"type":"json_schema","schema":', made, "}"), SPOKEN
    ),
}
WHOLE = '{"type":"integer"}'
REFERENCE = '{"$ref":"NEXT"}'


def chained(keyword: str, link: str) -> Make:
    """A schema of definitions, each of which refers to the NEXT one."""

    def made(n: int) -> str:
        numbers = range(FIRST, FIRST + n)
        chain = [f'"{i}":{{"{keyword}":{link.replace("NEXT", f"#/$defs/{i + 1}")}}}' for i in numbers]
        defined = ",".join([*chain, f'"{FIRST + n}":{WHOLE}'])
        return f'{{"$ref":"#/$defs/{FIRST}","$defs":{{{defined}}}}}'

    return made


GROWING_SCHEMAS: dict[str, Make] = {
    "references": chained("$ref", '"NEXT"'),
    "references twice": chained("anyOf", f"[{REFERENCE},{REFERENCE}]"),
    "conjunctions of references": chained("allOf", f"[{REFERENCE}]"),
    "properties that refer": chained("properties", f'{{"a":{REFERENCE}}}'),
    "nested conjunctions": nested('{"allOf":[', WHOLE, "]}"),
    "nested alternatives": nested('{"anyOf":[', WHOLE, "]}"),
    "nested negations": nested('{"not":', WHOLE, "}"),
    "nested items": nested('{"items":', WHOLE, "}"),
    "conjunction": within('{"allOf":', listed(WHOLE), "}"),
    "alternatives": within('{"anyOf":', listed('{"const":#}'), "}"),
    "one of": within('{"oneOf":', listed('{"const":#}'), "}"),
    "values": within('{"enum":', listed("#"), "}"),
    "floats": within('{"enum":', listed("#.5"), "}"),
    "texts": within('{"enum":', listed('"x#"'), "}"),
    "properties": within('{"type":"object","properties":', mapped(WHOLE), "}"),
    "required": within('{"type":"object","required":', listed('"x#"'), "}"),
    "patterns": within('{"patternProperties":', mapped(WHOLE, "^x#"), "}"),
    "a pattern": within('{"type":"string","pattern":', text("(a|b)?"), "}"),
    "a constant": within('{"const":', listed("[7.5]"), "}"),
    "unknown keywords": mapped("#"),
}

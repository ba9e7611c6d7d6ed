"""Chat templates:

Jinja in the model's directory turns messages into a prompt (transformers, "Chat templates").
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nic_frontend import roles_in_templates, tools_in_templates
from nic_frontend.errors import ApiError, bad_request
from ringbuffer.model_file import read_json, read_text

MOST_TEXT = 16 << 20  # characters of a prompt
MOST_REASON = 1000  # of what a template complains about
SPECIAL_TOKENS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")


class Generation(Extension):
    """`{% generation %}` marks what the model wrote, for training; here it only shows its body."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(pattern: str) -> str:
    return datetime.datetime.now().strftime(pattern)


@dataclass(frozen=True)
class TemplateSource:
    """What a model directory has for chats: the template, one for requests with tools if that is another, and
    the special tokens that they may print."""

    text: str
    special_tokens: dict[str, str]
    with_tools: str = ""

    @property
    def whole(self) -> str:
        return self.text + self.with_tools


class ChatTemplate:
    """A compiled template and the special tokens it may print. `with_tools` is another one that the model has
    for requests with tools. A prompt of more than `most_text` characters is not rendered.

    Templates are programs, and may run for ever: a frontend renders in another process (template_process.py).
    Raises jinja2.TemplateError when one does not compile.
    """

    def __init__(self, source: TemplateSource, most_text: int = MOST_TEXT) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        helpers: dict[str, Callable[..., object]] = {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        environment.globals.update(helpers)
        self._template = environment.from_string(source.text)
        self._with_tools = environment.from_string(source.with_tools) if source.with_tools else self._template
        self._knows_developer = "developer" in source.text
        self._special_tokens = source.special_tokens
        self._most_text = most_text
        self.tools = tools_in_templates.probe(self._render)
        self.roles = roles_in_templates.probe(self._render, self.tools)

    def render(
        self,
        messages: list[dict[str, Any]],
        add_generation_prompt: bool,
        options: dict[str, Any],
        tools: list[dict[str, Any]] | None = None,
    ) -> str:
        """The prompt.

        `options` are chat_template_kwargs. Messages and tools are in OpenAI's form, their content is text.
        Raises ApiError 400 with what the template complains about, and where it would not show tools, or what
        was called and answered.
        """
        if not self._knows_developer:  # the newer name of "system", which most templates drop or refuse
            messages = [
                {**message, "role": "system"} if message["role"] == "developer" else message
                for message in messages
            ]
        if tools or any(message["role"] in ("assistant", "tool") for message in messages):
            messages, tools = self.tools.apply(messages, tools)
        try:
            return self._render(self.roles.apply(messages), tools, add_generation_prompt, options)
        except MemoryError as error:
            raise refused("it needs too much memory") from error
        except Exception as error:  # a template is a program: whatever it raises is about these messages
            raise refused(str(error)[:MOST_REASON]) from error

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
        options: dict[str, Any],
    ) -> str:
        variables = {**self._special_tokens, "documents": None, **options, "tools": tools}
        variables |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        pieces, length = [], 0
        for piece in (self._with_tools if tools else self._template).generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > self._most_text:
                raise TemplateError(f"it writes more than {self._most_text} characters")
        return "".join(pieces)


def refused(why: str) -> ApiError:
    return bad_request(f"the model's chat template refuses these messages: {why}", "messages")


def read_source(directory: Path) -> TemplateSource | None:
    """The template of a model directory, or None when it has none. chat_template.jinja comes before
    tokenizer_config.json. Raises ValueError.
    """
    config: dict[str, Any] = {}
    if (path := directory / "tokenizer_config.json").exists():
        config = read_json(path)
    if (path := directory / "chat_template.jinja").exists():
        text, with_tools = read_text(path), ""
    else:
        named = config.get("chat_template")
        text, with_tools = _named(named, "default"), _named(named, "tool_use")
    if not text:
        return None
    tokens = {name: _content(config[name]) for name in SPECIAL_TOKENS if config.get(name)}
    return TemplateSource(text, tokens, with_tools)


def _named(template: Any, name: str) -> str:
    """tokenizer_config.json has one template, or a list of named ones."""
    if isinstance(template, list):
        entries = [entry for entry in template if isinstance(entry, dict) and entry.get("name") == name]
        return str(entries[0].get("template", "")) if entries else ""
    return str(template or "") if name == "default" else ""


def _content(token: Any) -> str:
    return str(token.get("content", "") if isinstance(token, dict) else token)

"""Chat templates:

Jinja in the model's directory turns messages into a prompt (transformers, "Chat templates").
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nic_frontend import tools_in_templates
from nic_frontend.errors import bad_request

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


class ChatTemplate:
    """A compiled template and the special tokens it may print. `with_tools` is another one that the model has
    for requests with tools.

    Raises jinja2.TemplateError when one does not compile.
    """

    def __init__(self, source: str, special_tokens: dict[str, str], with_tools: str = "") -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        helpers: dict[str, Callable[..., object]] = {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        environment.globals.update(helpers)
        self.source = source + with_tools
        self._template = environment.from_string(source)
        self._with_tools = environment.from_string(with_tools) if with_tools else self._template
        self._knows_developer = "developer" in source
        self._special_tokens = special_tokens
        self.tools = tools_in_templates.probe(self._render)

    def knows(self, option: str) -> bool:
        """Whether one of chat_template_kwargs means something to it."""
        return option in self.source

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
            return self._render(messages, tools, add_generation_prompt, options)
        except Exception as error:  # a template is a program: whatever it raises is about these messages
            raise bad_request(
                f"the model's chat template refuses these messages: {error}", "messages"
            ) from error

    def _render(
        self,
        messages: list[dict[str, Any]],
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
        options: dict[str, Any],
    ) -> str:
        variables = {**self._special_tokens, "documents": None, **options, "tools": tools}
        variables |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        return (self._with_tools if tools else self._template).render(variables)


def load(directory: Path) -> ChatTemplate | None:
    """The template of a model directory, or None when it has none. chat_template.jinja comes before
    tokenizer_config.json.
    """
    config: dict[str, Any] = {}
    if (path := directory / "tokenizer_config.json").exists():
        config = json.loads(path.read_text())
    if (path := directory / "chat_template.jinja").exists():
        source, with_tools = path.read_text(), ""
    else:
        named = config.get("chat_template")
        source, with_tools = _named(named, "default"), _named(named, "tool_use")
    if not source:
        return None
    tokens = {name: _content(config[name]) for name in SPECIAL_TOKENS if config.get(name)}
    return ChatTemplate(source, tokens, with_tools)


def _named(template: Any, name: str) -> str:
    """tokenizer_config.json has one template, or a list of named ones."""
    if isinstance(template, list):
        return next((str(entry["template"]) for entry in template if entry["name"] == name), "")
    return str(template or "") if name == "default" else ""


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)

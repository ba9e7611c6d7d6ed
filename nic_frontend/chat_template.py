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
    """A compiled template and the special tokens it may print.

    Raises jinja2.TemplateError when it does not compile.
    """

    def __init__(self, source: str, special_tokens: dict[str, str]) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        helpers: dict[str, Callable[..., object]] = {
            "raise_exception": _raise_exception,
            "strftime_now": _strftime_now,
        }
        environment.globals.update(helpers)
        self._template = environment.from_string(source)
        self._knows_developer = "developer" in source
        self._special_tokens = special_tokens

    def render(
        self, messages: list[dict[str, Any]], add_generation_prompt: bool, options: dict[str, Any]
    ) -> str:
        """The prompt.

        `options` are chat_template_kwargs. Raises ApiError 400 with what the template complains about.
        """
        if not self._knows_developer:  # the newer name of "system", which most templates drop or refuse
            messages = [
                {**message, "role": "system"} if message["role"] == "developer" else message
                for message in messages
            ]
        variables = {**self._special_tokens, "tools": None, "documents": None, **options}
        variables |= {"messages": messages, "add_generation_prompt": add_generation_prompt}
        try:
            return self._template.render(variables)
        except Exception as error:  # a template is a program: whatever it raises is about these messages
            raise bad_request(
                f"the model's chat template refuses these messages: {error}", "messages"
            ) from error


def load(directory: Path) -> ChatTemplate | None:
    """The template of a model directory, or None when it has none. chat_template.jinja comes before
    tokenizer_config.json.
    """
    config: dict[str, Any] = {}
    if (path := directory / "tokenizer_config.json").exists():
        config = json.loads(path.read_text())
    if (path := directory / "chat_template.jinja").exists():
        source = path.read_text()
    else:
        source = _named(config.get("chat_template"))
    if not source:
        return None
    tokens = {name: _content(config[name]) for name in SPECIAL_TOKENS if config.get(name)}
    return ChatTemplate(source, tokens)


def _named(template: Any) -> str:
    """tokenizer_config.json has one template, or a list of named ones."""
    if isinstance(template, list):
        return next((str(entry["template"]) for entry in template if entry["name"] == "default"), "")
    return str(template or "")


def _content(token: Any) -> str:
    return str(token["content"] if isinstance(token, dict) else token)

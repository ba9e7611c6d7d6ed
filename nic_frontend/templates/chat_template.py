"""Chat templates: Jinja that turns messages into a prompt (transformers, "Chat templates").

transformers has written it in several ways, of which all are published: as chat_template.jinja, with
further ones in additional_chat_templates/; in tokenizer_config.json, alone or as a list of named ones;
and, for models that see images, in chat_template.json. Files of Jinja come before entries of
tokenizer_config.json, as in transformers. chat_template.json, which transformers reads for processors
alone, comes last.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import TemplateError, TemplateSyntaxError
from jinja2 import meta as jinja_meta
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from nic_frontend.errors import ApiError, bad_request
from nic_frontend.templates import forms
from nic_frontend.templates.prompt_end import Continuation, PromptEnd
from nic_frontend.templates.trial import Message
from ringbuffer.model_file import ModelFileError, one_line, read_json, read_text, shown
from ringbuffer.special_tokens import NAMES, read_special_tokens

MOST_TEXT = 16 << 20  # characters of a prompt
MOST_REASON = 1000  # of what a template complains about
TOKENIZER_CONFIG = "tokenizer_config.json"
JINJA, ADDITIONAL, PROCESSORS = "chat_template.jinja", "additional_chat_templates", "chat_template.json"
DEFAULT, WITH_TOOLS = "default", "tool_use"


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


@dataclass(frozen=True)
class TemplateSource:
    """What a model directory has for chats: the template, one for requests with tools if that is another, and
    the special tokens that they may print."""

    text: str
    special_tokens: dict[str, str]
    with_tools: str = ""


def _environment() -> ImmutableSandboxedEnvironment:
    return ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )


def check_syntax(text: str) -> None:
    """Raises ValueError where a template is empty or does not compile, with the line at fault."""
    if not text.strip():
        raise ValueError("it is empty")
    try:
        _environment().parse(text)
    except TemplateSyntaxError as error:
        raise ValueError(
            f"line {error.lineno} is no Jinja: {one_line(error.message or str(error))}"
        ) from error
    except RecursionError as error:
        raise ValueError("it nests too deeply") from error


class ChatTemplate:
    """A compiled template and the special tokens it may print. `with_tools` is another one that the model has
    for requests with tools. A prompt of more than `most_text` characters is not rendered.

    Templates are programs, and may run for ever: a frontend renders in another process (process.py).
    Raises jinja2.TemplateError when one does not compile.
    """

    def __init__(self, source: TemplateSource, most_text: int = MOST_TEXT) -> None:
        environment = _environment()
        environment.filters["tojson"] = _tojson
        helpers: dict[str, Callable[..., object]] = {
            "raise_exception": _raise_exception,
            "strftime_now": lambda pattern: (self._now or datetime.datetime.now()).strftime(pattern),
        }
        environment.globals.update(helpers)
        self._template = environment.from_string(source.text)
        self._with_tools = environment.from_string(source.with_tools) if source.with_tools else self._template
        self._special_tokens = source.special_tokens
        self._most_text = most_text
        variables = {
            name
            for text in (source.text, source.with_tools)
            for name in jinja_meta.find_undeclared_variables(environment.parse(text))
        }
        # In trials, time stands still: prompts differ by what is tried alone.
        self._now: datetime.datetime | None = datetime.datetime.now()
        self.forms = forms.probe(self._render, frozenset(variables))
        self._now = None

    def render(
        self,
        messages: list[Message],
        end: PromptEnd,
        options: dict[str, Any],
        tools: list[Message] | None = None,
    ) -> str:
        """The prompt, up to its `end`.

        `options` are chat_template_kwargs. Messages and tools are in OpenAI's form, their content is text.
        Raises ApiError 400 with what the template complains about, and where it would not show tools, or what
        was said, called or answered.
        """
        if tools and self.forms.with_tools is None:
            raise bad_request(
                "the chat template of this model knows no tools", "tools", "unsupported_parameter"
            )
        continuation = Continuation(messages) if end is PromptEnd.WITHIN else None
        if continuation is not None:
            messages = continuation.written()
        messages = self.forms.of(tools).apply(messages, tools)
        try:
            text = self._render(messages, tools, end is PromptEnd.ANSWER, options)
        except MemoryError as error:
            raise refused("it needs too much memory") from error
        except Exception as error:  # a template is a program: whatever it raises is about these messages
            raise refused(str(error)[:MOST_REASON]) from error
        return text if continuation is None else continuation.cut(text)

    def _render(
        self,
        messages: list[Message],
        tools: list[Message] | None,
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


def read_source(directory: Path, chat_template: Path | None = None) -> TemplateSource | None:
    """The template of a model directory, or None when it has none; or that of the file `chat_template`,
    in the place of all that the directory has. Raises FileNotFoundError, ModelFileError.
    """
    path = directory / TOKENIZER_CONFIG
    config = read_json(path) if path.exists() else {}
    if chat_template is not None:
        templates = {DEFAULT: read_text(chat_template)}
    else:
        templates = _in_directory(directory, config)
    if not templates.get(DEFAULT):
        return None
    tokens = _tokens_of_this_model(path, config) | read_special_tokens(directory)
    return TemplateSource(templates[DEFAULT], tokens, templates.get(WITH_TOOLS, ""))


def _in_directory(directory: Path, config: dict[str, Any]) -> dict[str, str]:
    """Templates by their names."""
    files = {
        name: read_text(path)
        for name in (DEFAULT, WITH_TOOLS)
        if (path := directory / ADDITIONAL / f"{name}.jinja").exists()
    }
    if (path := directory / JINJA).exists():
        return {**files, DEFAULT: read_text(path)}
    named = _named(directory / TOKENIZER_CONFIG, config.get("chat_template")) | files
    if named.get(DEFAULT) or not (path := directory / PROCESSORS).exists():
        return named
    return {**_named(path, read_json(path).get("chat_template")), **named}


def _named(path: Path, templates: Any) -> dict[str, str]:
    """One template, a list of named ones, or an object of them by their names."""
    if isinstance(templates, str):
        return {DEFAULT: templates}
    if isinstance(templates, list):
        entries = [entry for entry in templates if isinstance(entry, dict)]
        templates = {str(entry.get("name")): entry.get("template") for entry in entries}
    if templates is None:
        return {}
    if not isinstance(templates, dict) or not all(isinstance(text, str) for text in templates.values()):
        raise ModelFileError(
            f"{path}: chat_template must be a template, or a list of templates with names, "
            f"found {shown(templates)}"
        )
    return templates


def _tokens_of_this_model(path: Path, config: dict[str, Any]) -> dict[str, str]:
    """Tokens by names that other models do not have, such as image_token: transformers passes them to
    templates, too.
    """
    named = {name: token for name, token in config.items() if name.endswith("_token") and name not in NAMES}
    extra = config.get("extra_special_tokens")
    named |= extra if isinstance(extra, dict) else {}
    texts = {
        name: token.get("content") if isinstance(token, dict) else token for name, token in named.items()
    }
    return {name: text for name, text in texts.items() if isinstance(text, str)}

"""Conversations as prompts of gpt-oss models, rendered by OpenAI's library, openai-harmony.

The library writes what frames the messages, the system's message, and tools in TypeScript, as tokens. What
messages say stays text, which the frontend tokenizes: the library's tokenizer takes time that is quadratic in
the length of a word, and panics at a million letters.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from openai_harmony import (
    Author,
    DeveloperContent,
    HarmonyEncoding,
    ReasoningEffort,
    RenderOptions,
    Role,
    SystemContent,
    ToolDescription,
)
from openai_harmony import Message as HarmonyMessage

from nic_frontend.errors import ApiError, bad_request
from nic_frontend.harmony.marks import (
    ANALYSIS,
    ASSISTANT,
    CHANNEL,
    COMMENTARY,
    FINAL,
    FUNCTIONS,
    IDS,
    MESSAGE,
    START,
)
from nic_frontend.templates.calls import WrittenCalls
from nic_frontend.templates.contents import ContentForms
from nic_frontend.templates.forms import Forms, TemplateForms
from nic_frontend.templates.process import Segments
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.templates.roles import TAKES_ALL
from nic_frontend.templates.thoughts import ThoughtForms
from nic_frontend.templates.tools import CallForm, ToolForms
from nic_frontend.templates.trial import Message

EFFORTS = {
    "none": ReasoningEffort.LOW,  # the models always think
    "minimal": ReasoningEffort.LOW,
    "low": ReasoningEffort.LOW,
    "medium": ReasoningEffort.MEDIUM,
    "high": ReasoningEffort.HIGH,
    "xhigh": ReasoningEffort.HIGH,
    "max": ReasoningEffort.HIGH,
}
EFFORT, IDENTITY = "reasoning_effort", "model_identity"  # as the published template names them
INSTRUCTING = ("system", "developer")
MOST_REASON = 1000  # characters of what the library says
MOST_IDENTITY = 1000
MOST_NAME = 128  # characters, as OpenAI has it
MOST_FRAMES = 1024  # that are kept
MOST_WORD = 1000
LONG_WORD = re.compile(rf"\S{{{MOST_WORD + 1}}}|\s{{{MOST_WORD + 1}}}")

_CALLS = CallForm(parsed=True, empty="", short_ids=False, beside_text=True, behind_text=True, results=True)
_FORMS = Forms(
    ContentForms(),
    ToolForms(False, _CALLS),
    TAKES_ALL,
    WrittenCalls((), ""),
    ThoughtForms("", (), tuple(EFFORTS)),
)


Frame = tuple[Role, str | None, str | None, str | None, str | None]  # as `_frame` takes them


class HarmonyPrompts:
    """As templates.process.Prompts."""

    forms = TemplateForms(_FORMS, _FORMS, frozenset((EFFORT, IDENTITY)))

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding = encoding
        self._frame = lru_cache(MOST_FRAMES)(self._new_frame)

    def render(
        self,
        messages: list[Message],
        end: PromptEnd,
        options: dict[str, Any],
        tools: list[Message] | None = None,
    ) -> Segments:
        """Raises ApiError 400 for what the library does not take."""
        _check_tools(tools)
        system = _system(options)
        try:
            segments = list(self._segments(system, messages, end, tools))
            for text in segments:
                if isinstance(text, str):
                    text.encode()  # raises UnicodeEncodeError where it has half a character
            return segments
        except ApiError:
            raise
        except BaseException as error:  # what panics in Rust is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            why = f"these messages cannot be written in harmony: {str(error)[:MOST_REASON]}"
            raise bad_request(why, "messages") from error

    def _segments(
        self, system: SystemContent, messages: list[Message], end: PromptEnd, tools: list[Message] | None
    ) -> Iterator[list[int] | str]:
        shown = RenderOptions(conversation_has_function_tools=bool(tools))
        yield self._encoding.render(HarmonyMessage.from_role_and_content(Role.SYSTEM, system), shown)
        instructs = bool(messages) and messages[0]["role"] in INSTRUCTING
        instructions = messages[0]["content"] if instructs else ""
        if instructions or tools:
            yield from self._developer(instructions, tools)
        rest = messages[1:] if instructs else messages
        continued = rest[-1] if end is PromptEnd.WITHIN else None
        for message, thinks in _with_thoughts(rest[:-1] if continued else rest):
            yield from self._message(message, thinks)
        if continued and (thought := continued.get("reasoning_content")):
            yield from self._said(thought, ANALYSIS)
        if end is not PromptEnd.CLOSED:
            yield [IDS[START], *self._encoding.encode(ASSISTANT)]
        if continued:
            yield [IDS[CHANNEL], *self._encoding.encode(FINAL), IDS[MESSAGE]]
            yield continued["content"]

    def _developer(self, instructions: str, tools: list[Message] | None) -> Iterator[list[int] | str]:
        content = DeveloperContent.new()
        if tools:
            content = content.with_function_tools([_tool(tool["function"]) for tool in tools])
        tokens = self._encoding.render(HarmonyMessage.from_role_and_content(Role.DEVELOPER, content))
        begins = tokens.index(IDS[MESSAGE]) + 1
        yield tokens[:begins]
        if instructions:
            yield f"# Instructions\n\n{instructions}" + ("\n\n" if tools else "")
        yield tokens[begins:]

    def _message(self, message: Message, thinks: bool) -> Iterator[list[int] | str]:
        role, content = message["role"], message["content"] or ""
        if role in INSTRUCTING:
            yield from self._developer(content, None)
        elif role == "user":
            yield from self._framed(content, (Role.USER, None, None, None, None))
        elif role == "tool":
            author = FUNCTIONS + _checked_name(message["name"])
            yield from self._framed(content, (Role.TOOL, author, COMMENTARY, ASSISTANT, None))
        else:
            calls = message.get("tool_calls") or []
            if thinks and (thought := message.get("reasoning_content")):
                yield from self._said(thought, ANALYSIS)
            if content:  # in front of calls it is a preamble, which users are shown
                yield from self._said(content, COMMENTARY if calls else FINAL)
            for call in calls:
                yield from self._call(call["function"])

    def _said(self, content: str, channel: str) -> Iterator[list[int] | str]:
        return self._framed(content, (Role.ASSISTANT, None, channel, None, None))

    def _call(self, function: Message) -> Iterator[list[int] | str]:
        arguments = json.dumps(function["arguments"], ensure_ascii=False)
        recipient = FUNCTIONS + _checked_name(function["name"])
        return self._framed(arguments, (Role.ASSISTANT, None, COMMENTARY, recipient, "json"))

    def _framed(self, content: str, frame: Frame) -> Iterator[list[int] | str]:
        tokens = self._frame(*frame)
        yield tokens[:-1]
        yield content
        yield tokens[-1:]

    def _new_frame(
        self, role: Role, name: str | None, channel: str | None, recipient: str | None, kind: str | None
    ) -> list[int]:
        """The tokens of a message that says nothing."""
        message = HarmonyMessage(
            author=Author(role=role, name=name), channel=channel, recipient=recipient, content_type=kind
        )
        tokens: list[int] = self._encoding.render(message)
        return tokens


def _check_tools(tools: list[Message] | None) -> None:
    """Raises ApiError 400 where the library would take too long."""
    if tools and LONG_WORD.search(json.dumps(tools, ensure_ascii=False)):
        raise bad_request(
            f"'tools' have a word of more than {MOST_WORD} characters, or as many spaces",
            "tools",
            "invalid_value",
        )


def _checked_name(name: str) -> str:
    """Of a function that was called. Raises ApiError 400."""
    if len(name) > MOST_NAME:
        raise bad_request(
            f"'messages' have a call of a function with a name of more than {MOST_NAME} characters",
            "messages",
            "invalid_value",
        )
    return name


def _with_thoughts(messages: list[Message]) -> Iterator[tuple[Message, bool]]:
    """Each message, and whether its thoughts are shown: those in front of the last final answer are not."""
    finals = [i for i, message in enumerate(messages) if _is_final(message)]
    first = finals[-1] + 1 if finals else 0
    return ((message, i >= first) for i, message in enumerate(messages))


def _system(options: dict[str, Any]) -> SystemContent:
    """What only the server says. What a client's system says is the developer's here."""
    effort, identity = options.get(EFFORT), options.get(IDENTITY)
    content = SystemContent.new().with_conversation_start_date(datetime.date.today().isoformat())
    if effort is not None:
        if not isinstance(effort, str) or effort not in EFFORTS:
            raise bad_request(f"'{EFFORT}' must be low, medium or high", EFFORT, "invalid_value")
        content = content.with_reasoning_effort(EFFORTS[effort])
    if identity is not None:
        if not isinstance(identity, str) or len(identity) > MOST_IDENTITY:
            raise bad_request(
                f"'{IDENTITY}' must be a string of at most {MOST_IDENTITY} characters",
                "chat_template_kwargs",
                "invalid_value",
            )
        content = content.with_model_identity(identity)
    return content


def _is_final(message: Message) -> bool:
    return message["role"] == ASSISTANT and not message.get("tool_calls") and bool(message["content"])


def _tool(function: Message) -> ToolDescription:
    parameters = function["parameters"]
    takes_any = bool(parameters.get("properties"))
    return ToolDescription.new(
        function["name"], function.get("description") or "", parameters if takes_any else None
    )

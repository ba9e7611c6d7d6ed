"""Conversations as prompts of gpt-oss models, rendered by OpenAI's library, openai-harmony.

The library turns messages into tokens, so that a special token's text in a message is no special token.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

from openai_harmony import (
    Author,
    Conversation,
    DeveloperContent,
    HarmonyEncoding,
    ReasoningEffort,
    RenderConversationConfig,
    Role,
    SystemContent,
    ToolDescription,
)
from openai_harmony import Message as HarmonyMessage

from nic_frontend.errors import bad_request
from nic_frontend.harmony.marks import (
    ANALYSIS,
    ASSISTANT,
    CHANNEL,
    COMMENTARY,
    FINAL,
    FUNCTIONS,
    IDS,
    MESSAGE,
)
from nic_frontend.templates.calls import WrittenCalls
from nic_frontend.templates.contents import ContentForms
from nic_frontend.templates.forms import Forms, TemplateForms
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

_CALLS = CallForm(parsed=True, empty="", short_ids=False, beside_text=True, behind_text=True, results=True)
_FORMS = Forms(
    ContentForms(),
    ToolForms(False, _CALLS),
    TAKES_ALL,
    WrittenCalls((), ""),
    ThoughtForms("", (), tuple(EFFORTS)),
)


class HarmonyPrompts:
    """As templates.process.Prompts."""

    forms = TemplateForms(_FORMS, _FORMS, frozenset((EFFORT, IDENTITY)))

    def __init__(self, encoding: HarmonyEncoding) -> None:
        self._encoding = encoding

    def render(
        self,
        messages: list[Message],
        end: PromptEnd,
        options: dict[str, Any],
        tools: list[Message] | None = None,
    ) -> list[int]:
        """The prompt's tokens. Raises ApiError 400 where the library does not take the conversation."""
        system = _system(options)
        try:
            if end is not PromptEnd.WITHIN:
                return self._rendered([system, *_conversation(messages, tools)], end)
            *before, last = messages
            thought = [_said(last["reasoning_content"], ANALYSIS)] if last.get("reasoning_content") else []
            tokens = self._rendered([system, *_conversation(before, tools), *thought], PromptEnd.ANSWER)
            text = self._text(last["content"])
            return [*tokens, IDS[CHANNEL], *self._text(FINAL), IDS[MESSAGE], *text]
        except BaseException as error:  # what panics in Rust is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            why = f"these messages cannot be written in harmony: {_reason(error)}"
            raise bad_request(why, "messages") from error

    def _rendered(self, messages: list[HarmonyMessage], end: PromptEnd) -> list[int]:
        talk = Conversation.from_messages(messages)
        whole = RenderConversationConfig(auto_drop_analysis=False)  # _conversation has dropped it
        tokens: list[int]
        if end is PromptEnd.CLOSED:
            tokens = self._encoding.render_conversation(talk, whole)
        else:
            tokens = self._encoding.render_conversation_for_completion(talk, Role.ASSISTANT, whole)
        return tokens

    def _text(self, text: str) -> list[int]:
        text.encode()  # raises UnicodeEncodeError where the library would put other characters
        tokens: list[int] = self._encoding.encode(text, disallowed_special=())
        return tokens


def _reason(error: BaseException) -> str:
    if isinstance(error, Exception):
        return str(error)[:MOST_REASON]
    return "OpenAI's library fails at them; it does where a million letters stand without a space"


def _system(options: dict[str, Any]) -> HarmonyMessage:
    """What only the server says. What a client's system says is the developer's here."""
    effort, identity = options.get(EFFORT), options.get(IDENTITY)
    content = SystemContent.new().with_conversation_start_date(datetime.date.today().isoformat())
    if effort is not None:
        if not isinstance(effort, str) or effort not in EFFORTS:
            raise bad_request(f"'{EFFORT}' must be low, medium or high", EFFORT, "invalid_value")
        content = content.with_reasoning_effort(EFFORTS[effort])
    if identity is not None:
        if not isinstance(identity, str):
            raise bad_request(f"'{IDENTITY}' must be a string", "chat_template_kwargs", "invalid_value")
        content = content.with_model_identity(identity)
    return HarmonyMessage.from_role_and_content(Role.SYSTEM, content)


def _conversation(messages: list[Message], tools: list[Message] | None) -> list[HarmonyMessage]:
    """The first message of the system has the tools, too. Thoughts in front of the last final answer are left
    out, as the format wants it.
    """
    leading = messages[0]["content"] if messages and messages[0]["role"] in INSTRUCTING else ""
    rest = messages[1:] if leading or (messages and messages[0]["role"] in INSTRUCTING) else messages
    told = [_developer(leading, tools)] if leading or tools else []
    finals = [i for i, message in enumerate(rest) if _is_final(message)]
    thinks_from = finals[-1] + 1 if finals else 0
    return [
        *told,
        *(made for i, message in enumerate(rest) for made in _messages(message, thinks=i >= thinks_from)),
    ]


def _is_final(message: Message) -> bool:
    return message["role"] == ASSISTANT and not message.get("tool_calls") and bool(message["content"])


def _developer(instructions: str, tools: list[Message] | None) -> HarmonyMessage:
    content = DeveloperContent.new()
    if instructions:
        content = content.with_instructions(instructions)
    if tools:
        content = content.with_function_tools([_tool(tool["function"]) for tool in tools])
    return HarmonyMessage.from_role_and_content(Role.DEVELOPER, content)


def _tool(function: Message) -> ToolDescription:
    parameters = function["parameters"]
    takes_any = bool(parameters.get("properties"))
    return ToolDescription.new(
        function["name"], function.get("description") or "", parameters if takes_any else None
    )


def _messages(message: Message, *, thinks: bool) -> list[HarmonyMessage]:
    role, content = message["role"], message["content"] or ""
    if role in INSTRUCTING:
        return [_developer(content, None)]
    if role == "user":
        return [HarmonyMessage.from_role_and_content(Role.USER, content)]
    if role == "tool":
        author = Author.new(Role.TOOL, FUNCTIONS + message["name"])
        result = HarmonyMessage.from_author_and_content(author, content)
        return [result.with_recipient(ASSISTANT).with_channel(COMMENTARY)]
    calls = message.get("tool_calls") or []
    made = []
    if thinks and (thought := message.get("reasoning_content")):
        made.append(_said(thought, ANALYSIS))
    if content:  # in front of calls it is a preamble, which users are shown
        made.append(_said(content, COMMENTARY if calls else FINAL))
    return made + [_call(call["function"]) for call in calls]


def _said(content: str, channel: str) -> HarmonyMessage:
    return HarmonyMessage.from_role_and_content(Role.ASSISTANT, content).with_channel(channel)


def _call(function: Message) -> HarmonyMessage:
    called = _said(json.dumps(function["arguments"], ensure_ascii=False), COMMENTARY)
    return called.with_recipient(FUNCTIONS + function["name"]).with_content_type("json")

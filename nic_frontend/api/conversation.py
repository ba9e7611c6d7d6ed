"""A conversation as a chat template takes it, and the job that it becomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nic_frontend.api.constraint import Blocks, Constraint, blocks_of
from nic_frontend.api.limits import Limits
from nic_frontend.api.prompt_tokens import tokens_of
from nic_frontend.api.served import Served
from nic_frontend.api.slices import Slices
from nic_frontend.errors import bad_request
from nic_frontend.http.json_text import MOST_DEPTH, MOST_DIGITS, MOST_PARTS, read_counted, shape_of
from nic_frontend.parsing.answer_form import AnswerForm
from nic_frontend.parsing.answer_splitter import AnswerSplitter
from nic_frontend.templates.forms import TemplateForms
from nic_frontend.templates.prompt_end import PromptEnd

Message = dict[str, Any]
INVALID = "INVALID_JSON"  # the key of arguments that are none
RESERVED = ("messages", "add_generation_prompt", "tools")
MOST_NAMES = 8  # that a warning tells
MOST_READ = 1 << 19  # values in arguments of calls
SLICE = 1 << 20  # bytes that are made ready for the template before other calls have their turn: some 15 ms
A_CALL = 512  # bytes that take as long as a call or a message does apart from its texts


@dataclass
class Conversation:
    """`messages` are in OpenAI's form with text for content, as `for_template` makes them. `param` is the
    request's field that they came from.
    """

    messages: list[Message]
    tools: list[Message] | None = None  # that the model is shown, and may call
    constraint: Constraint = field(default_factory=Constraint)  # what the answers are held to
    one_call: bool = False  # and only one
    effort: str | None = None
    effort_param: str = "reasoning_effort"
    thinks: bool | None = None  # asked without a degree
    budget: int | None = None  # of tokens to think
    options: dict[str, Any] = field(default_factory=dict)  # of the template
    end: PromptEnd = PromptEnd.ANSWER  # of the prompt
    special: bool = False  # the tokenizer adds its special tokens
    param: str = "messages"

    @property
    def continued(self) -> str | None:
        """The text of the last message, where the model is to continue it."""
        if self.end is not PromptEnd.WITHIN:
            return None
        return str(self.messages[-1]["content"])


class Prompt(NamedTuple):
    tokens: NDArray[np.uint32]
    is_text: bool  # nothing but text is looked for in the answer
    splitter: Callable[[], AnswerSplitter]  # of each choice
    shown: frozenset[int]  # special tokens that the splitters have to see
    conclusion: list[int]  # tokens that end the model's thinking, where it has a budget
    grammars: Blocks
    warnings: list[str]


async def prompt_of(talk: Conversation, served: Served) -> Prompt:
    """Raises ApiError 400 where the model's template does not take the conversation."""
    template = served.template
    if template is None:
        raise bad_request(
            "this model has no chat template; use /v1/completions", talk.param, "unsupported_parameter"
        )
    served.limits.max_answer(len(talk.messages), talk.param)  # a message has at least one token (F10)
    await asyncio.sleep(0)  # other calls' turn: conversations may be long
    options, warnings = thinking(talk, template.forms)
    tools = talk.tools or None
    rendered = await template.render(talk.messages, talk.end, options, tools)
    text = rendered if isinstance(rendered, str) else ""
    form = served.forms.form(text, tools=bool(tools), continued=talk.continued)
    _check_found(talk, form, served)
    conclusion = ""
    if talk.budget == 0 and (ended := form.without_thoughts) is not None:
        conclusion, form = ended
    tokens = await tokens_of(rendered, conclusion, served.tokenizer, special=talk.special, param=talk.param)
    concludes = talk.budget is not None
    grammars = await blocks_of(talk.constraint, form, served, concludes=concludes)
    warnings = [*warnings, *on_strictness(talk.constraint, form, served.grammars.available)]
    names = frozenset(tool["function"]["name"] for tool in tools or ())
    is_text = not form.finds_calls and not form.finds_reasoning
    ending = form.concluded.text if concludes and not is_text else ""
    (concluding,) = await served.tokenizer.encode([ending], special=False, param=talk.param)
    return Prompt(
        tokens,
        is_text,
        partial(form.splitter, names, talk.one_call, talk.budget),
        frozenset() if is_text else served.tokenizer.special_ids(form.special_tokens),
        concluding.tolist(),
        grammars,
        warnings,
    )


def _check_found(talk: Conversation, form: AnswerForm, served: Served) -> None:
    """Raises ApiError 400 for what needs a parser that this server does not have."""
    if talk.budget is not None and not served.forms.finds_reasoning:
        raise bad_request(
            "this server finds no reasoning in the answers of this model, so it cannot bound it",
            "thinking_token_budget",
            "unsupported_parameter",
        )
    if talk.tools and not form.finds_calls:
        raise bad_request(
            "this server does not find calls in the answers of this model; set its --tool-call-parser",
            "tools",
            "unsupported_parameter",
        )


def on_strictness(constraint: Constraint, form: AnswerForm, available: bool) -> list[str]:
    """A warning about the tools that are to be called strictly, and are not."""
    strict = [tool.name for tool in constraint.tools if tool.strict]
    if not strict or constraint.narrows(form, available):
        return []
    return [f"'strict' is not enforced (tools {', '.join(strict)})"]


def thinking(talk: Conversation, forms: TemplateForms) -> tuple[dict[str, Any], list[str]]:
    """The template's options with what was asked about thinking, and warnings of what means nothing to it."""
    thinks, effort = talk.thinks, talk.effort
    known = forms.of(talk.tools).thoughts
    switches = known.switches
    options: dict[str, Any] = {}
    warnings = []
    if effort is not None and known.efforts and (effort in known.efforts or effort != "none" or not switches):
        options["reasoning_effort"] = effort
    elif effort is not None and switches:
        thinks = effort != "none" if thinks is None else thinks
        if effort != "none":
            degrees = f"this model thinks or does not; it knows no degrees of '{talk.effort_param}'"
            warnings.append(degrees)
    elif effort is not None:
        warnings.append(f"'{talk.effort_param}' means nothing to this model")
    if thinks is not None and switches:
        options |= dict.fromkeys(switches, thinks)
    elif thinks is not None and talk.budget is None:
        warnings.append("'thinking' means nothing to this model")
    if unread := [name for name in talk.options if name not in forms.variables]:
        names = ", ".join(f"'{name}'" for name in unread[:MOST_NAMES])
        warnings.append(f"the chat template of this model reads no {names} of 'chat_template_kwargs'")
    return {**options, **talk.options}, warnings


def options_of(given: dict[str, Any] | None) -> dict[str, Any]:
    """chat_template_kwargs. Raises ApiError 400 for those that fields decide."""
    for name in RESERVED:
        if given and name in given:
            raise bad_request(
                f"'chat_template_kwargs' must not contain '{name}'", "chat_template_kwargs", "invalid_value"
            )
    return given or {}


def check_length(messages: Any, limits: Limits) -> None:
    """Raises ApiError 400 before anything is done with more messages than fit."""
    if isinstance(messages, list) and messages:
        limits.max_answer(len(messages), "messages")


async def for_template(messages: list[Message]) -> list[Message]:
    """Checked messages of OpenAI's form, with text for content and objects for arguments of calls, which may
    have been objects before. Raises ApiError 400 where the arguments of all calls have too much.
    """
    calls = _Calls()
    shown = []
    for message in messages:
        shown.append(await _message(message, calls))
        await calls.slices.did(A_CALL)
    return shown


@dataclass
class _Calls:
    """Those of a conversation so far."""

    names: dict[str, str] = field(default_factory=dict)  # of the functions, by the calls' ids
    newest: dict[str, str] = field(default_factory=dict)  # ids, by the functions' names
    parts_left: int = MOST_PARTS  # that the arguments may still have, which are JSON in JSON
    values_left: int = MOST_READ  # likewise
    slices: Slices = field(default_factory=lambda: Slices(SLICE))

    async def add(self, given: list[Message]) -> list[Message]:
        """Calls of one message, for the template."""
        shown = []
        for call in given:
            shown.append(self._one(call))
            arguments = call["function"]["arguments"]
            await self.slices.did(A_CALL + (len(arguments) if isinstance(arguments, str) else 0))
        return shown

    def _one(self, call: Message) -> Message:
        name = call["function"]["name"]
        self.names[call["id"]] = name
        self.newest[name] = call["id"]
        given = call["function"]["arguments"]
        function = {"name": name, "arguments": self._read(given) if isinstance(given, str) else given}
        return {"id": call["id"], "type": "function", "function": function}

    def _read(self, text: str) -> dict[str, Any]:
        """Clients send arguments as text. Those that are no object were written so by a model, or cut off,
        and clients send them back with every turn that follows: the model is shown them as what they are.
        """
        encoded = text.encode(errors="surrogatepass")
        shape = shape_of(encoded)
        self.parts_left -= shape.parts
        self.values_left -= shape.values + shape.texts
        if self.parts_left < 0 or self.values_left < 0:
            raise bad_request(
                f"the arguments of the calls in 'messages' have more than {MOST_PARTS} objects, arrays and "
                f"members of objects, or {MOST_READ} values and texts, together: send fewer of them",
                "messages",
                "invalid_value",
            )
        if shape.depth > MOST_DEPTH or shape.number > MOST_DIGITS:
            return {INVALID: text}
        try:
            arguments = read_counted(encoded, shape, lambda: text) if text else None
        except ValueError:
            return {INVALID: text}
        if arguments is None:
            return {}
        return arguments if isinstance(arguments, dict) else {INVALID: text}


async def _message(message: Message, calls: _Calls) -> Message:
    message = _of_tools(message, calls)
    content = message.get("content")
    shown = {**message, "content": content if isinstance(content, str) else _joined(content)}
    if message["role"] == "tool" and "name" not in message:
        shown["name"] = calls.names.get(message["tool_call_id"], "")
    if message["role"] == "assistant":
        shown["content"] = "\n".join(filter(None, (shown["content"], message.get("refusal"))))
        if called := message.get("tool_calls"):
            shown["tool_calls"] = await calls.add(called)
        else:
            shown.pop("tool_calls", None)
        if reasoning := message.get("reasoning_content") or message.get("reasoning"):
            shown["reasoning_content"] = reasoning
    return shown


def _of_tools(message: Message, calls: _Calls) -> Message:
    """A call or a result as OpenAI had them before there were tools, in the form of today."""
    if message["role"] == "function":
        return {**message, "role": "tool", "tool_call_id": calls.newest.get(message["name"], "")}
    kept = {name: value for name, value in message.items() if name != "function_call"}
    called = message.get("function_call") if message["role"] == "assistant" else None
    if called is None:
        return kept
    call = {"id": f"call_{len(calls.names)}", "type": "function", "function": called}
    return {**kept, "tool_calls": [*(message.get("tool_calls") or ()), call]}


def _joined(parts: list[Message] | None) -> str:
    return "\n".join(
        part["refusal"] if part.get("type") == "refusal" else part["text"] for part in parts or ()
    )


def tools_for_template(tools: list[Message]) -> list[Message]:
    """Checked tools of OpenAI's form, without what says nothing to a model."""
    return [{"type": "function", "function": _function(tool["function"])} for tool in tools]


def shown_tools(tools: list[Message], constraint: Constraint) -> list[Message]:
    """Those that the model is told of. Where it need not call any, nothing but that keeps it to some of them;
    where it must, its grammar does, and prompts begin alike whichever they are.
    """
    names = {tool.name for tool in constraint.tools}
    return [tool for tool in tools if constraint.must or tool["function"]["name"] in names]


def _function(function: Message) -> Message:
    kept = {name: value for name, value in function.items() if value is not None and name != "strict"}
    return {"parameters": {"type": "object", "properties": {}}, **kept} if "parameters" not in kept else kept

"""What answers are held to, as grammars: a form of their text, calls of tools, or both."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nic_frontend.api.served import Served
from nic_frontend.compiling.store import Source
from nic_frontend.errors import bad_request
from nic_frontend.grammar.calls import Function
from nic_frontend.grammar.content import Content
from nic_frontend.parsing.answer_form import AnswerForm
from nic_frontend.ring.request import Sampling


@dataclass(frozen=True)
class Constraint:
    """`content` is what the text may be. `tools` are those that may be called: one at least if `must`, one at
    most if not `many`.
    """

    content: Content | None = None
    tools: list[Function] = field(default_factory=list)
    must: bool = False
    many: bool = True

    @property
    def param(self) -> str:
        """The request's field that it comes from."""
        return "tool_choice" if self.must else self.content.param if self.content else "tools"

    @property
    def loosened(self) -> Constraint:
        """The same without the parameters of tools that are not strict."""
        free = [tool if tool.strict else replace(tool, parameters=None) for tool in self.tools]
        return replace(self, tools=free)

    def narrows(self, form: AnswerForm, available: bool) -> bool:
        """Whether an answer may not be any text. `available`: grammars."""
        return self.content is not None or self.must or (available and self._holds_calls(form))

    def _holds_calls(self, form: AnswerForm) -> bool:
        """Whether a model that need not call tools is held to their schemas where it does."""
        return form.holds_calls and any(tool.strict for tool in self.tools)


class Blocks(NamedTuple):
    """Grammars. None: an answer may be any text."""

    whole: bytes | None = None
    concluding: bytes | None = None  # of an answer whose thinking was ended
    param: str = ""  # the request's field that they come from


NO_BLOCKS = Blocks()


async def blocks_of(
    constraint: Constraint, form: AnswerForm, served: Served, *, concludes: bool = False
) -> Blocks:
    """`form`: of the answer. `concludes`: its thoughts may be ended. Raises ApiError 400 naming a field."""
    if not constraint.narrows(form, served.grammars.available):
        return NO_BLOCKS

    async def block(of: AnswerForm) -> bytes:
        source, looser = source_of(constraint, of), source_of(constraint.loosened, of)
        otherwise = None if looser == source else looser
        return await served.grammars.block(source, constraint.param, otherwise=otherwise, asker=served.asker)

    whole = await block(form)
    concluding = await block(form.concluded.form) if concludes and form.finds_reasoning else None
    return Blocks(whole, concluding, constraint.param)


def source_of(wanted: Constraint, form: AnswerForm) -> Source:
    """What decides which grammar it is, as compiling/answer.py reads it."""
    parser, thinks = form.key
    return {
        "content": wanted.content.key if wanted.content else None,
        "tools": [[tool.name, tool.parameters, tool.strict] for tool in wanted.tools],
        "calls": [wanted.must, wanted.many, parser],
        "thinks": thinks,
    }


def check_ends(sampling: Sampling, grammars: Blocks) -> None:
    """Raises ApiError 400 for answers that would have to go on where their grammar ends."""
    for name in ("min_tokens", "ignore_eos"):
        if grammars.whole is not None and getattr(sampling, name):
            raise bad_request(
                f"{name!r} does not go with {grammars.param!r}, which says where an answer ends",
                name,
                "invalid_value",
            )


def chosen(
    tools: list[Function], kind: str, names: list[str] | None, one_call: bool, content: Content | None
) -> Constraint:
    """Of a request's `tool_choice`: "auto", "none" or "required", of all tools or of those with `names`.

    Raises ApiError 400 where there is no such tool.
    """
    if kind == "none":
        return Constraint(content)
    given = {tool.name for tool in tools}
    wanted = given if names is None else set(names)
    for name in names or ():
        if name not in given:
            raise bad_request(
                f"'tool_choice' names {name[:100]!r}, "
                "which is none of the 'tools' that the model can be shown",
                "tool_choice",
                "invalid_value",
            )
    found = [tool for tool in tools if tool.name in wanted]
    if kind == "required" and not found:
        raise bad_request(
            "'tool_choice' asks for a call, and 'tools' has none that the model can be shown",
            "tool_choice",
            "invalid_value",
        )
    return Constraint(content, found, must=kind == "required", many=not one_call)

"""All that trials have shown of a chat template, in one object that goes from its process to the frontend."""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend import (
    calls_in_templates,
    contents_in_templates,
    roles_in_templates,
    thoughts_in_templates,
    tools_in_templates,
)
from nic_frontend.calls_in_templates import WrittenCalls
from nic_frontend.contents_in_templates import ContentForms
from nic_frontend.roles_in_templates import RoleForms
from nic_frontend.template_trial import TOOL, Message, Render, Trial
from nic_frontend.thoughts_in_templates import ThoughtForms
from nic_frontend.tools_in_templates import ToolForms


@dataclass(frozen=True)
class Forms:
    """How a template takes conversations in one of its two uses: without tools or with some."""

    contents: ContentForms
    tools: ToolForms
    roles: RoleForms
    written: WrittenCalls
    thoughts: ThoughtForms

    def apply(self, messages: list[Message], tools: list[Message] | None) -> list[Message]:
        """Messages of OpenAI's form, whose content is text, as the template takes them. Raises ApiError 400
        where it would not show all of them.
        """
        self.contents.check(messages)
        messages = self.contents.apply(self.roles.apply(self.tools.apply(messages)))
        if tools and self.tools.in_system:
            return tools_in_templates.with_tools_in_system(messages, tools)
        return messages


@dataclass(frozen=True)
class TemplateForms:
    """Of a template, or of two: a model may have another one for requests with tools. `with_tools` is
    None where no tools are shown. `variables` are those that the templates read.
    """

    plain: Forms
    with_tools: Forms | None
    variables: frozenset[str]

    def of(self, tools: object) -> Forms:
        """Those for a conversation with these tools, or without any."""
        return self.with_tools if tools and self.with_tools is not None else self.plain


def probe(render: Render, variables: frozenset[str]) -> TemplateForms:
    """Tries a template. Most take another path where there are tools, so everything is tried twice."""
    return TemplateForms(_forms(Trial(render)), _with_tools(Trial(render, [TOOL])), variables)


def _with_tools(trial: Trial) -> Forms | None:
    contents = contents_in_templates.probe(trial)
    if tools_in_templates.shows_tools(trial.adapted(contents.apply)):
        return _forms(trial, contents)
    trial = trial.adapted(lambda messages: tools_in_templates.with_tools_in_system(messages, [TOOL]))
    contents = contents_in_templates.probe(trial)
    if tools_in_templates.shows_tools(trial.adapted(contents.apply)):
        return _forms(trial, contents, in_system=True)
    return None


def _forms(trial: Trial, contents: ContentForms | None = None, in_system: bool = False) -> Forms:
    contents = contents or contents_in_templates.probe(trial)
    calls = tools_in_templates.probe(trial.adapted(contents.apply))
    if calls is None or not calls.results:
        in_parts = contents.taking("tool")
        again = tools_in_templates.probe(trial.adapted(in_parts.apply))
        if again is not None and again.results:
            contents, calls = in_parts, again
    trial = trial.adapted(contents.apply)
    return Forms(
        contents,
        ToolForms(in_system, calls),
        roles_in_templates.probe(trial, calls),
        calls_in_templates.probe(trial, calls),
        thoughts_in_templates.probe(trial),
    )

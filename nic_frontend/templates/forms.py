"""All that trials have shown of a chat template, in one object that goes from its process to the frontend."""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.templates import calls as call_trials
from nic_frontend.templates import contents as content_trials
from nic_frontend.templates import roles as role_trials
from nic_frontend.templates import thoughts as thought_trials
from nic_frontend.templates import tools as tool_trials
from nic_frontend.templates.calls import WrittenCalls
from nic_frontend.templates.contents import ContentForms
from nic_frontend.templates.roles import RoleForms
from nic_frontend.templates.thoughts import ThoughtForms
from nic_frontend.templates.tools import ToolForms
from nic_frontend.templates.trial import TOOL, Message, Render, Trial


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
            return tool_trials.with_tools_in_system(messages, tools)
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
    contents = content_trials.probe(trial)
    if tool_trials.shows_tools(trial.adapted(contents.apply)):
        return _forms(trial, contents)
    trial = trial.adapted(lambda messages: tool_trials.with_tools_in_system(messages, [TOOL]))
    contents = content_trials.probe(trial)
    if tool_trials.shows_tools(trial.adapted(contents.apply)):
        return _forms(trial, contents, in_system=True)
    return None


def _forms(trial: Trial, contents: ContentForms | None = None, in_system: bool = False) -> Forms:
    contents = contents or content_trials.probe(trial)
    calls = tool_trials.probe(trial.adapted(contents.apply))
    if calls is None or not calls.results:
        in_parts = contents.taking("tool")
        again = tool_trials.probe(trial.adapted(in_parts.apply))
        if again is not None and again.results:
            contents, calls = in_parts, again
    trial = trial.adapted(contents.apply)
    return Forms(
        contents,
        ToolForms(in_system, calls),
        role_trials.probe(trial, calls),
        call_trials.probe(trial, calls),
        thought_trials.probe(trial),
    )

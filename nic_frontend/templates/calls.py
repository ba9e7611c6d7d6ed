"""How a model writes calls of tools, as its chat template shows: what the template writes for a call, and
what it tells the model about tools. parsing/registry.py finds the parser that reads these.
"""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.templates.tools import CallForm, talk
from nic_frontend.templates.trial import QUESTION, Message, Trial

MAX_TEXT = 1 << 14  # characters that are kept of a text


@dataclass(frozen=True)
class WrittenCalls:
    """`calls`: the call of a probe (tools.talk), as an answer may have it, in one text or
    more where it is not certain at which character the answer begins. Empty where the template shows no
    calls. `prompt`: of a question.
    """

    calls: tuple[str, ...]
    prompt: str


def probe(trial: Trial, form: CallForm | None) -> WrittenCalls:
    prompt = (trial.text(QUESTION) or "")[:MAX_TEXT]
    if form is None:
        return WrittenCalls((), prompt)
    calling = talk(form, "")[:2]
    text = trial.text(*calling, prompt=False) or trial.text(*talk(form, ""), prompt=False) or ""
    question = str(QUESTION["content"])
    behind = text.rpartition(question)[2]
    # An answer begins where a prompt ends, and where a text would begin: in front of calls either may go on.
    saying: Message = {"role": "assistant", "content": "probe_text"}
    up_to_text = (trial.text(QUESTION, saying, prompt=False) or "").partition("probe_text")[0]
    starts = [_common(text, other) for other in (up_to_text, trial.text(QUESTION) or "")]
    answers = [text[len(start) :] for start in starts if question in start]
    return WrittenCalls(tuple(answer[:MAX_TEXT] for answer in (*answers, behind)), prompt)


def _common(text: str, other: str) -> str:
    """What both begin with."""
    n = next(
        (n for n, (one, two) in enumerate(zip(text, other, strict=False)) if one != two),
        min(len(text), len(other)),
    )
    return text[:n]

"""What a chat template shows about thinking: with which marks its model thinks, and what turns that on or
off.
"""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.parsing.marks import REASONING_PARSERS, Marks
from nic_frontend.template_trial import QUESTION, Message, Trial, said

SWITCHES = ("enable_thinking", "thinking")  # Qwen3's and others' name; DeepSeek-V3.1's, Granite's
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # of reasoning_effort
THOUGHT, ANSWER = "probe_thought", "probe_answer"
# Models whose template has no more than marks write the opening one themselves. That they leave it out
# cannot be seen from a template that does not write it either, so `opened` is for --reasoning-parser
# alone.
PARSERS = {name: marks for name, marks in REASONING_PARSERS.items() if not marks.opened}


@dataclass(frozen=True)
class ThoughtForms:
    """`parser`: the name of the marks that the model writes around its thoughts; empty where it has none.
    `switches`: the variables that turn thinking on or off. `efforts`: those of reasoning_effort that
    change the prompt.
    """

    parser: str
    switches: tuple[str, ...]
    efforts: tuple[str, ...]


def probe(trial: Trial) -> ThoughtForms:
    (system,) = said("system")
    talks = [(QUESTION,), (system, QUESTION)]
    plain = [trial.text(*talk) for talk in talks]
    prompts = list(plain)

    def changes(name: str, value: object) -> bool:
        """Whether a variable means something in one of the conversations."""
        found = [trial.text(*talk, variables={name: value}) for talk in talks]
        prompts.extend(found)
        return found != plain

    # All values are tried, because each prompt may have the marks.
    changed = {name: [changes(name, value) for value in (True, False)] for name in SWITCHES}
    efforts = tuple(effort for effort in EFFORTS if changes("reasoning_effort", effort))
    shown = "\n".join(prompt for prompt in prompts if prompt is not None)
    found = [name for name, marks in PARSERS.items() if marks.opening in shown or marks.closing in shown]
    found += [name for name, marks in PARSERS.items() if _takes_apart(trial, marks) or _writes(trial, marks)]
    switches = tuple(name for name, values in changed.items() if any(values))
    return ThoughtForms(found[0] if found else "", switches, efforts)


def _takes_apart(trial: Trial, marks: Marks) -> bool:
    """Whether the thoughts of an answer are left out of the conversations that follow: the model wrote
    them.
    """
    (last,) = said("user")
    answer = _answer(f"{marks.opening}{THOUGHT}{marks.closing}{ANSWER}")
    text = trial.text(QUESTION, answer, last)
    return text is not None and ANSWER in text and THOUGHT not in text


def _writes(trial: Trial, marks: Marks) -> bool:
    """Whether thoughts that are told by themselves are put between the marks."""
    answer = {**_answer(ANSWER), "reasoning_content": THOUGHT}
    parts = [{"type": "thinking", "thinking": THOUGHT}, {"type": "text", "text": ANSWER}]
    for message in (answer, {**answer, "content": parts}):
        text = trial.text(QUESTION, message, prompt=False) or ""
        before, found, behind = text.partition(THOUGHT)
        if found and before.rstrip().endswith(marks.opening) and behind.lstrip().startswith(marks.closing):
            return True
    return False


def _answer(content: str) -> Message:
    return {"role": "assistant", "content": content}

"""What a chat template shows about thinking: the marks of thoughts, and what turns them on or off."""

from __future__ import annotations

from dataclasses import dataclass

from nic_frontend.templates.marks import REASONING_PARSERS, Marks
from nic_frontend.templates.trial import QUESTION, Message, Trial, said

SWITCHES = ("enable_thinking", "thinking")  # Qwen3's and others' name; DeepSeek-V3.1's, Granite's
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # of reasoning_effort
THOUGHT, ANSWER = "probe_thought", "probe_answer"
# A prompt shows whether it begins a thought. That a model leaves the opening mark out shows nowhere, and an
# answer without thoughts would become one: `opened` is for --reasoning-parser alone.
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
        changed = [trial.text(*talk, variables={name: value}) for talk in talks]
        prompts.extend(changed)
        return changed != plain

    # All values are tried, because each prompt may have the marks.
    switches = {name: [changes(name, value) for value in (True, False)] for name in SWITCHES}
    efforts = tuple(effort for effort in EFFORTS if changes("reasoning_effort", effort))
    shown = "\n".join(prompt for prompt in prompts if prompt is not None)
    parsers = [name for name, marks in PARSERS.items() if marks.opening in shown or marks.closing in shown]
    parsers += [
        name for name, marks in PARSERS.items() if _takes_apart(trial, marks) or _writes(trial, marks)
    ]
    known = tuple(name for name, values in switches.items() if any(values))
    return ThoughtForms(parsers[0] if parsers else "", known, efforts)


def _takes_apart(trial: Trial, marks: Marks) -> bool:
    """Whether later prompts leave the thoughts of an answer out: so the model writes some."""
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
        before, thought, behind = text.partition(THOUGHT)
        if thought and before.rstrip().endswith(marks.opening) and behind.lstrip().startswith(marks.closing):
            return True
    return False


def _answer(content: str) -> Message:
    return {"role": "assistant", "content": content}

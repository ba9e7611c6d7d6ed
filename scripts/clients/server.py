#!/usr/bin/env python3
"""Frontends for clients to try, with a scripted model in place of the scheduler: it calls the first tool
that it is given, says what the tool answered, and what it is shown of its thoughts when it is asked for them.
Where an answer has to have a form, and that has another, it is anything of the form. Prints two URLs, of a
frontend that stores no responses and of one that does, each in a line, and serves until its input ends.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
TESTS = ("tests", "tests/nic_frontend", "tests/nic_frontend/grammar")
sys.path[:0] = [str(ROOT), *(str(ROOT / path) for path in TESTS)]

from harness import Frontend  # noqa: E402
from mock_backend import MockBackend  # noqa: E402
from mock_row import Row  # noqa: E402
from templates import HERMES, write_model_with  # noqa: E402
from tiny_model import build_tokenizer  # noqa: E402
from walking import RandomAnswers  # noqa: E402

from ringbuffer.grammar import Walk, accepts, unpack  # noqa: E402

# As Qwen3's, which shows what was thought, too.
TEMPLATE = HERMES.replace(
    "<|im_start|>{{ message.role }}\n",
    "<|im_start|>{{ message.role }}\n{% if message.reasoning_content %}"
    "<think>\n{{ message.reasoning_content }}\n</think>\n\n{% endif %}",
)
assert TEMPLATE != HERMES
TOKENIZER = build_tokenizer()
VALUES = {"string": "Paris", "integer": 3, "number": 1.5, "boolean": True, "array": [], "object": {}}


def arguments(parameters: dict[str, object]) -> dict[str, object]:
    """A value for each property that a schema requires."""
    properties, required = parameters.get("properties", {}), parameters.get("required", [])
    assert isinstance(properties, dict)
    assert isinstance(required, list)
    return {name: VALUES.get(properties[name].get("type"), "Paris") for name in required}


def reply(prompt: str) -> str:
    """The last message decides."""
    last = prompt.rpartition("<|im_start|>assistant")[0].rpartition("<|im_start|>")[2]
    role, _, content = last.partition("\n")
    content = content.partition("<|im_end|>")[0]
    if role == "tool":
        return f"The tool says: {content.strip()}"
    if content.strip() == "What did you think?":
        thoughts = re.findall(r"<think>\n(.*?)\n</think>", prompt, re.DOTALL)
        return f"I thought: {' '.join(thought.strip() for thought in thoughts)}"
    tools = re.findall(r'^\{"type": "function".*\}$', prompt, re.MULTILINE)
    if tools:
        function = json.loads(tools[0])["function"]
        call = {"name": function["name"], "arguments": arguments(function["parameters"])}
        return (
            f"<think>\nI need a tool.\n</think>\n\nOne moment.\n<tool_call>\n{json.dumps(call)}\n</tool_call>"
        )
    return f"<think>\nHm.\n</think>\n\nYou said: {content.strip()}"


def formed(text: str, grammar: bytes) -> str:
    """The text, where the grammar allows it; else another one."""
    language = unpack(grammar)
    if accepts(language, text.encode()):
        return text
    thoughts, _, said = text.rpartition("</think>\n\n")
    call = said.removeprefix("One moment.\n")
    begin = f"{thoughts}</think>\n\n".encode()
    if accepts(language, begin + call.encode()):
        return begin.decode() + call
    if not Walk(language).step_all(begin):
        begin = b""
    random_answers = RandomAnswers(language, random.Random(0))
    answers = (random_answers.one(begin) for _ in range(100))
    return next(answer for answer in answers if answer is not None).decode()


class Model(MockBackend):
    def answer(self, row: Row) -> Iterator[int]:
        text = reply(TOKENIZER.decode(row.prompt, skip_special_tokens=False))
        text = formed(text, row.grammar) if row.grammar else text
        return iter(TOKENIZER.encode(text, add_special_tokens=False).ids)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        model = write_model_with(Path(directory) / "model", TEMPLATE)
        ring = Path(f"/dev/shm/blink-clients-{os.getpid()}")
        backend = Model(ring, model, n_leases=2, n_slots=128, max_context=16384, step_s=0.0005).start()
        backend.tokens_per_step = 4
        frontend = Frontend(backend, model)
        storing = Frontend(backend, model, store_responses=Path(directory) / "responses")
        try:
            print(frontend.url, storing.url, sep="\n", flush=True)
            sys.stdin.read()
        finally:
            storing.stop()
            frontend.stop()
            backend.stop()


if __name__ == "__main__":
    main()

"""The process in which OpenAI's library renders conversations (templates/process.py says how)."""

from __future__ import annotations

from nic_frontend.harmony.prompts import HarmonyPrompts
from nic_frontend.harmony.vocabulary import load_encoding
from nic_frontend.processes.confined import confine
from nic_frontend.templates.process import Task, run


def load(task: Task) -> HarmonyPrompts:
    encoding = load_encoding(task.directory)  # which writes a file: a confined process must not
    confine(task.memory_bytes)
    return HarmonyPrompts(encoding)


if __name__ == "__main__":
    run(load)

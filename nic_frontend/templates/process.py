"""The process in which a model's chat template is rendered, until its frontend closes their socket.

A frontend sends requests as frames with pickled arguments of Prompts.render, and gets a frame for each, in
their order: what was rendered behind the byte TEXT, or as JSON behind SEGMENTS, or behind ERROR what a client
is to be told, as JSON. The first frame says what trials have shown of the template, as
JSON of TemplateForms behind TEXT, or behind ERROR why it cannot be used. Nothing that comes from here is
unpickled.
"""

from __future__ import annotations

import json
import pickle
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from nic_frontend.errors import ApiError
from nic_frontend.processes.confined import be_quiet, confine, outlive_signals_to_all
from nic_frontend.processes.frames import Frames, framed
from nic_frontend.templates.chat_template import ChatTemplate, read_source
from nic_frontend.templates.forms import TemplateForms
from nic_frontend.templates.prompt_end import PromptEnd
from nic_frontend.templates.trial import Message
from ringbuffer.model_file import one_line

# A prompt in pieces. Tokens are final, and in texts no special tokens are to be looked for.
Segments = list[list[int] | str]
TEXT, ERROR, SEGMENTS = b"\x00", b"\x01", b"\x02"
READ_BYTES = 1 << 18
ENCODING = "utf-8", "surrogatepass"  # the frontend refuses lone surrogates
PATIENCE = 4  # times the frontend's: it may have died while this process renders without end


class Prompts(Protocol):
    """What makes prompts of conversations. `forms`: how it takes them."""

    forms: TemplateForms

    def render(
        self, messages: list[Message], end: PromptEnd, options: dict[str, Any], tools: list[Message] | None
    ) -> str | Segments:
        """Raises ApiError."""
        ...


@dataclass(frozen=True)
class Task:
    """What a process is started with."""

    directory: Path
    chat_template: Path | None
    most_text: int
    memory_bytes: int


def rendered(prompts: Prompts, request: bytes) -> bytes:
    try:
        made = prompts.render(*pickle.loads(request))
    except ApiError as error:
        return ERROR + json.dumps([error.status, error.body["error"]]).encode()
    return TEXT + made.encode(*ENCODING) if isinstance(made, str) else SEGMENTS + json.dumps(made).encode()


def run(load: Callable[[Task], Prompts]) -> None:
    """Renders until the frontend closes the socket. `load` confines this process, too."""
    descriptor, directory, chat_template, most_text, memory_bytes, patience_s = sys.argv[1:]
    be_quiet()
    outlive_signals_to_all()
    connection = socket.socket(fileno=int(descriptor))
    frames = Frames(sys.maxsize)
    chosen = Path(chat_template) if chat_template else None
    try:
        prompts = load(Task(Path(directory), chosen, int(most_text), int(memory_bytes)))
    except Exception as error:  # a template is a program
        connection.sendall(
            framed(ERROR + one_line(f"{type(error).__name__}: {error}", 1000).encode(*ENCODING))
        )
        return
    connection.sendall(framed(TEXT + msgspec.json.encode(prompts.forms)))
    while data := connection.recv(READ_BYTES):
        for request in frames.feed(data):
            signal.setitimer(
                signal.ITIMER_REAL, PATIENCE * float(patience_s)
            )  # the kernel then ends the process
            answer = rendered(prompts, request)
            connection.sendall(framed(answer))
            signal.setitimer(signal.ITIMER_REAL, 0)


def load_template(task: Task) -> ChatTemplate:
    confine(task.memory_bytes)
    source = read_source(task.directory, task.chat_template)
    assert source is not None
    return ChatTemplate(source, task.most_text)


def arguments(error: bytes) -> tuple[int, dict[str, Any]]:
    """Status and object of an ERROR frame, as far as they are what they should be."""
    status, body = json.loads(error)
    return int(status), {name: body[name] for name in ("message", "param", "code")}


if __name__ == "__main__":
    run(load_template)

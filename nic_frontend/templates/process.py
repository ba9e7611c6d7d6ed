"""The process in which a model's chat template is rendered, until its frontend closes their socket.

A frontend sends requests as frames with pickled arguments of ChatTemplate.render, and gets a frame for
each, in their order: what was rendered behind the byte TEXT, or behind ERROR what a client is to be told,
as JSON. The first frame says what trials have shown of the template, as JSON of TemplateForms behind
TEXT, or behind ERROR why it cannot be used. Nothing that comes from here is unpickled.
"""

from __future__ import annotations

import json
import pickle
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from nic_frontend.errors import ApiError
from nic_frontend.processes.confined import be_quiet, confine
from nic_frontend.processes.frames import Frames, framed
from nic_frontend.templates.chat_template import ChatTemplate, read_source
from ringbuffer.model_file import one_line

TEXT, ERROR = b"\x00", b"\x01"
READ_BYTES = 1 << 18
ENCODING = "utf-8", "surrogatepass"  # the frontend refuses lone surrogates
PATIENCE = 4  # times the frontend's: it may have died while this process renders without end


def rendered(template: ChatTemplate, request: bytes) -> bytes:
    try:
        return TEXT + template.render(*pickle.loads(request)).encode(*ENCODING)
    except ApiError as error:
        return ERROR + json.dumps([error.status, error.body["error"]]).encode()


def main() -> None:
    descriptor, directory, chat_template, most_text, memory_bytes, patience_s = sys.argv[1:]
    confine(int(memory_bytes))
    be_quiet()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the frontend's, which ends in order
    connection = socket.socket(fileno=int(descriptor))
    frames = Frames(sys.maxsize)
    try:
        source = read_source(Path(directory), Path(chat_template) if chat_template else None)
        assert source is not None
        template = ChatTemplate(source, int(most_text))
    except Exception as error:  # a template is a program
        connection.sendall(
            framed(ERROR + one_line(f"{type(error).__name__}: {error}", 1000).encode(*ENCODING))
        )
        return
    connection.sendall(framed(TEXT + msgspec.json.encode(template.forms)))
    while data := connection.recv(READ_BYTES):
        for request in frames.feed(data):
            signal.setitimer(
                signal.ITIMER_REAL, PATIENCE * float(patience_s)
            )  # the kernel then ends the process
            answer = rendered(template, request)
            connection.sendall(framed(answer))
            signal.setitimer(signal.ITIMER_REAL, 0)


def arguments(error: bytes) -> tuple[int, dict[str, Any]]:
    """Status and object of an ERROR frame, as far as they are what they should be."""
    status, body = json.loads(error)
    return int(status), {name: body[name] for name in ("message", "param", "code")}


if __name__ == "__main__":
    main()

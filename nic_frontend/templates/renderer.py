"""Renders chats in a process of its own, so that no template holds up the streams or takes all memory.

Requests go out as they come and are answered in their order. The oldest has `time_s` from when it became the
oldest; then the process is killed, its request is refused, and those behind it go to another process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import pickle
import socket
import subprocess
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from nic_frontend.errors import ApiError
from nic_frontend.processes.channel import Channel, has_ended, ignore
from nic_frontend.processes.confined import command, environment
from nic_frontend.processes.frames import FrameError, Frames, framed
from nic_frontend.templates.chat_template import read_source, refused
from nic_frontend.templates.forms import TemplateForms
from nic_frontend.templates.process import ERROR, SEGMENTS, TEXT, Segments, arguments
from nic_frontend.templates.prompt_end import PromptEnd

log = logging.getLogger(__name__)

Rendered = str | Segments
JINJA = "nic_frontend.templates.process"
START_S = 30.0  # until the process has compiled and tried the template: a busy machine takes a while
ERROR_BYTES = 1 << 16
FORMS_BYTES = 1 << 20  # of what the trials have shown


@dataclass(frozen=True)
class Bounds:
    """What a template may take for one prompt."""

    time_s: float
    memory_bytes: int
    most_text: int  # characters


@dataclass
class _Request:
    payload: bytes
    answer: asyncio.Future[Rendered]


class Renderer:
    """The chat template of a model directory, or that of a file in its place. `forms` are what trials of
    it have shown. `module` makes the prompts, in a process of its own; it calls process.run. Construct a
    renderer before the event loop runs; `close` it in the end.

    Raises ValueError when the template cannot be used.
    """

    def __init__(
        self, directory: Path, chat_template: Path | None, bounds: Bounds, module: str = JINJA
    ) -> None:
        self._directory, self._chat_template, self._bounds = directory, chat_template, bounds
        self._module = module
        self._waiting: deque[_Request] = deque()
        self._deadline: asyncio.TimerHandle | None = None
        self._channel: Channel | None = None
        self._starting: asyncio.Task[None] | None = None
        self._process, self._socket, self.forms = self._spawn()

    async def render(
        self,
        messages: list[dict[str, Any]],
        end: PromptEnd,
        options: dict[str, Any],
        tools: list[dict[str, Any]] | None = None,
    ) -> Rendered:
        """The prompt. Raises ApiError 400, also for what takes too much."""
        try:
            payload = framed(pickle.dumps((messages, end, options, tools)))
        except RecursionError as error:
            raise refused("what they have, or the tools, nests too deeply") from error
        request = _Request(payload, asyncio.get_running_loop().create_future())
        if self._channel is not None and not self._waiting and has_ended(self._socket):
            self._give_up_process()
        self._waiting.append(request)
        if self._channel is not None:
            self._channel.write(payload)
        elif self._starting is None:
            self._starting = asyncio.create_task(self._connect())
        if len(self._waiting) == 1:
            self._watch_oldest()
        return await request.answer

    def close(self) -> None:
        self._stop_watching()
        if self._channel is not None:
            self._channel.on_data = self._channel.on_end = ignore
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(OSError):
            self._socket.close()

    # ---------------------------------------------------------------- the process

    def _spawn(self) -> tuple[subprocess.Popen[bytes], socket.socket, TemplateForms]:
        """Starts the process and waits until it has tried the template and can render. Raises ValueError."""
        ours, theirs = socket.socketpair()
        bounds = self._bounds
        with theirs:
            process = subprocess.Popen(
                command(
                    self._module,
                    theirs.fileno(), self._directory, self._chat_template or "",
                    bounds.most_text, bounds.memory_bytes, bounds.time_s,
                ),
                pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=environment(),
            )  # fmt: skip
        try:
            first = _first_frame(ours)
            if first[:1] != TEXT:
                raise OSError(first[1:].decode(errors="replace"))
            forms = msgspec.json.decode(first[1:], type=TemplateForms)
        except (OSError, FrameError, msgspec.DecodeError) as error:
            process.kill()  # it may do anything but end
            process.wait()
            ours.close()
            why = str(error)
            if isinstance(error, msgspec.DecodeError):
                why = "what its process says of it makes no sense"
            elif isinstance(error, TimeoutError):
                why = f"it takes more than {START_S:g} s to render some small conversations"
            where = f"--chat-template {self._chat_template}" if self._chat_template else str(self._directory)
            raise ValueError(f"{where}: the chat template cannot be used: {why}") from error
        ours.setblocking(False)
        return process, ours, forms

    async def _connect(self) -> None:
        """Brings the process to the event loop, and to the process what waits for it."""
        try:
            channel = await self._open_channel()
        except (OSError, ValueError) as error:
            log.error("%s", error)
            self._give_up_process()  # the next request starts another
            while self._waiting:
                self._fail_oldest(ApiError(500, "the chat template cannot be rendered now"))
            return
        finally:
            self._starting = None
        channel.on_data, channel.on_end = self._on_frame, self._on_end
        self._channel = channel
        for request in self._waiting:
            channel.write(request.payload)
        self._watch_oldest()

    async def _open_channel(self) -> Channel:
        """To the process, or to another where that has ended before anything was asked of it: no request is
        to blame. Raises OSError and ValueError.
        """
        loop = asyncio.get_running_loop()
        for _ in range(2):
            if self._process.poll() is not None:
                self._socket.close()
                self._process, self._socket, _ = await loop.run_in_executor(None, self._spawn)
            _, channel = await loop.create_unix_connection(
                lambda: Channel(4 * self._bounds.most_text + ERROR_BYTES), sock=self._socket
            )
            if not has_ended(self._socket):
                return channel
            channel.abandon()
            self._give_up_process()
        raise OSError("the chat template's process ends before anything is asked of it")

    def _give_up_process(self) -> None:
        if self._channel is not None:
            self._channel.abandon()
            self._channel = None
        self._process.kill()
        self._process.wait()
        self._socket.close()

    def _on_end(self, why: str) -> None:
        """The process has ended, or is to: its oldest request is to blame, the others go to another."""
        self._give_up_process()
        log.warning("a chat template was given up: %s", why)
        if self._waiting:
            self._fail_oldest(refused(why))
        if self._waiting and self._starting is None:
            self._starting = asyncio.create_task(self._connect())

    # ---------------------------------------------------------------- answers

    def _on_frame(self, frame: bytes) -> None:
        if not self._waiting:
            return
        try:
            if frame[:1] == TEXT:
                self._finish_oldest(frame[1:].decode())
            elif frame[:1] == SEGMENTS:
                self._finish_oldest(msgspec.json.decode(frame[1:], type=Segments))
            else:
                status, body = arguments(frame.removeprefix(ERROR))
                self._fail_oldest(ApiError(status, body["message"], param=body["param"], code=body["code"]))
        except UnicodeDecodeError:
            self._fail_oldest(refused("they have a lone surrogate, which no Unicode text has"))
        except (ValueError, KeyError, TypeError):  # a template that has broken out of its sandbox
            self._fail_oldest(refused("its answer makes no sense"))

    def _finish_oldest(self, made: Rendered) -> None:
        answer = self._waiting.popleft().answer
        if not answer.done():  # its client may have left
            answer.set_result(made)
        self._watch_oldest()

    def _fail_oldest(self, error: ApiError) -> None:
        answer = self._waiting.popleft().answer
        if not answer.done():
            answer.set_exception(error)
        self._watch_oldest()

    def _watch_oldest(self) -> None:
        self._stop_watching()
        if self._waiting and self._channel is not None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._bounds.time_s, self._on_timeout)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _on_timeout(self) -> None:
        if self._channel is not None:
            self._on_end(f"it takes more than {self._bounds.time_s:g} s")


def open_renderer(directory: Path, bounds: Bounds, chat_template: Path | None = None) -> Renderer | None:
    """`chat_template` is a file in the place of what the directory has. None where there is no template.

    Raises ValueError, FileNotFoundError.
    """
    if read_source(directory, chat_template) is None:
        return None
    renderer = Renderer(directory, chat_template, bounds)
    if lost := renderer.forms.plain.contents.lost:
        log.warning("the chat template shows nothing of what these roles say: %s", ", ".join(sorted(lost)))
    return renderer


def _first_frame(connection: socket.socket) -> bytes:
    """Within START_S, however slowly it comes."""
    frames, deadline = Frames(FORMS_BYTES), time.monotonic() + START_S
    while (left_s := deadline - time.monotonic()) > 0:
        connection.settimeout(left_s)
        if not (data := connection.recv(ERROR_BYTES)):
            raise OSError("its process ended")
        for frame in frames.feed(data):
            return frame
    raise TimeoutError

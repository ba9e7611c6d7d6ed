"""One process that compiles grammars (compile_process.py), as the event loop sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence

from nic_frontend.compiling.protocol import MEMORY_BYTES, READY, TOO_SLOW, Answer, most_bytes, unpacked
from nic_frontend.processes.channel import ENDED, Channel, ignore
from nic_frontend.processes.confined import command, environment
from nic_frontend.processes.frames import framed

START_S = 30.0  # until a process is ready: a busy machine takes a while
END_S = 1.0  # until a process is gone that has closed its socket
ANSWER_S = 30.0  # until it answers, however long it had to wait for a processor
MOST_ANSWERS = 1_000  # and then another process: who breaks out of one has no more grammars in hand
OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)  # what a grammar need not have caused


class Worker:
    """`on_ready` is called when it may be given work; `on_answer` with what became of that; `on_end` when the
    process is no more: with why, and whether what it was working at is to blame. What the process says
    is believed only where it was asked: somebody may have broken out of a grammar.
    """

    def __init__(self, first_frame: bytes, max_words: int) -> None:
        self._first_frame = first_frame
        self._max_words = max_words
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        self._is_asked = False
        self._answers = 0
        self.is_ready = False
        self.was_ready = False
        self._tell_nobody()

    def _tell_nobody(self) -> None:
        self.on_ready: Callable[[], None] = lambda: None
        self.on_answer: Callable[[Answer], None] = lambda answer: None
        self.on_end: Callable[[str, bool], None] = lambda why, to_blame: None

    async def start(self) -> None:
        """Raises OSError."""
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        arguments = command("nic_frontend.compiling.compile_process", theirs.fileno(), MEMORY_BYTES)
        try:
            with theirs:
                self._process = await loop.run_in_executor(None, _spawned, arguments, theirs)
        except BaseException:
            ours.close()
            raise
        ours.setblocking(False)
        most = most_bytes(self._max_words)
        _, channel = await loop.create_unix_connection(lambda: Channel(most), sock=ours)
        channel.on_data, channel.on_end = self._on_frame, self._on_channel_end
        self._channel = channel
        channel.write(framed(self._first_frame))
        self._watch(START_S)

    def work(self, level: int, source: bytes) -> None:
        """Gives it a source. It must be ready, and is again when it has answered."""
        assert self._channel is not None
        self.is_ready = False
        self._is_asked = True
        self._channel.write(framed(bytes([level]) + source))
        self._watch(ANSWER_S)

    def kill(self) -> None:
        """Ends the process; nobody is told, not even by what is under way: another process may have the
        place of this one by then. `wait` for it somewhere else than on the event loop.
        """
        self._stop_watching()
        self._tell_nobody()
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
        self.is_ready = False
        if self._channel is not None:
            self._channel.abandon()
            self._channel = None
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """Ends the process where the event loop may have ended before."""
        self._stop_watching()
        if self._channel is not None:
            self._channel.on_data = self._channel.on_end = ignore
        if self._process is not None:
            self._process.kill()
        self.wait()

    def wait(self) -> None:
        """Until the process, which has been killed or ends, is gone."""
        if self._process is not None:
            self._process.wait()

    def _on_frame(self, frame: bytes) -> None:
        if not self.was_ready and frame == READY:
            self._stop_watching()
            self.is_ready = self.was_ready = True
            self.on_ready()
            return
        try:
            answer = unpacked(frame)
        except ValueError:
            self._end("its answer makes no sense", True)
            return
        if not self._is_asked:
            self._end("it answers what it was not asked", True)
            return
        self._stop_watching()
        self._is_asked = False
        self._answers += 1
        on_answer = self.on_answer
        if answer.is_last or self._answers >= MOST_ANSWERS:
            answer = answer._replace(is_last=True)
            self.kill()
        else:
            self.is_ready = True
        on_answer(answer)

    def _on_channel_end(self, why: str) -> None:
        """The process has ended, or has said what it must not."""
        self._stop_watching()
        self.is_ready = False
        if why == ENDED:
            self._ending = asyncio.ensure_future(self._find_out())
        else:
            self._end(why, True)

    async def _find_out(self) -> None:
        """How the process has ended."""
        assert self._process is not None
        process, status = self._process, 0
        with contextlib.suppress(subprocess.TimeoutExpired):  # it has only closed its socket
            wait = functools.partial(process.wait, END_S)
            status = await asyncio.get_running_loop().run_in_executor(None, wait)
        self._ending = None
        self._end(_why(status), status not in OUTSIDE)

    def _watch(self, seconds: float) -> None:
        self._stop_watching()
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(seconds, self._end, "it is not compiled in time", False)

    def _stop_watching(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _end(self, why: str, to_blame: bool) -> None:
        on_end = self.on_end
        self.kill()
        on_end(why, to_blame)


def _why(status: int) -> str:
    """What a process has ended of, by its exit status."""
    if status in OUTSIDE:
        return f"somebody else ended it ({signal.Signals(-status).name})"
    return TOO_SLOW if status == -signal.SIGPROF else "it takes too much memory, or too deep a stack"


def _spawned(arguments: Sequence[str], theirs: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        arguments, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, env=environment()
    )

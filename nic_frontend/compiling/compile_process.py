"""A process in which what clients ask for becomes grammars, until its frontend closes their socket.

Schemas and patterns are programs of a kind: what they need of time, memory and depth shows only when they are
compiled. Here the time of a grammar is limited by timers, of which the second ends the process, its memory by
the kernel, and a crash is one process less (compilers.py). protocol.py says what is sent.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from nic_frontend.compiling.answer import expression_of
from nic_frontend.compiling.protocol import (
    GRACE_S,
    MOST_TOLD,
    READY,
    SLICES_S,
    TOO_SLOW,
    Answer,
    Outcome,
    packed,
)
from nic_frontend.grammar.compiler import compiled
from nic_frontend.grammar.refusal import LONE_SURROGATE, GrammarRefused, GrammarTooSlow, OutOfTime
from nic_frontend.grammar.spelling import SpecialTexts
from nic_frontend.processes.confined import be_quiet, confine, outlive_signals_to_all
from nic_frontend.processes.frames import Frames, framed

READ_BYTES = 1 << 18
MOST_RESIDENT = 192 << 20  # bytes, and then another process: what a large one has taken is not all given back
MOST_DETAIL = 200  # characters of an error that nobody foresaw
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def _source(schema: Any) -> bytes:
    return json.dumps(
        {"content": ["json", schema], "tools": [], "calls": [False, True, None], "thinks": None}
    ).encode()


# What is loaded and made once is not to be missed in the first short slice. The tables of Unicode's
# characters take longer than that slice: they are made as soon as the process is ready.
WARM_UP = _source({"properties": {"a": {"type": "string", "pattern": "a"}, "b": {"type": "number"}}})
CLASSES = _source({"type": "string", "pattern": r"^(\s|\S|\w|\W|\d|\D|\p{L}|\P{L})$"})


class Clock:
    """Raises OutOfTime when this process has computed for long enough, and ends it a while later."""

    def __init__(self) -> None:
        self._runs = False
        signal.signal(signal.SIGVTALRM, self._on_signal)

    def _on_signal(self, _: int, __: FrameType | None) -> None:
        if self._runs:  # else it comes late
            raise OutOfTime

    @contextlib.contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        self._runs = True
        signal.setitimer(signal.ITIMER_PROF, seconds + GRACE_S)
        signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
        try:
            yield
        finally:
            self._runs = False
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.setitimer(signal.ITIMER_PROF, 0)


class Compiler:
    def __init__(self, special: SpecialTexts, max_words: int) -> None:
        self._special = special
        self._max_words = max_words
        self._clock = Clock()

    def answer(self, level: int, source: bytes) -> Answer:
        began, is_last = time.process_time(), False
        try:
            with self._clock.limited(SLICES_S[level]):
                outcome, content = self._outcome(source, SLICES_S[level])
        except (OutOfTime, GrammarTooSlow):
            outcome, content = Outcome.NOT_YET, b""
            if level + 1 == len(SLICES_S):
                outcome, content = _refused(TOO_SLOW)
        except MemoryError:
            outcome, content = _refused("it takes more memory than it may")
            is_last = True  # nobody knows what else it was needed for
        is_last = is_last or _resident() > MOST_RESIDENT
        return Answer(outcome, time.process_time() - began, content, is_last)

    def _outcome(self, source: bytes, seconds: float) -> tuple[Outcome, bytes]:
        ends = time.thread_time() + seconds
        try:
            root = expression_of(json.loads(source), self._special)
            return Outcome.BLOCK, compiled(root, self._max_words, max(0.0, ends - time.thread_time()))
        except GrammarTooSlow:
            raise
        except GrammarRefused as error:
            return _refused(str(error))
        except RecursionError:
            return _refused("it is nested too deeply")
        except UnicodeEncodeError:
            return _refused(LONE_SURROGATE)
        except MemoryError:
            raise
        except Exception as error:  # whatever it is, this grammar is what cannot be compiled
            kind = type(error).__name__
            text = f"the compiler fails on it ({kind})\n{kind}: {str(error)[:MOST_DETAIL]}"
            return Outcome.FAILED, text.encode(errors="replace")


def _refused(why: str) -> tuple[Outcome, bytes]:
    told = why if len(why) <= MOST_TOLD else f"{why[: MOST_TOLD - 3]}..."
    return Outcome.REFUSED, told.encode(errors="replace")


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES


def main() -> None:
    descriptor, memory_bytes = map(int, sys.argv[1:])
    confine(memory_bytes)
    be_quiet()
    outlive_signals_to_all()
    connection = socket.socket(fileno=descriptor)
    frames = Frames(sys.maxsize)
    compiler: Compiler | None = None
    while data := connection.recv(READ_BYTES):
        for frame in frames.feed(data):
            if compiler is None:
                special_texts, max_words = json.loads(frame)
                compiler = Compiler(SpecialTexts(special_texts), max_words)
                compiler.answer(len(SLICES_S) - 1, WARM_UP)
                connection.sendall(framed(READY))
                compiler.answer(len(SLICES_S) - 1, CLASSES)
                continue
            answer = compiler.answer(frame[0], frame[1:])
            connection.sendall(framed(packed(answer)))
            if answer.is_last:
                return


if __name__ == "__main__":
    main()

"""Tries a model's tokenizer in a process of its own, before a frontend relies on it.

A tokenizer.json may take all memory, or have regular expressions that never end. What fails here fails before
anybody is served. A frontend cannot tell what a tokenizer will do with every text: one that hangs later stops
that frontend alone, and its supervisor starts another.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from nic_frontend.processes.confined import command, confine, environment
from nic_frontend.text.tokenizer import HARD_STRINGS, LONG_TEXT, Tokenizer
from ringbuffer.model_file import one_line

MEMORY_BYTES = 4 << 30
CPU_S = 60  # for the whole trial
ENDS_S = 120.0  # by the clock: other processes may have the cores
SLOW_S = 2.0  # of processor time for LONG_TEXT characters: good tokenizers take some hundredths
PROBES = ("a", "A", " ", "\n", "1", "é", "漢", "😀", "ab ", "a1", "'s", "!?", ". ", *HARD_STRINGS[2:])


def try_tokenizer(directory: Path, vocab_size: int) -> None:
    """Raises ValueError when the tokenizer of a model directory cannot be used."""
    try:
        ended = subprocess.run(
            command(__name__, directory.resolve(), vocab_size),
            env=environment(), stdin=subprocess.DEVNULL, capture_output=True, timeout=ENDS_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ValueError(f"the tokenizer in {directory} takes more than {ENDS_S:g} s to load") from None
    if ended.returncode == 0:
        return
    reason = ended.stdout.decode(errors="replace").strip()
    if ended.returncode < 0:
        reason = "it crashes, or takes too much time or memory"
    raise ValueError(f"cannot use the tokenizer in {directory}: {reason or 'it takes too much memory'}")


def tried(directory: Path, vocab_size: int) -> str | None:
    """What is wrong with the tokenizer, or None."""
    tokenizer = Tokenizer(directory, vocab_size)
    for probe in PROBES:
        text = (probe * (LONG_TEXT // len(probe) + 1))[:LONG_TEXT]
        began = time.process_time()
        tokens = tokenizer.encode_now(text)
        tokenizer.decode_now(tokens[:LONG_TEXT])
        if (took := time.process_time() - began) > SLOW_S:
            return f"it takes {took:.1f} s for {LONG_TEXT} characters of {probe[:8]!r}"
    return None


def main() -> None:
    confine(MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    try:
        wrong = tried(Path(sys.argv[1]), int(sys.argv[2]))
    except Exception as error:
        wrong = str(error)
    if wrong:
        print(one_line(wrong, 1000), flush=True)
    os._exit(1 if wrong else 0)  # nothing here needs to be taken apart


if __name__ == "__main__":
    main()

"""Talks to a backend's exchange as a frontend that means harm, with its key and without.

    .venv/bin/python scripts/fuzz/exchange_frames.py [--count 20000] [--seconds S] [--seed N]

Nobody without the key is granted anything or gets a frame under it; a claim that is none is refused; a right
one is granted meanwhile; nothing is held when all have gone, and the log has no stack.
"""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import random
import socket
import struct
import sys
import tempfile
import time
from collections import Counter
from copy import deepcopy
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RIG = ROOT / "tests" / "ringbuffer" / "exchange"
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(RIG), str(ROOT / "scripts")]

from exchange_thread import KEY  # noqa: E402
from running_server import CLAIM, RunningServer  # noqa: E402

from fuzz import command  # noqa: E402
from fuzz.body_cases import FORMS, NUMBERS, TEXTS  # noqa: E402
from ringbuffer.rdma.session import FRAME, OPENING, ExchangeError, Role, Session, WrongKey, frame_size  # noqa: E402

WRONG_KEYS = [b"a key that is wrong", b"another, as wrong", KEY[::-1]]  # few: each takes time to stretch
PATIENCE_S = 5.0
IDLE_S = 0.02
EVERY = 200  # hostile ones, a right one
REST_S = 10.0


def draw_claim(rng: random.Random) -> Any:
    """A claim of which something is wrong, or nothing."""
    body = json.loads(json.dumps(CLAIM.body()))
    for _ in range(rng.choice([0, 1, 1, 3])):
        into = rng.choice([body, body["endpoint"]]) if isinstance(body.get("endpoint"), dict) else body
        name = rng.choice([*into, *TEXTS])
        into[name] = rng.choice([rng.choice(NUMBERS[:10]), rng.choice(TEXTS), deepcopy(rng.choice(FORMS))])
        if rng.random() < 0.2:
            del into[name]
    return body if rng.random() < 0.95 else rng.choice(FORMS)


def attack(server: RunningServer, rng: random.Random) -> str:
    """One connection; what came of it. Raises AssertionError."""
    knows = rng.random() < 0.5
    mine = Session(KEY if knows else rng.choice(WRONG_KEYS), Role.FRONTEND)
    with server.raw() as stream:
        stream.settimeout(PATIENCE_S)
        opening = mine.opening()
        if rng.random() < 0.3:
            at = rng.randrange(len(opening))
            opening = rng.choice(
                [opening[:at], opening[:at] + rng.randbytes(8) + opening[at + 8 :], opening * 2]
            )
        stream.sendall(opening)
        theirs = received(stream, OPENING.size)
        if len(theirs) < OPENING.size or len(opening) != OPENING.size:
            return "no opening"
        try:
            mine.begin(theirs)
        except ExchangeError:
            return "no opening"
        frame = mine.seal(draw_claim(rng))
        damaged = rng.random() < 0.3
        if damaged:
            at = rng.randrange(len(frame))
            frame = rng.choice(
                [frame[:at], frame[:at] + bytes([frame[at] ^ 1 << rng.randrange(8)]) + frame[at + 1 :],
                 struct.pack("<I", rng.choice([0, 1, 4096, 4097, 2**31, 2**32 - 1])) + frame[4:]]
            )  # fmt: skip
        stream.sendall(frame)
        stream.settimeout(IDLE_S if damaged else PATIENCE_S)
        header = received(stream, FRAME.size)
        if len(header) < FRAME.size:
            return "nothing"
        length, code = frame_size(header)
        raw = received(stream, length)
        try:
            answer = mine.unseal(code, raw)
        except WrongKey:
            assert code == bytes(32), "a frame under the key went to who did not prove it"
            return "refused without proof"
        assert knows, "who does not know the key was believed"
        assert not (damaged and answer["type"] == "grant"), "a damaged frame was believed"
        return str(answer["type"])


def received(stream: socket.socket, n: int) -> bytes:
    found = b""
    try:
        while len(found) < n and (part := stream.recv(n - len(found))):
            found += part
    except (TimeoutError, ConnectionError):
        pass
    return found


def run(first: int, count: int | None, seconds: float) -> command.Ran:
    counts, faults, log = Counter[str](), [], io.StringIO()
    logging.basicConfig(stream=log, level=logging.INFO, format="%(message)s")
    with tempfile.TemporaryDirectory(prefix="blink-fuzz-") as folder:
        ring = Path(folder) / "ring"
        ring.touch(mode=0o600)
        ring.write_bytes(bytes(64))
        server = RunningServer(ring, 4, PATIENCE_S)
        began = time.monotonic()
        for seed in command.seeds(first, count):
            if time.monotonic() - began > seconds:
                break
            try:
                counts[attack(server, random.Random(seed))] += 1
                if seed % EVERY == 0:
                    polite = server.connect()
                    assert polite.claim(dataclasses.replace(CLAIM)).lease < 4
                    polite.close()
            except (AssertionError, ExchangeError, OSError) as error:
                faults.append(f"{seed}: {error}")
        deadline = time.monotonic() + REST_S
        while server.server._strangers or server.server._holders:
            if time.monotonic() > deadline:
                faults.append("somebody is still there")
                break
            time.sleep(0.05)
        server.stop()
        if server.target.log.count("open") != server.target.log.count("close"):
            faults.append("queue pairs are left")
    if "Traceback" in log.getvalue():
        faults.append(log.getvalue()[log.getvalue().index("Traceback") :][:3000])
    return counts, faults


def main() -> int:
    options = command.parsed(__doc__, "connections", 20_000)
    return command.told(lambda: run(options.seed, options.count, options.seconds), options.seed)


if __name__ == "__main__":
    sys.exit(main())

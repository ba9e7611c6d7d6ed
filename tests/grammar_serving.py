"""A backend that is asked for answers under grammars, and judges of these."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from limits import WAIT_S
from regular import Node, either, grammar, matches, one_of, star, text, then, times

from blink.model_directory import demo_directory
from gpu_backend.backend import Backend
from gpu_backend.options import BackendOptions
from gpu_backend.schedulers.base import SchedulerKind
from ringbuffer.abi import Reason
from ringbuffer.client import RingClient, Stream
from ringbuffer.grammar import Walk
from ringbuffer.region import Region
from ringbuffer.token_bytes import answer_bytes

PAGE_BYTES = 2 * 4 * 6 * 2 * 64 * 16  # of the demo model: two, fp32, layers, KV heads, dimension, tokens
VOCAB = answer_bytes(demo_directory(), 1024) or []
PROMPT = [0, 4, 70, 71, 72, 5]
DIGITS, LETTERS = one_of(b"0123456789"), one_of(b"abcdefghijklmnopqrstuvwxyz")
STRING = one_of(bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\'))
QUOTED = then(text(b'"'), then(times(STRING, 0, 40), text(b'"')))
LANGUAGES = {
    "choice": either(text(b"yes"), either(text(b"no"), text("vielleicht, später".encode()))),
    "number": then(one_of(b"123456789"), times(DIGITS, 0, 30)),
    "words": then(LETTERS, star(either(LETTERS, text(b" ")))),
    "object": then(
        text(b'{"name": '), then(QUOTED, then(text(b', "age": '), then(times(DIGITS, 1, 3), text(b"}"))))
    ),
}


@dataclass
class Asked:
    language: Node | None
    stream: Stream

    def check(self) -> None:
        """Whole, where it has ended by itself; else what it has can be gone on with."""
        assert self.stream.reason in (Reason.EOS, Reason.LENGTH), self.stream.reason
        if self.language is None:
            return
        has_ended = self.stream.reason == Reason.EOS
        said = b"".join(VOCAB[token] for token in self.stream.tokens[: -1 if has_ended else None])
        if has_ended:
            assert matches(self.language, said), said
        else:
            assert Walk(grammar(self.language)).step_all(said), said


@contextmanager
def served(kind: SchedulerKind, device: str = "cpu", **changes: Any) -> Iterator[tuple[Backend, RingClient]]:
    name = f"/dev/shm/blink-test-{uuid.uuid4().hex[:12]}"
    backend = Backend(
        BackendOptions(
            demo_directory(), ring=name, device=device, slots=64, scheduler=kind, threads=1, **changes
        )
    )
    backend.start()
    assert isinstance(backend.ring, Region)
    client = RingClient(backend.ring)
    try:
        yield backend, client
    finally:
        client.close()
        assert backend.stop(0.0)


def ask(client: RingClient, languages: Sequence[Node | None], max_tokens: int = 60) -> list[Asked]:
    blocks = {node: grammar(node).pack() for node in languages if node}
    asked = [
        Asked(
            node,
            client.submit(
                [*PROMPT, 100 + i],
                max_tokens,
                node and blocks[node],
                temperature=i % 3 / 2,
                seed=i,
                top_p=0.95,
            ),
        )
        for i, node in enumerate(languages)
    ]
    client.wait([one.stream for one in asked], WAIT_S)
    return asked

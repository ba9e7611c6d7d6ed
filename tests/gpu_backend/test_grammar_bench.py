"""What scripts/bench/grammars.py walks through, and what it times, against a driver that runs nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import small_models
from bench.grammar_samples import document, vocabulary
from fake_cuda import all_captures, op, run

from ringbuffer.grammar import accepts, unpack

BENCH = """
sys.path.insert(0, str(Path(toolkit.__file__).resolve().parents[2] / "scripts"))
from bench import grammars, replay
from gpu_backend.cuda.driver import Device

replay.time_us = lambda enqueue, wait: (enqueue(), wait(), 7.0)[2]
device = Device()
bench = grammars.SamplerBench(device, grammars.vocabulary(3000), 16, {hidden})
for kind in (None, *grammars.KINDS):
    print(kind, bench.measure(kind, grammars.SAMPLING["drawn"]))
bench.close()
device.close()
"""


@pytest.mark.parametrize("hidden", [0, 256])
def test_the_sampler_is_timed_wherever_rows_stand(fake: Path, tmp_path: Path, hidden: int) -> None:
    pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")
    printed, log = run(fake, tmp_path, BENCH.format(hidden=hidden), small_models.DENSE)
    kinds = ("None", "structure", "key", "string", "number", "name", "choice", "mixed")
    assert printed.split("\n")[: len(kinds)] == [f"{kind} 7.0" for kind in kinds]
    timed = [[op(call) for call in capture] for capture in all_captures(log)]
    assert timed == [["skinny_gemm", "sample"] if hidden else ["sample"]] * len(kinds)


def test_documents_are_in_their_grammars() -> None:
    for seed in range(20):
        found = document(seed)
        assert accepts(unpack(found.grammar.pack()), found.text)
        assert not accepts(found.grammar, found.text[:-1])
        assert {"string", "number", "name", "choice", "structure", "key"} <= set(found.marks)


def test_the_vocabulary_has_different_tokens_and_all_bytes() -> None:
    found = vocabulary(5000)
    assert len(set(found)) == len(found) == 5000
    assert {bytes([byte]) for byte in range(256)} <= set(found)

"""The GPU's busy share, from spans that overlap; and a burst that is looked at, on the CPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("cuda.bindings", reason="needs cuda-bindings: scripts/setup gpu")
pytest.importorskip("torch")

from bench import transformers_batching, transformers_busy
from bench.transformers_busy import busy_share, merged, record_of, strip
from test_transformers_batching import SMALL

from blink.bench import timeline
from blink.bench.scheduler_runs import Workload

SPANS = [(10.0, 14.0), (0.0, 2.0), (1.0, 4.0), (11.0, 12.0), (16.0, 20.0)]


def test_a_moment_counts_once_however_many_kernels_run() -> None:
    assert merged(SPANS) == [(0.0, 4.0), (10.0, 14.0), (16.0, 20.0)]
    assert busy_share(SPANS) == pytest.approx(12 / 20)
    with pytest.raises(ValueError, match="nothing ran"):
        busy_share([])


def test_a_strip_begins_at_zero_and_has_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transformers_busy, "STRIP_US", 12.0)
    assert strip([(begin + 100, end + 100) for begin, end in SPANS]) == [(0.0, 4.0), (10.0, 12.0)]


def test_what_is_written_can_be_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="draws: scripts/setup bench")
    record = record_of("transformers sync", Workload(32, 16, 64), 2.0, [SPANS, SPANS[:2], SPANS])
    assert record["decode"][0]["busy"] == pytest.approx(12 / 20)
    timeline.draw(record | {"model": "m", "machine": "gpu"}, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"timeline.png", "makespan.png"}


def test_looks_are_spread_over_the_whole_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [100.0], []

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def look(seconds: float) -> list[tuple[float, float]]:
        looks.append(now[0] - 100.0)
        now[0] += seconds
        return SPANS if looks[-1] < 250 else []

    monkeypatch.setattr(transformers_busy, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(transformers_busy, "look", look)
    monkeypatch.setattr(transformers_busy, "answers", lambda *_: now[0] - 100.0)
    manager = SimpleNamespace(add_requests=lambda **_: None)
    _, seen = transformers_busy.measure(manager, Workload(2, 16, 8), expected_s=300.0)
    assert looks == [50.0, 150.0, 250.0]
    assert seen == [SPANS] * 2  # the burst had ended before the third


def test_a_burst_is_looked_at_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(transformers_busy, "look", lambda seconds: looked.append(seconds) or SPANS)
    model = transformers_batching.load("llama-3.2-1b", "cpu", **SMALL)
    work = Workload(2, 16, 8)
    with transformers_batching.running(model, [work], is_async=False) as manager:
        seconds, seen = transformers_busy.measure(manager, work, expected_s=0.01)
        assert transformers_busy.measure(manager, work)[1] == []
        assert transformers_busy.expected(manager, work, Workload(2, 16, 800)) > 0
    assert seconds > 0
    assert seen == [SPANS] * transformers_busy.LOOKS
    assert len(looked) == transformers_busy.LOOKS

"""`blink bench schedulers`: figures against traces made by hand, and a whole run on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from blink import cli
from blink.bench.scheduler_runs import Design, Runs, Workload, parse_design, parse_workload
from blink.bench.schedulers import Burst, add_speedups, head_of
from blink.bench.step_figures import predicted_speedup, step_figures, strip, zombie_tax
from gpu_backend.abi import StepKind
from gpu_backend.scheduler_abi import StepTrace
from gpu_backend.schedulers.base import SchedulerKind


def trace(
    *steps: tuple[int, int, int, int], kind: int = StepKind.DECODE, batch_slots: int = 2
) -> NDArray[Any]:
    """Steps of (id, start, sample, done) in microseconds; turns of 3 us, results seen after 7 us, by a clock
    that is 1,000 us ahead."""
    rows = np.zeros(len(steps), StepTrace)
    for row, (step, start, sample, done) in zip(rows, steps, strict=True):
        row["id"], row["kind"], row["batch_size"] = step, kind, batch_slots
        row["start_ns"], row["sample_ns"], row["done_ns"] = start * 1000, sample * 1000, done * 1000
        row["turn_ns"] = (start + 1000 - 10) * 1000
        row["launched_ns"] = row["turn_ns"] + 3000
        row["seen_ns"] = (done + 1000 + 7) * 1000
    return rows


STEPS = trace((4, 100, 180, 190), (5, 200, 280, 290), (6, 320, 400, 410))


def test_figures_of_steps_that_followed_one_another() -> None:
    figures = step_figures(STEPS, 2)
    assert (figures.steps, figures.forward_us, figures.sampling_us) == (3, 80, 10)
    assert (figures.period_us, figures.turn_us) == (110, 3)  # of 100 and 120
    assert figures.busy == pytest.approx(180 / 220)


def test_steps_of_other_sizes_and_gaps_between_rounds_do_not_count() -> None:
    others = trace((7, 420, 421, 900), kind=StepKind.PREFILL)
    partial = trace((8, 1000, 1001, 1500), batch_slots=1)
    later = trace((20, 9000, 9080, 9090), (21, 9100, 9180, 9190))
    figures = step_figures(np.concatenate([STEPS, others, partial, later]), 2)
    assert (figures.steps, figures.period_us) == (5, 100)
    with pytest.raises(ValueError, match="ask for longer answers"):
        step_figures(later[:1], 2)


def test_the_tax_of_one_stream_is_one_forward_an_answer_and_fades_in_a_batch() -> None:
    """Photon's figures: about 1 % at 110 tokens."""
    assert zombie_tax(1, 109, 1) == pytest.approx(1 / 110)
    assert zombie_tax(32, 32 * 109, 32) == pytest.approx(1 / 110 / 32)
    assert predicted_speedup(5.44, 5.10, 1 / 105) == pytest.approx(1.057, abs=0.001)  # its 3090, one stream


def test_a_strip_starts_at_zero_and_brings_two_clocks_together() -> None:
    spans = strip(STEPS, 2, one_clock=False)
    assert spans["engine"] == [[0, 90], [100, 190], [220, 310]]
    assert spans["scheduler"][0] == [-17, -14]  # as if the result had been seen when it was done


@pytest.mark.parametrize(
    ("text", "reason"), [("64x512", "not a workload"), ("0x5-5", "at least 1"), ("", "not a")]
)
def test_a_workload_that_is_none_is_told(text: str, reason: str) -> None:
    assert parse_workload("64x512-128") == Workload(64, 512, 128)
    with pytest.raises(ValueError, match=reason):
        parse_workload(text)


def test_an_end_that_nobody_foresees_is_a_token_and_the_bound_one_behind_it() -> None:
    """So one that misses its stop token makes one token more, which a step that ran ahead makes anyway."""
    asked: list[tuple[int, list[int]]] = []
    grammars: list[bytes | None] = []

    def prepare(prompt: list[int], n: int, grammar: bytes | None, **fields: Any) -> None:
        asked.append((n, fields["stop_ids"]))
        grammars.append(grammar)

    client: Any = SimpleNamespace(prepare=prepare)
    backend: Any = SimpleNamespace(config=SimpleNamespace(vocab_size=100))
    Runs(backend, client)._prepare(Workload(2, 4, 8), [[1, 2, 3], [4]], b"form")
    assert asked == [(4, [3]), (2, [4])]
    assert grammars == [b"form"] * 2


def test_a_design_is_a_scheduler_and_how_much_slower_its_host_is() -> None:
    assert parse_design("blocking+1500") == Design(SchedulerKind.BLOCKING, 1500)
    assert [str(parse_design(text)) for text in ("gpu", "async+20")] == ["gpu", "async+20"]
    for text, reason in (("gpu+5", "none can slow it down"), ("slow", "no scheduler"), ("async+", "whole")):
        with pytest.raises(ValueError, match=reason):
            parse_design(text)


def test_speed_ups_are_over_a_blocking_host_that_is_as_slow() -> None:
    def row(text: str, period: float, constrained: bool = False) -> dict[str, Any]:
        head = head_of(parse_design(text), Burst(Workload(8, 1, 1), b"form" if constrained else None))
        return head | {"period_us": period, "zombie_tax": 0.0, "tokens_per_s": 1e6 / period}

    rows = [row("gpu", 100), row("blocking", 125), row("blocking+50", 200), row("pipelined+50", 160)]
    rows += [row("blocking", 250, True), row("gpu", 200, True), row("async+9", 130)]
    add_speedups(rows)
    assert [found.get("observed") for found in rows] == pytest.approx([1.25, 1, 1, 1.25, 1, 1.25, None])
    assert rows[3]["predicted"] == pytest.approx(1.25)
    assert "predicted" not in rows[6]


@pytest.mark.slow
def test_a_slower_host_takes_longer_for_a_step_and_grammars_hold(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    designs = "--schedulers=blocking,blocking+30000,pipelined+30000"
    small = ["--streams=2", "--input=8", "--output=24", "--rounds=1", "--makespan=1x4-4", "--constrained"]
    command = ["bench", "schedulers", "demo", "--device=cpu", designs, *small, f"--json={results}"]
    assert cli.main(command) == 0
    decode = json.loads(results.read_text())["decode"]
    assert [(row["scheduler"], row["constrained"]) for row in decode] == [
        (name, constrained)
        for name in ("blocking", "blocking+30000", "pipelined+30000")
        for constrained in (False, True)
    ]
    assert all(row["same_answers"] == 1 for row in decode)
    assert all(row["turn_us"] >= 30000 for row in decode if row["host_work_us"])


@pytest.mark.slow
def test_every_scheduler_gives_the_same_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib", reason="draws: scripts/setup bench")
    results, pictures = tmp_path / "results.json", tmp_path / "pictures"
    small = ["--streams=1,3", "--input=24", "--output=48", "--rounds=2", "--makespan=5x16-8", "--commit=abc"]
    command = ["bench", "schedulers", "demo", "--device=cpu", *small]
    assert cli.main([*command, f"--json={results}", f"--plot={pictures}"]) == 0
    record = json.loads(results.read_text())
    assert [row["same_answers"] for row in (*record["decode"], *record["makespan"])] == [1.0] * 12
    rows = {(row["scheduler"], row["streams"]): row for row in record["decode"]}
    assert rows["blocking", 1]["zombie_tax"] == 0
    pipelined = rows["pipelined", 1]
    assert 0 < pipelined["zombie_tax"] <= 1 / (pipelined["mean_tokens"] + 1)  # one wasted step an answer
    assert all(row["host_cpu_us"] > 0 for (kind, _), row in rows.items() if kind != "gpu")
    assert "abc" in capsys.readouterr().out
    assert {path.name for path in pictures.iterdir()} == {"timeline.png", "makespan.png"}


def test_only_results_are_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert cli.main(["bench", "timeline", str(other), f"--out={tmp_path}"]) == 1
    assert "no result of `blink bench schedulers --json`" in capsys.readouterr().err

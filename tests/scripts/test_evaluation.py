"""The paper's tables beside ours: saturation of curves with a known knee, means, ratios, what is not told."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench import evaluation, evaluation_interference
from bench.curves import (
    Compared,
    compared,
    joules,
    joules_without_idle,
    latency,
    mean,
    of,
    rate,
    serviceable_load,
    unfinished,
)
from bench.saturation import Throughput, fitted
from bench.sweep_plan import Key
from bench.sweep_records import MEASURED, Record, record_of
from limits import PROGRAM_S

from blink.bench.metrics import measure, percentiles_of_all
from blink.bench.records import UNFINISHED, Outcome

ROOT = Path(__file__).resolve().parents[2]
MODEL = "llama-3-8b"
PAPER = json.loads(evaluation.PAPER.read_text())


def summary(value: float, n: int) -> dict[str, float]:
    return {"n": n, **dict.fromkeys(("mean", "p50", "p95", "p99", "p99.9", "max"), value)}


def record(
    load: float,
    variant: str = "blink",
    call: str = "a",
    *,
    completed: float | None = None,
    ttft: float = 100.0,
    a_token: float = 0.3,
    n: int = 200,
    complete: int | None = None,
    part: str = "sweep",
    condition: str = "isolated",
    repeat: int = 0,
) -> Record:
    done = n if complete is None else complete
    of_all = {
        f"{name}_of_all_ms": percentiles_of_all(np.full(done, value), n - done)
        for name, value in (("ttft", ttft), ("tpot", 10.0))
    }
    point: dict[str, Any] = {
        "requests_sent": n,
        "requests_complete": done,
        "requests_failed": n - done,
        "failures": {UNFINISHED: n - done} if done < n else {},
        **of_all,
        "offered_per_s": load,
        "completed_per_s": load if completed is None else completed,
        "output_tokens_per_s": 400 * load,
        "prompt_tokens_per_s": 1000 * load,
        "ttft_ms": summary(ttft, done) if done else None,
        "tpot_ms": summary(10.0, done) if done else None,
        "itl_ms": summary(9.0, 400 * done) if done else None,
        "energy": {"joules": 20_000 * a_token, "mean_watts": 300.0, "joules_per_token": a_token},
        "cpu": {"server": {"seconds": 1.0, "seconds_per_thousand_tokens": 0.05}},
        "client": {"bottleneck": False},
    }
    origin = {"date": "2026-12-01", "commit": "abc", "machine": "NVIDIA H200", "driver": "580", "card": "0f",
              "read_tb_per_s": 4.5, "idle_watts": 75.0}  # fmt: skip
    found = {"point": point, "trace": {"requests": n}, **origin}
    return record_of(Key(part, variant, MODEL, load, repeat, condition), call, MEASURED, found)


def rows(text: str) -> list[list[str]]:
    """Of a table, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert len({len(row) for row in found}) == 1
    return found[2:]


def ours(text: str, system: str) -> list[str]:
    """The row of the first model."""
    return next(row[2:] for row in rows(text) if row[:2] == ["Llama-3 8B", system])


def printed(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, ROOT / "scripts" / "bench" / "evaluation.py", *arguments]
    return subprocess.run(program, capture_output=True, text=True, timeout=PROGRAM_S, check=False)


LOADS = (1, 2, 4, 7, 10, 12, 14, 16, 20, 24, 32)


def curve(slope: float, plateau: float, wobble: float = 0.0) -> dict[float, Throughput]:
    return {
        load: Throughput(load, min(slope * load, plateau) * (1 + wobble * (-1) ** i))
        for i, load in enumerate(LOADS)
    }


@pytest.mark.parametrize("wobble", [0.0, 0.02])
@pytest.mark.parametrize("knee", [3.0, 8.5, 12.0, 18.0])
def test_the_knee_of_a_curve_is_found(knee: float, wobble: float) -> None:
    found = fitted(curve(0.98, 0.98 * knee, wobble))
    assert found.point == pytest.approx(knee, rel=1e-6 if not wobble else 0.05)
    assert found.slope == pytest.approx(0.98, rel=2 * wobble + 1e-6)
    if not wobble:
        assert found.operating_range == tuple(load for load in LOADS if load <= knee)


def test_arrivals_that_are_not_those_of_the_nominal_load_do_not_move_the_range() -> None:
    many = {load: Throughput(1.1 * load, min(1.1 * load, 12.0)) for load in LOADS}
    found = fitted(many)
    assert found.point == pytest.approx(12.0)
    assert found.operating_range == (1, 2, 4, 7, 10)  # 12 are 13.2 in fact


def test_a_curve_that_grows_to_its_end_has_no_plateau() -> None:
    found = fitted({load: Throughput(load, 0.97 * load) for load in LOADS})
    assert (found.plateau, found.point) == (None, None)
    assert found.operating_range == LOADS


def test_one_load_beyond_saturation_is_enough_where_it_loses_much() -> None:
    found = fitted({2: Throughput(2, 2), 7: Throughput(7, 7), 12: Throughput(12, 9)})
    assert found.point == pytest.approx(9.0)
    assert found.operating_range == (2, 7)
    with pytest.raises(ValueError, match="two loads at least"):
        fitted({2: Throughput(2, 2)})


def test_repeats_are_averaged_before_loads_are() -> None:
    records = [record(1, ttft=10), record(4, ttft=30), record(4, ttft=50, repeat=1)]
    records += [record(1, "vllm", ttft=40), record(4, "vllm", ttft=90)]
    found = compared(of(records, MODEL, "vllm"), of(records, MODEL, "blink"), latency("ttft", "p99"), (1, 4))
    assert found is not None
    assert found.second == pytest.approx(math.sqrt(10 * 40))
    assert found.first == pytest.approx(math.sqrt(40 * 90))
    assert found.ratio == pytest.approx(3.0)
    assert found.is_of_one_run


def test_servers_are_compared_within_the_run_that_measured_both() -> None:
    blink = [record(1, call="a", ttft=10), record(1, call="b", ttft=20)]
    together, apart = record(1, "vllm", "b", ttft=40), record(1, "vllm", "c", ttft=60)
    figure = latency("ttft", "p50")
    found = compared({1: [together, apart]}, {1: blink}, figure, (1,))
    assert found is not None
    assert (found.first, found.second, found.is_of_one_run) == (pytest.approx(40), pytest.approx(20), True)
    alone = compared({1: [apart]}, {1: blink}, figure, (1,))
    assert alone is not None
    assert (alone.first, alone.second, alone.is_of_one_run) == (pytest.approx(60), pytest.approx(15), False)


def test_a_load_that_one_of_them_lacks_is_in_neither_mean() -> None:
    figure = latency("ttft", "p50")
    found = compared({1: [record(1, ttft=40)]}, {1: [record(1, ttft=10)], 9: [record(9)]}, figure, (1, 9))
    assert found is not None
    assert (found.rates, found.second) == ((1,), pytest.approx(10))
    assert compared({}, {1: [record(1)]}, figure, (1,)) is None


def test_p999_is_told_of_a_thousand_values() -> None:
    assert latency("ttft", "p99.9")(record(1, n=999)) is None
    assert latency("ttft", "p99.9")(record(1, n=1000)) == 100.0
    assert latency("itl", "p99.9")(record(1, n=100)) == 9.0  # of 40,000 gaps


def test_requests_that_were_not_completed_are_longer_than_any() -> None:
    one_of_200 = record(1, complete=199)
    assert latency("ttft", "p99")(one_of_200) == 100.0
    two_of_200 = record(1, complete=198)  # between the 198th and the 199th
    assert latency("ttft", "p99")(two_of_200) == math.inf
    assert latency("ttft", "p95")(two_of_200) == 100.0
    assert latency("tpot", "p50")(record(1, complete=0)) == math.inf
    assert latency("itl", "p99")(two_of_200) == 9.0
    assert latency("ttft", "mean")(record(1, complete=0)) is None
    assert latency("ttft", "p99.9")(record(1, n=500, complete=400)) is None  # too few to tell


def test_the_median_of_requests_is_not_that_of_the_fastest() -> None:
    """As `blink bench serve` measures them: of 101 requests, the i-th has its first token after i ms and its
    second i ms later; the fastest 61 are completed.
    """
    times = [np.array([i, 2 * i], dtype=np.int64) * 1_000_000 for i in range(1, 102)]
    outcomes = [
        Outcome(i, None, 0, 0, 2, stamps, 2, True, None if i < 61 else UNFINISHED)
        for i, stamps in enumerate(times)
    ]
    measured = record(1)
    measured["point"] |= measure(outcomes, (0, 1_000_000_000), None)
    assert [latency(name, "p50")(measured) for name in ("ttft", "tpot", "itl")] == [51, 51, 31]
    assert latency("ttft", "mean")(measured) == 31
    assert unfinished(measured) == 40
    text = evaluation.markdown([measured], ["percentiles"]).split("**Phi-4 15B**")[0]
    ttft = ["61 of 101", "51.0", "31.0", "unbounded", "unbounded", "-"]
    (row,) = rows(text)
    assert row[4:10] == row[10:16] == ttft
    assert row[16] == "61"  # gaps


def test_records_that_do_not_count_unfinished_requests_are_refused(tmp_path: Path) -> None:
    old = record(1)
    del old["point"]["tpot_of_all_ms"]
    path = tmp_path / "old.jsonl"
    path.write_text(json.dumps(old) + "\n")
    done = printed(path)
    assert done.returncode == 1
    assert "run a, blink, llama-3-8b, 1 requests/s: this point has no ttft_of_all_ms or" in done.stderr


def test_the_serviceable_load_is_the_highest_that_keeps_95_percent() -> None:
    twice = [record(8, completed=7.7), record(8, completed=7.5, repeat=1)]
    records = [record(4), *twice, record(12, completed=11.3)]
    assert serviceable_load(of(records, MODEL, "blink")) == 8
    assert serviceable_load({4: [record(4, completed=3.7)]}) is None


def test_energy_without_what_an_idle_gpu_draws() -> None:
    assert joules(record(1)) == 0.3
    assert joules_without_idle(record(1)) == pytest.approx(0.3 * (300 - 75) / 300)
    assert joules_without_idle(record(1) | {"idle_watts": None}) is None


def test_a_mean_lacks_no_repeat() -> None:
    whole, short = record(1, n=1000), record(1, n=500, repeat=1)
    assert mean([whole, short], latency("ttft", "p99.9")) is None
    assert mean([], rate("completed_per_s")) is None


SWEPT = [
    record(load, name, completed=min(load, most), ttft=ttft * load)
    for name, most, ttft in (("blink", 12.0, 10), ("vllm", 10.0, 20))
    for load in (3, 6, 9, 12, 15, 18)
]


def test_table_6_is_of_blinks_operating_range() -> None:
    text = evaluation.markdown(SWEPT, ["table-6"])
    loads, ttft, tpot, completed = ours(text, "blink")
    assert loads == "3, 6, 9, 12"
    assert ttft == f"{10 * (3 * 6 * 9 * 12) ** 0.25:.1f} [1.00]"
    assert completed == "12.0 [1.00]"
    assert ours(text, "vllm") == [loads, f"{20 * (3 * 6 * 9 * 12) ** 0.25:,.0f} [2.00]", tpot, "10.0 [0.83]"]
    assert ours(text, "vllm-1024")[0] == "not run"
    assert ours(text, "paper: vLLM") == ["up to 12", "1,309.6 [2.00]", "24.2 [1.60]", "9.12 [0.77]"]


def test_ratios_of_several_runs_have_a_star() -> None:
    others = [record(load, "vllm-1024", "b", ttft=10.0 * load) for load in (3, 6, 9, 12)]
    assert ours(evaluation.markdown([*SWEPT, *others], ["table-6"]), "vllm-1024")[1].endswith("[1.00]*")


def test_a_ratio_to_an_unbounded_figure_says_so() -> None:
    endless = [record(load, "vllm", ttft=20.0, complete=100) for load in (3, 6, 9, 12)]
    fine = [each for each in SWEPT if each["variant"] == "blink"]
    ttft, tpot = ours(evaluation.markdown([*fine, *endless], ["table-6"]), "vllm")[1:3]
    assert (ttft, tpot) == ("unbounded", "unbounded")
    blink = [record(load, completed=min(load, 12.0), complete=100) for load in (3, 6, 9, 12, 15, 18)]
    others = [each for each in SWEPT if each["variant"] == "vllm"]
    text = evaluation.markdown([*blink, *others], ["table-6"])
    assert ours(text, "blink")[1:3] == ["unbounded", "unbounded"]
    assert ours(text, "vllm")[2] == "10.0 [to unbounded]"


@pytest.mark.parametrize(
    ("first", "second", "ratio"), [(6.0, 2.0, 3.0), (math.inf, 2.0, None), (6.0, math.inf, None)]
)
def test_only_finite_figures_have_a_ratio(first: float, second: float, ratio: float | None) -> None:
    assert Compared(first, second, (1.0,), True).ratio == ratio


def test_a_mean_of_fewer_loads_than_its_row_names_says_of_which() -> None:
    without = record(6, "vllm", ttft=120, completed=6)
    without["point"]["tpot_of_all_ms"] = None  # every answer had one token
    others = [each for each in SWEPT if each["variant"] == "vllm" and each["rate"] != 6]
    blink = [each for each in SWEPT if each["variant"] == "blink"]
    loads, ttft, tpot, _ = ours(evaluation.markdown([*blink, *others, without], ["table-6"]), "vllm")
    assert loads == "3, 6, 9, 12"
    assert ttft.endswith("[2.00]")
    assert tpot == "10.0 [1.00] at 3, 9, 12"


def test_throughput_is_that_at_saturation() -> None:
    text = evaluation.markdown(SWEPT, ["table-b2"])
    assert ours(text, "blink")[1:] == ["4,800 [1.00]", "12,000 [1.00]"]
    assert ours(text, "paper: Blink")[1:] == ["3,880 [1.00]", "595 [1.00]"]


def test_energy_is_compared_at_the_loads_that_one_run_measured_with_both() -> None:
    records = [record(3, a_token=0.2), record(3, a_token=0.4, repeat=1), record(9, a_token=0.7)]
    records += [record(6, a_token=0.5), record(12, a_token=9.0)]
    records += [record(3, "vllm", a_token=0.6), record(9, "vllm", a_token=1.4)]
    records += [record(6, "vllm", "c", a_token=99.0), record(9, "vllm", "c", a_token=99.0)]
    records.append(record(6, "vllm-1024", "b", a_token=1.0))
    text = evaluation.markdown(records, ["figure-8"])
    assert ours(text, "blink") == ["GPU", "3, 6, 9, 12", "2,625 [1.00]", "1,969 [1.00]"]
    assert ours(text, "vllm") == ["GPU", "3, 9", "1,000 [2.00]", "750 [2.00]"]
    assert ours(text, "vllm-1024") == ["GPU", "6", "1,000 [2.00]*", "750 [2.00]*"]
    assert ours(text, "paper: Blink") == ["whole server", "-", "363", "-"]


def test_energy_that_one_point_lacks_is_not_told() -> None:
    without = record(6, "vllm")
    del without["point"]["energy"]
    text = evaluation.markdown([record(3), record(6), record(3, "vllm"), without], ["figure-8"])
    assert ours(text, "vllm") == ["GPU", "3, 6", "-", "-"]
    assert ours(text, "vllm-1024") == ["GPU", "not run", "-", "-"]


def test_every_row_of_percentiles_says_what_it_is_of() -> None:
    records = [record(3, n=150), record(28, n=1200)]
    text = evaluation.markdown(records, ["percentiles"]).split("**Phi-4 15B**")[0]
    few, many = rows(text)
    assert few[:4] == ["3", "isolated", "blink", "a"]
    assert few[4:10] == ["150", "100", "100", "100", "100", "-"]
    assert many[4:10] == ["1,200", "100", "100", "100", "100", "100"]
    assert few[16] == "60,000"  # gaps


def test_points_that_failed_say_why() -> None:
    key = Key("sweep", "vllm", MODEL, 3.0, 0, "isolated")
    failed = record_of(key, "a", "failed", {"reason": "vllm did not start:\nout of memory"})
    text = evaluation.markdown([failed], ["throughput"])
    assert "failed: vllm did not start: out of memory" in text


def interference(variant: str, load: float, completed: float, **more: Any) -> list[Record]:
    alone = record(load, variant, part="interference", ttft=100)
    among = record(load, variant, part="interference", condition="others", completed=completed, **more)
    return [alone, among]


def test_table_7_compares_a_server_with_itself_alone() -> None:
    records = [*SWEPT, *interference("vllm", 6, 2.4, ttft=700, complete=199)]
    records += interference("blink-apart", 6, 6.0, ttft=100)
    other_run = record(6, "vllm", "b", part="interference", ttft=1, complete=0)
    records.append(other_run)  # alone in another run: not what is compared
    text = evaluation.markdown(records, ["table-7"])
    found = {row[1]: row[3:] for row in rows(text) if row[0] == "Llama-3 8B" and row[2] == "the other cores"}
    assert found["vllm"] == [
        "6", "700 [7.00]", "10.0 [1.00]", "2.40 [0.40]", "0 of 200, 0 unfinished; 1 of 200, 1 unfinished"
    ]  # fmt: skip
    assert found["blink-apart"][1] == "100 [1.00]"
    assert found["blink"][0] == "not run"
    own = [row for row in rows(text) if row[:3] == ["Llama-3 8B", "vllm", "the server's own cores"]]
    assert own[0][3] == "not run"


def test_a_server_that_completes_nothing_has_no_p99_and_retains_nothing() -> None:
    model, load = evaluation_interference.FIGURE_1
    records = [each | {"model": model} for each in interference("vllm", load, 0.0, complete=0)]
    in_table = [
        row[4:7]
        for row in rows(evaluation.markdown(records, ["table-7"]))
        if row[1:4] == ["vllm", "the other cores", "4"]
    ]
    assert in_table == [["unbounded", "unbounded", "0.00 [0.00]"]]
    (figure,) = [
        row
        for row in rows(evaluation.markdown(records, ["figure-1"]))
        if row[:2] == ["vllm", "the other cores"]
    ]
    assert figure[2:5] == ["4.00", "0.00", "0.00"]
    assert figure[5] == "0 of 200, 0 unfinished; 200 of 200, 200 unfinished"


def test_loads_beyond_blinks_operating_range_are_not_in_table_7() -> None:
    records = [*SWEPT, *interference("vllm", 6, 6.0), *interference("vllm", 18, 1.0)]
    text = evaluation.markdown(records, ["table-7"])
    assert next(row for row in rows(text) if row[:3] == ["Llama-3 8B", "vllm", "the other cores"])[3] == "6"


def test_the_papers_ratios_are_those_of_its_figures() -> None:
    """A figure of Table 6 or 7 that was typed wrongly does not fit the ratios that the paper prints."""
    for model, systems in PAPER["Table 7"].items():
        for system, row in systems.items():
            for name in ("ttft", "tpot"):
                alone = PAPER["Table 6"][model][system][f"{name}_p99"]
                assert row[f"{name}_p99"] / alone == pytest.approx(row[f"{name}_ratio"], rel=0.01)
            alone = PAPER["Table 6"][model][system]["completed"]
            assert row["completed"] / alone == pytest.approx(row["completed_ratio"], abs=0.015)


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    path, link = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in SWEPT))
    link.symlink_to(path)
    assert printed(path, path, link).stdout == printed(path).stdout != printed().stdout


def test_without_results_everything_of_ours_is_not_run() -> None:
    done = printed()
    assert done.returncode == 0, done.stderr
    titles = [line[3:] for line in done.stdout.splitlines() if line.startswith("## ")]
    assert titles == [title for title, _ in evaluation.TABLES.values()]
    sections = done.stdout.split("## ")[1:]
    assert all("not run" in section for section in sections)

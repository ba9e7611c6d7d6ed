"""A sweep's plan, its budget of time, what a later run goes on with, and the program on the CPU."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bench import sweep, sweep_plan
from bench.laboratory import Cores
from bench.sweep_plan import BLOCKS, ISOLATED, OTHERS, PACES, VARIANTS, Block, Point, Times, Unit
from bench.sweep_records import FAILED, LATE, MEASURED, Results, given_up, left, read_records, record_of
from bench.sweep_run import run
from bench.sweep_starts import Starts
from limits import PROGRAM_S

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"
TIMES = Times(window_s=40.0, drop_s=5.0, drain_s=20.0)
POINT_S = 68.0  # with OVERHEAD_S
PAIR = Block("sweep", "llama-3-8b", ("blink", "vllm"), (1.0, 2.0, 3.0))
STARTS_S = 35 + 100 + 2 * 5


def units(*blocks: Block) -> list[Unit]:
    return [unit for block in blocks or (PAIR,) for unit in sweep_plan.units_of(block, lambda _: TIMES)]


@dataclass
class Pretended:
    """A laboratory whose clock goes on by what servers and points take."""

    call: str = "a"
    now: float = 0.0
    start_s: dict[str, float] = field(default_factory=lambda: {n: v.start_s for n, v in VARIANTS.items()})
    broken: set[str] = field(default_factory=set)  # variants that do not start
    failing: set[tuple[str, float]] = field(default_factory=set)  # variant and rate
    killed_at: tuple[str, float] | None = None
    ends_at: tuple[str, float] | None = None  # in this window the server dies
    how: str | None = None
    slower_s: float = 0.0  # than planned, of each point
    did: list[object] = field(default_factory=list)

    def origin(self) -> dict[str, Any]:
        return {"commit": "abc"}

    @contextlib.contextmanager
    def server(self, variant: str, block: Block, within_s: float) -> Iterator[Pretended]:
        self.did.append(f"start {variant}")
        self.now += min(self.start_s[variant], within_s)
        if variant in self.broken or self.start_s[variant] > within_s:
            raise SystemExit(f"{variant} did not start")
        self.how = None
        yield self
        self.now += sweep_plan.STOP_S

    def measure(self, point: Point) -> dict[str, Any]:
        what = (point.key.variant, point.key.rate)
        self.did.append(what)
        if what == self.killed_at:
            raise KeyboardInterrupt
        self.now += point.longest_s + self.slower_s
        if what == self.ends_at:
            self.how = f"{point.key.variant} ended by SIGKILL"
        if what in self.failing:
            raise SystemExit("it broke")
        return {"point": {}}

    def ended(self) -> str | None:
        return self.how


def measured(plan: list[Unit], path: Path, laboratory: Pretended, seconds: float) -> Results:
    results = Results(path)
    run(plan, results, laboratory, seconds, lambda: laboratory.now)
    return results


def test_a_run_starts_each_server_once_and_ends_in_time(tmp_path: Path) -> None:
    seconds = STARTS_S + 4 * POINT_S
    laboratory = Pretended()
    results = measured(units(), tmp_path / "r", laboratory, seconds)
    assert laboratory.did == [
        "start blink", ("blink", 1.0), ("blink", 2.0), "start vllm", ("vllm", 1.0), ("vllm", 2.0)
    ]  # fmt: skip
    assert laboratory.now <= seconds
    assert [unit.points[0].key.rate for unit in left(units(), results.records)] == [3.0]
    assert {record["commit"] for record in results.records} == {"abc"}


def test_too_little_time_measures_nothing(tmp_path: Path) -> None:
    laboratory = Pretended()
    measured(units(), tmp_path / "r", laboratory, STARTS_S + 2 * POINT_S - 1)
    assert laboratory.did == []


def test_servers_that_start_slowly_do_not_take_the_time_of_others(tmp_path: Path) -> None:
    laboratory = Pretended(start_s={"blink": 60.0, "vllm": 100.0})
    seconds = STARTS_S + 4 * POINT_S
    measured(units(), tmp_path / "r", laboratory, seconds)
    assert laboratory.did[-1] == ("vllm", 1.0)
    assert laboratory.now <= seconds


def test_the_next_run_goes_on_and_the_last_finds_nothing(tmp_path: Path) -> None:
    rates = []
    for call in "abc":
        laboratory = Pretended(call)
        measured(units(), tmp_path / "r", laboratory, STARTS_S + 4 * POINT_S)
        rates.append([what[1] for what in laboratory.did if what[0] == "vllm" and isinstance(what, tuple)])
    assert rates == [[1.0, 2.0], [3.0], []]


def test_what_a_killed_run_compared_with_nothing_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "r"
    with pytest.raises(KeyboardInterrupt):
        measured(units(), path, Pretended("a", killed_at=("vllm", 2.0)), STARTS_S + 6 * POINT_S)
    assert len(read_records(path)) == 4  # blink's three, vLLM's first
    with path.open("a") as file:
        file.write('{"part": "sweep", "variant": "vl')  # torn by the kill
    laboratory = Pretended("b")
    results = measured(units(), path, laboratory, STARTS_S + 6 * POINT_S)
    assert [what for what in laboratory.did if isinstance(what, tuple)] == [
        ("blink", 2.0), ("blink", 3.0), ("vllm", 2.0), ("vllm", 3.0)
    ]  # fmt: skip
    assert not left(units(), results.records)
    assert [json.loads(line)["call"] for line in path.read_text().splitlines()] == ["a"] * 4 + ["b"] * 4


def test_a_point_that_fails_is_tried_once_more_in_another_run(tmp_path: Path) -> None:
    path = tmp_path / "r"
    tried = []
    for call in "abc":
        laboratory = Pretended(call, failing={("vllm", 2.0)})
        measured(units(), path, laboratory, STARTS_S + 6 * POINT_S)
        tried.append(laboratory.did.count(("vllm", 2.0)))
    assert tried == [1, 1, 0]
    assert sweep.listing(units(), Results(path)).endswith("3 of 3, done, 1 points failed")
    failures = [record for record in read_records(path) if record["status"] == FAILED]
    assert [(record["rate"], record["reason"]) for record in failures] == [(2.0, "it broke")] * 2


def test_a_server_that_does_not_start_fails_its_points_alone(tmp_path: Path) -> None:
    results = measured(units(), tmp_path / "r", Pretended(broken={"vllm"}), STARTS_S + 6 * POINT_S)
    status = {(record["variant"], record["rate"]): record["status"] for record in results.records}
    assert status == {("blink", rate): MEASURED for rate in (1.0, 2.0, 3.0)} | {
        ("vllm", rate): FAILED for rate in (1.0, 2.0, 3.0)
    }
    assert results.records[-1]["reason"] == "vllm did not start"


def test_a_unit_for_which_time_ran_out_is_planned_with_the_starts_that_were_measured(tmp_path: Path) -> None:
    path = tmp_path / "r"
    seconds = STARTS_S + 2 * POINT_S
    one = units()[:1]
    began = []
    for call, more_s in (("a", 0.0), ("b", 0.0), ("c", 35.0)):
        laboratory = Pretended(call, start_s={"blink": 35.0, "vllm": 125.0})
        results = Results(path)
        began.append(run(one, results, laboratory, seconds + more_s, partial(getattr, laboratory, "now")))
    assert began == [1, 0, 1]  # with as little time it is not begun again
    late = [record for record in read_records(path) if record["status"] == LATE]
    assert [(record["variant"], record["server"]["start_s"]) for record in late] == [("vllm", 125.0)]
    assert not left(one, results.records)


def test_a_server_that_starts_beyond_the_deadline_does_not_hold_the_run(tmp_path: Path) -> None:
    laboratory = Pretended(start_s={"blink": 35.0, "vllm": 1000.0})
    seconds = STARTS_S + 2 * POINT_S
    results = measured(units()[:1], tmp_path / "r", laboratory, seconds)
    assert laboratory.now <= seconds
    assert [record["status"] for record in results.records] == [MEASURED, LATE]


def test_a_unit_that_is_late_again_and_again_is_given_up_and_listed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    one = units()[:1]
    for call in "abcd":
        laboratory = Pretended(call, slower_s=40.0)  # each window takes longer than planned
        measured(one, path, laboratory, STARTS_S + 2 * POINT_S)
    assert laboratory.did == []
    assert sweep.listing(one, Results(path)).endswith("1 of 1, done, 1 points late 3 times, and given up")


def test_what_one_server_had_no_time_for_is_not_asked_of_the_next(tmp_path: Path) -> None:
    laboratory = Pretended(start_s={"blink": 75.0, "vllm": 100.0})
    results = measured(units()[:2], tmp_path / "r", laboratory, STARTS_S + 4 * POINT_S)
    assert [(record["variant"], record["rate"], record["status"]) for record in results.records] == [
        ("blink", 1.0, MEASURED), ("blink", 2.0, MEASURED), ("vllm", 1.0, MEASURED), ("vllm", 2.0, LATE)
    ]  # fmt: skip


def test_a_server_that_dies_fails_the_point_in_which_it_did_and_no_other(tmp_path: Path) -> None:
    path = tmp_path / "r"
    laboratory = Pretended("a", ends_at=("blink", 2.0))
    results = measured(units(), path, laboratory, STARTS_S + 6 * POINT_S)
    assert [(record["variant"], record["rate"], record["status"]) for record in results.records] == [
        ("blink", 1.0, MEASURED), ("blink", 2.0, FAILED), ("vllm", 1.0, MEASURED), ("vllm", 2.0, MEASURED)
    ]  # fmt: skip
    assert results.records[1]["reason"] == "blink ended by SIGKILL"
    assert not given_up(results.records)
    again = measured(units(), path, Pretended("b"), STARTS_S + 6 * POINT_S)
    assert not left(units(), again.records)
    rates = {record["rate"] for record in again.records if record["call"] == "b"}
    assert rates == {2.0, 3.0}


def test_points_of_two_runs_do_not_make_a_unit() -> None:
    (unit, *_) = units()
    blink, vllm = (point.key for point in unit.points)
    apart = [record_of(blink, "a", MEASURED, {}), record_of(vllm, "b", MEASURED, {})]
    assert left([unit], apart) == [unit]
    assert left([unit], [*apart, record_of(vllm, "a", MEASURED, {})]) == []


def test_time_that_the_first_block_has_no_use_for_goes_to_a_later_one() -> None:
    alone = Block("sweep", "phi-4", ("blink",), (5.0,))
    both = units(PAIR, alone)
    starts_s = Starts([]).of_block
    assert sweep_plan.batch_for(both, 35 + 5 + POINT_S, starts_s)[0].block == alone
    assert sweep_plan.batch_for(both, 35 + 5 + POINT_S - 1, starts_s) == []


def test_earlier_files_are_not_measured_again_nor_written(tmp_path: Path) -> None:
    earlier, path = tmp_path / "earlier", tmp_path / "r"
    measured(units(), earlier, Pretended(), STARTS_S + 6 * POINT_S)
    before = earlier.read_bytes()
    assert left(units(), Results(path, [earlier]).records) == []
    assert earlier.read_bytes() == before
    assert not path.exists()


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    path, link, other = tmp_path / "r", tmp_path / "link", tmp_path / "other"
    measured(units(), path, Pretended(failing={("vllm", 2.0)}), STARTS_S + 6 * POINT_S)
    link.symlink_to(path)
    once = Results(path).records
    assert Results(path, [path, tmp_path / "." / "r", link]).records == once
    assert Results(other, [path, link]).records == once
    assert not given_up(Results(path, [path]).records)  # the point that failed once is tried once more


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "r"
    other.write_text('{"points": []}\n')
    with pytest.raises(SystemExit, match=r"line 1: this is no record of scripts/bench/sweep\.py"):
        Results(other)


def test_every_point_of_the_plan_is_long_enough_and_fits_into_a_run() -> None:
    plan = sweep_plan.plan()
    for unit in plan:
        pace = PACES[unit.block.model]
        for point in unit.points:
            times, rate = point.times, point.key.rate
            assert times.window_s <= 90
            assert sweep_plan.steady_requests(rate, times.window_s, times.drop_s) >= 100
            assert times.drain_s >= 1024 * pace.tpot_s
    starts = Starts([])
    runs, minutes = sweep.runs_for(plan, 60 * 9, starts)
    assert minutes <= 9 * runs
    assert sweep.told_too_long(plan, 60 * 9, starts) == ""


def test_the_plan_has_what_the_evaluation_needs() -> None:
    swept = {
        (block.model, name): block for block in BLOCKS if block.part == "sweep" for name in block.variants
    }
    for model, least in (("llama-3-8b", 8), ("qwen3-30b-a3b", 8), ("phi-4", 3), ("qwen3-32b", 3)):
        assert len(swept[model, "blink"].rates) >= least
        assert swept[model, "blink"] == swept[model, "vllm"]  # of one run
        short_steps = swept[model, "vllm-1024"].rates
        assert len(short_steps) >= 3
        assert set(short_steps) <= set(swept[model, "vllm"].rates)
        assert swept[model, "blink"].rates[-1] > 1.5 * PACES[model].saturation
    assert len(swept["llama-3-8b", "blink"].repeated) == 2
    disturbed = [block for block in BLOCKS if OTHERS in block.conditions]
    assert {block.model for block in disturbed} == set(PACES)
    assert all(block.conditions[0] == ISOLATED for block in disturbed)  # in the same run
    figure_1 = [block for block in disturbed if block.model == "qwen3-30b-a3b" and 4 in block.rates]
    assert {"blink-apart", "vllm"} <= set(figure_1[0].variants)


def test_windows_and_drains_follow_the_rate() -> None:
    times = partial(sweep_plan.planned, PACES["llama-3-8b"])
    assert times(1.5).window_s > times(3).window_s
    assert times(28).drain_s > times(12).drain_s == times(3).drain_s
    with pytest.raises(ValueError, match=r"0\.5 requests/s are too few"):
        times(0.5)


def test_the_load_the_server_and_its_tenants_share_no_core() -> None:
    found = Cores.of(range(16))
    assert len(found.reserved) == 6
    for apart in (found.reserved, found.apart, found.clients):
        assert not set(apart) & set(found.tenants)
    assert not set(found.whole) & set(found.clients)
    with pytest.raises(SystemExit, match="15 cores: 16 are needed"):
        Cores.of(range(15))


def program(*flags: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "bench" / "sweep.py"), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=False)


def test_the_list_says_what_is_left_and_measures_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r"
    measured(
        sweep_plan.plan(sweep_plan.chosen(BLOCKS, ["sweep"], ["phi-4"], ["blink"])), path, Pretended(), 400.0
    )
    flags = ("--part=sweep", "--model=phi-4", "--variants=blink", f"--results={path}")
    done = program("--list", *flags)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert first == "sweep phi-4 blink: 3 of 3, done"
    assert last == "left: 0 runs of 9 min, in all 0 min at most"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--model=gpt-2",), "model 'gpt-2' is unknown; there are llama-3-8b"),
        (("--variants=sglang",), "variant 'sglang' is unknown"),
        (("--rates=1",), "give --model a directory"),
        ((f"--model={DEMO}", "--rates=1"), "with --rates, --window and --drain"),
        ((), "the plan has vLLM: give --vllm"),
        (("--cores=whole=0",), "does not say what cores are whole, reserved, apart, tenants, clients"),
        (("--list", "--minutes=2"), "no run of 2 min measures what is left of"),
        (
            ("--vllm=.", "--minutes=5", "--model=phi-4", "--part=interference"),
            "no run of 5 min measures what is left of\n"
            "  interference phi-4 at 3, 7 requests/s needs --minutes 8.6 (starts: blink-apart 35 s, vllm 100",
        ),
    ],
)
def test_what_cannot_be_measured(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = program(f"--results={tmp_path / 'r'}", *flags)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "r").exists()


def test_a_run_whose_preparation_left_no_time_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    times = iter((0.0, 100.0))
    monkeypatch.setattr("bench.sweep.time", SimpleNamespace(monotonic=lambda: next(times, 100.0)))
    monkeypatch.setattr(sweep, "Machine", lambda _: Pretended())
    flags = f"--results={tmp_path / 'r'} --model={DEMO} --rates=1 --window=4 --drain=10 --minutes=2"
    where = "whole=0 reserved=0 apart=0 tenants=0,1 clients=0"
    monkeypatch.setattr(sys, "argv", ["sweep.py", *flags.split(), f"--cores={where}"])
    with pytest.raises(SystemExit) as told:
        sweep.main()
    assert str(told.value).startswith("nothing was measured: preparing took 100 s\nno run of ")
    assert f"sweep {DEMO} at 1 requests/s needs --minutes 1.6" in str(told.value)
    assert not (tmp_path / "r").exists()


STAND_IN = """
import argparse, asyncio, sys
sys.path.insert(0, {tests!r})
from bad_server import BadServer, good

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int)
parser.add_argument("--no-enable-prefix-caching", action="store_true", required=True)
port = parser.parse_known_args()[0].port

async def main():
    server = await asyncio.start_server(BadServer(good)._serve, "127.0.0.1", port)
    await server.serve_forever()

asyncio.run(main())
"""


def stand_in(directory: Path) -> Path:
    """A directory that looks like an installed vLLM, whose server answers every request."""
    package = directory / "site" / "vllm" / "entrypoints" / "openai"
    package.mkdir(parents=True)
    (directory / "site" / "vllm-0.26.0.dist-info").mkdir()
    source = STAND_IN.format(tests=str(ROOT / "tests" / "blink" / "bench"))
    (package / "api_server.py").write_text(source)
    return directory / "site"


@pytest.mark.slow
@pytest.mark.alone
def test_both_servers_are_measured_and_interference_beside_isolation(tmp_path: Path) -> None:
    core = min(os.sched_getaffinity(0))
    last = max(os.sched_getaffinity(0))
    where = f"whole={core} reserved={core} apart={last} tenants={core},{last} clients={last}"
    flags = (
        f"--results={tmp_path / 'r'}", f"--model={DEMO}", "--rates=2", "--window=3", "--drain=60",
        "--variants=blink,vllm", f"--vllm={stand_in(tmp_path)}", f"--cores={where}", "--commit=abc",
        "--server-flag=--device=cpu", "--bench-flag=--input=16", "--bench-flag=--output=8",
        "--minutes=30", "--part=sweep,interference",
    )  # fmt: skip
    done = program(*flags)
    assert done.returncode == 0, done.stderr
    records = read_records(tmp_path / "r")
    assert [(record["part"], record["variant"], record["condition"]) for record in records] == [
        ("sweep", "blink", "isolated"), ("sweep", "vllm", "isolated"),
        ("interference", "blink", "isolated"), ("interference", "blink", "others"),
        ("interference", "blink", "own"), ("interference", "vllm", "isolated"),
        ("interference", "vllm", "others"), ("interference", "vllm", "own"),
    ]  # fmt: skip
    assert {record["status"] for record in records} == {MEASURED}
    assert len({record["call"] for record in records}) == 1
    assert len({record["trace"]["digest"] for record in records}) == 1  # the same requests for both
    for record in records:
        assert record["point"]["requests_complete"] > 0
        assert record["point"]["prompt_tokens_per_s"] is not None
        assert record["commit"] == "abc"
        assert (record["tenants"] is not None) == (record["condition"] == "others")
        assert bool(record["point"]["antagonist_work"]) == (record["condition"] == "own")
    versions = {record["variant"]: record["server"]["version"] for record in records}
    assert versions == {"blink": None, "vllm": "0.26.0"}
    assert str(tmp_path) not in json.dumps(records)  # a result says nothing of the machine's directories
    assert str(ROOT) not in json.dumps(records)
    again = program(*flags)
    assert again.returncode == 0, again.stderr
    assert again.stdout.endswith("left: 0 runs of 30 min, in all 0 min at most\n")
    assert len(read_records(tmp_path / "r")) == len(records)

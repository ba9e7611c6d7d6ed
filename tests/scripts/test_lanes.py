"""What runs where, when several servers share a machine."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest
from bench import lanes
from bench.lanes import Turn
from limits import PROGRAM_S

PROGRAM = Path(lanes.__file__)


def test_a_lane_is_a_server_or_several_in_turn() -> None:
    assert lanes.turns("vllm:a+gpu-apart:b") == [Turn("vllm", "a"), Turn("gpu-apart", "b")]
    for text in ("vllm", "vllm:", "tgi:a", "gpu:a+"):
        with pytest.raises(ValueError, match="is not SERVER:MODEL"):
            lanes.turns(text)


def test_lanes_share_no_core() -> None:
    taken: set[int] = set()
    for lane in range(4):
        for flag in lanes.cores(lane, Turn("gpu-apart", "m")):
            first, last = flag.split("=")[1].split("-")
            mine = set(range(int(first), int(last) + 1))
            assert not taken & mine
            taken |= mine
    assert taken == set(range(64))
    assert not any("frontend" in flag for flag in lanes.cores(0, Turn("gpu", "m")))


def test_a_scheduler_is_a_flag_of_blink() -> None:
    assert "--server-flag=--scheduler=async" in Turn("async", "m").flags(None)
    assert "--server-flag=--scheduler=gpu" in Turn("gpu-apart", "m").flags(None)
    assert not any("realtime" in flag for flag in Turn("gpu", "m").flags(None))
    realtime = {"--server-flag=--scheduler=gpu", "--server-flag=--frontend-realtime=1"}
    assert realtime < set(Turn("gpu-realtime", "m").flags(None))
    assert Turn("vllm", "m").flags(Path("site"))[:2] == ["--server=vllm", "--vllm=site"]


def test_antagonists_begin_when_the_slowest_lane_is_there() -> None:
    options = argparse.Namespace(parts=["closed", "interference"], concurrency="1,8", window=10.0, rates=None)
    blink, vllm = [Turn("gpu", "m")], [Turn("vllm", "m")]
    alone, both = (lanes.begin_of_antagonists(1000, each, options) for each in ([blink], [blink, vllm]))
    windows = 2 * (10 + lanes.DRAIN_S["closed"] + lanes.OVERHEAD_S)
    assert alone == 1000 + lanes.BLINK_START_S + windows
    assert both == 1000 + lanes.START_S["vllm"] + windows


def test_loads_of_a_preset_that_do_not_fit_are_said(capsys: pytest.CaptureFixture[str]) -> None:
    lane = [Turn("vllm", "llama-3.1-8b")]
    rest: tuple[float, ...] | None = None
    measured = []
    for _ in range(5):
        options = argparse.Namespace(parts=["inferencex-1k-8k"], loads=rest, seconds=570.0)
        measured += lanes.preset_flags([lane], options)
        printed = capsys.readouterr().out
        if not printed:
            break
        rest = tuple(map(float, printed.split()[-1].split(",")))
    assert measured == [f"--loads={load}" for load in (4, 8, 16, 32, 64)]


def test_a_turn_that_takes_too_long_has_failed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(lanes, "ROOT", tmp_path)
    (tmp_path / "scripts" / "bench").mkdir(parents=True)
    (tmp_path / "scripts" / "bench" / "peers.py").write_text("import time; time.sleep(600)")
    options = argparse.Namespace(vllm=None, out=tmp_path, seconds=0.1)
    failed: list[str] = []
    lanes.run_lane(0, [Turn("gpu", "m")], [], options, failed)
    assert [row.partition(",")[0] for row in failed] == ["gpu:m: not done after 0 s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vllm:llama-3-8b",), "a lane with vllm needs --vllm"),
        (("--parts=interference", "gpu:a+async:a"), "each has one server"),
        (("gpu",), "'gpu' is not SERVER:MODEL"),
        (("--parts=closed,silybench-128-128", "gpu:a"), "a preset is measured alone"),
        (("--seconds=500", "gpu:a"), "--loads and --seconds are of a preset"),
        (
            ("--parts=inferencex-1k-8k", "--loads=5", "--seconds=500", "gpu:a"),
            "inferencex-1k-8k has no load 5",
        ),
        (("--parts=inferencex-1k-8k", "--seconds=570", "gpu:qwen3-32b"), "s are too few for one window"),
    ],
)
def test_what_cannot_be_run(arguments: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        [sys.executable, PROGRAM, *arguments], capture_output=True, text=True, timeout=PROGRAM_S
    )
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr

"""The comparison's program, with blink on the CPU; vLLM and random weights need a GPU."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bench import peers, servers
from limits import PROGRAM_S
from tokenizers import Tokenizer

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "models" / "demo"

pytestmark = [pytest.mark.alone, pytest.mark.slow]


def run(tmp_path: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    core = min(os.sched_getaffinity(0))
    command = [
        sys.executable, str(ROOT / "scripts" / "bench" / "peers.py"), "--server=blink", f"--model={DEMO}",
        f"--out={tmp_path}", f"--server-cores={core}", f"--client-cores={core}", "--server-flag=--device=cpu",
        "--frontends=1", "--bench-flag=--input=16", "--bench-flag=--output=16", *flags,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=PROGRAM_S, check=False)


def test_a_part_leaves_its_result_and_how_the_server_was_run(tmp_path: Path) -> None:
    done = run(tmp_path, "--part=closed", "--concurrency=2", "--window=4", "--commit=abc")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "blink-demo-closed.json").read_text())
    (point,) = result["points"]
    assert point["requests_complete"] > 0
    assert point["requests_failed"] == 0
    assert result["options"]["drain_s"] == peers.DRAIN_S["closed"]
    assert set(point["cpu"]) == {"server", "backend", "frontend"}
    assert point["cpu"]["server"]["seconds"] > point["cpu"]["frontend"]["seconds"] > 0
    assert result["run"]["commit"] == "abc"
    assert result["run"]["random_weights"] is False
    assert "blink" in result["run"]["server_command"]
    assert str(tmp_path) not in json.dumps(result)  # a result says nothing of the machine's directories
    assert str(ROOT) not in json.dumps(result)
    assert result["client"]["cores_allowed"] == [min(os.sched_getaffinity(0))]


def test_a_preset_is_a_part(tmp_path: Path) -> None:
    flags = ("--part=silybench-128-128", "--window=2", "--bench-flag=--concurrency=1", "--drain=9")
    done = run(tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "blink-demo-silybench-128-128.json").read_text())
    assert result["preset"]["source"] == "silybench"
    assert set(result["points"][0]["levels"]) == {"ttft:p99:2000", "itl:p50:50"}
    assert "--max-context=2048" in result["run"]["server_command"]


def test_some_loads_of_a_preset_have_a_result_of_their_own(tmp_path: Path) -> None:
    flags = ("--part=silybench-128-128", "--loads=1,4", "--window=2", "--drain=30")
    done = run(tmp_path, *flags)
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "blink-demo-silybench-128-128-1-4.json").read_text())
    assert len(result["points"]) == 2
    assert result["options"]["duration_s"] == 2


def test_what_is_open_at_the_end_is_not_waited_for(tmp_path: Path) -> None:
    flags = ("--part=closed", "--concurrency=1", "--window=2", "--bench-flag=--warmup=0")
    done = run(tmp_path, *flags, "--drain=0")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "blink-demo-closed.json").read_text())
    assert result["options"]["drain_s"] == 0


def test_a_window_in_which_nothing_was_completed_is_a_result_and_said(tmp_path: Path) -> None:
    flags = ("--part=closed", "--concurrency=1", "--window=0.1", "--drain=0", "--bench-flag=--warmup=0")
    done = run(tmp_path, *flags, "--bench-flag=--output=1500")
    assert done.returncode == 0, done.stderr
    assert "a window is there in which no request was completed" in done.stdout
    result = json.loads((tmp_path / "blink-demo-closed.json").read_text())
    assert [point["requests_complete"] for point in result["points"]] == [0]
    assert result["run"]["model"] == "demo"


def test_runs_of_one_machine_are_disturbed_in_step(tmp_path: Path) -> None:
    begin = time.time() + 10
    flags = (
        "--part=interference",
        "--rates=1",
        "--per-core=0,1",
        "--window=2",
        "--drain=2",
        f"--begin={begin}",
    )
    apart = (
        min(os.sched_getaffinity(0)) if len(os.sched_getaffinity(0)) == 1 else max(os.sched_getaffinity(0))
    )
    done = run(tmp_path, *flags, f"--frontend-cores={apart}", "--name=apart")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "apart-demo-interference.json").read_text())
    every = result["options"]["every_s"]
    # Some milliseconds too early, too, as the clock may be set meanwhile.
    late = [(point["began"] + every / 2) % every - every / 2 for point in result["points"]]
    assert [abs(seconds) < 1 for seconds in late] == [True, True]
    assert result["points"][0]["began"] >= begin
    assert result["points"][1]["began"] - result["points"][0]["began"] >= every - 1
    assert [sum(point["antagonist_work"].values()) > 0 for point in result["points"]] == [False, True]
    assert result["run"]["frontend_cores"] == [apart]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--part=sideways",), "unknown part: sideways"),
        (("--part=open",), "--rates is needed: none are known for the model demo"),
        (("--part=closed", "--server-flag=--kv-memory=1KiB"), "raise --kv-memory"),
        (("--part=inferencex-8k-1k",), "have up to 9216 tokens, and the context of demo is 2048"),
        (("--part=closed", "--server=vllm"), "--server vllm needs --vllm"),
    ],
)
def test_what_cannot_be_measured(flags: tuple[str, ...], message: str, tmp_path: Path) -> None:
    done = run(tmp_path, *flags)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("prefix_cache", "flags"), [(False, ["--no-enable-prefix-caching"]), (True, ["--enable-prefix-caching"])]
)
def test_vllm_has_its_prefix_cache_where_it_is_wanted(
    prefix_cache: bool, flags: list[str], tmp_path: Path
) -> None:
    arguments = argparse.Namespace(
        part="closed",
        prefix_cache=prefix_cache,
        vllm=tmp_path,
        server_cores=(0,),
        start_timeout=1.0,
        server_flag=None,
    )
    command = servers.Vllm(arguments, DEMO, random_weights=True).command
    assert [word for word in command if word.endswith("enable-prefix-caching")] == flags


def test_a_made_vocabulary_has_a_text_for_every_token(tmp_path: Path) -> None:
    model = servers.make_model(peers.SHAPES / "qwen3-8b.json", tmp_path / "model")
    size = json.loads((model / "config.json").read_text())["vocab_size"]
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    texts = tokenizer.decode_batch([[token] for token in range(size)])
    assert len(set(texts)) == size
    assert all(text.strip() for text in texts)

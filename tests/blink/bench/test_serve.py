"""`blink bench serve` as a user runs it: against a real server, and against one that does wrong."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import bad_server
import pytest
from bad_server import BadServer
from limits import PROGRAM_S, WAIT_S
from process_state import alive
from serve_process import ROOT, ServeProcess
from waiting import wait_until

from blink.bench.cpu_time import tree
from blink.bench.options import FLAGS, ServeOptions
from blink.flags import add_flags

SLOW = pytest.mark.slow
SHORT = ("--input=16", "--output=12", "--duration=1", "--drain=1", "--drop=0", "--warmup=1", "--pause=0")
UNHURRIED = ("--duration=3", "--drain=60")  # behind SHORT, where a process that pauses is to change nothing


def test_flags_name_fields_and_the_dataclass_alone_has_defaults() -> None:
    assert {flag.field for flag in FLAGS} == {field.name for field in dataclasses.fields(ServeOptions)}
    parser = argparse.ArgumentParser()
    add_flags(parser, "load", ServeOptions, FLAGS)
    assert vars(parser.parse_args([])) == {}


def bench(url: str, tmp_path: Path, *flags: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    """The finished process and what --json wrote."""
    path = tmp_path / "result.json"
    command = [sys.executable, "-m", "blink", "bench", "serve", url, f"--json={path}", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=False)
    return done, json.loads(path.read_text()) if path.exists() else {}


@pytest.mark.slow
@pytest.mark.alone
def test_a_closed_loop_against_blink_serve(tmp_path: Path) -> None:
    server = ServeProcess().wait_ready()
    try:
        watch = f"--watch-pid=serve={server.process.pid}"
        flags = (
            "--concurrency=2",
            "--clients=2",
            "--slo=ttft:60000 itl:60000",
            watch,
        )
        done, result = bench(server.url, tmp_path, *flags, *SHORT, *UNHURRIED)
        assert done.returncode == 0, done.stderr
        (point,) = result["points"]
        assert point["requests_failed"] == point["tokens_missing"] == 0
        assert point["requests_complete"] == point["requests_sent"] > 2
        assert point["tokens_counted_by"] == "usage"
        assert point["goodput_per_s"] == pytest.approx(point["requests_complete"] / point["steady_s"])
        assert point["output_tokens_per_s"] == pytest.approx(12 * point["completed_per_s"], rel=0.5)
        assert point["output_tokens_per_s_of_rounds"] == pytest.approx(point["output_tokens_per_s"], rel=0.5)
        assert 0 < point["ttft_ms"]["p50"] <= point["e2e_ms"]["p50"]
        assert point["cpu"]["serve"]["seconds"] > 0
        assert "TTFT p99" in done.stdout
        assert "serve CPU" in done.stdout
    finally:
        server.close()


@pytest.mark.slow
@pytest.mark.alone
def test_an_open_loop_keeps_its_rate_when_the_server_does_not(tmp_path: Path) -> None:
    with BadServer(bad_server.stalled) as server:
        done, result = bench(server.url, tmp_path, "--rate=20", *SHORT, "--drain=5")
    (point,) = result["points"]
    assert done.returncode == 1  # nothing was complete
    assert len(server.bodies) == result["traces"]["20 req/s"]["requests"] + 1
    assert point["failures"] == {"not finished in time": point["requests_failed"]}
    assert point["tokens_missing"] == 11 * point["requests_failed"]
    assert point["ttft_ms"] is None
    assert point["ttft_of_all_ms"]["n"] == point["requests_sent"]
    assert point["ttft_of_all_ms"]["p50"] is None  # the first tokens came, and nothing after them
    assert result["serviceable_per_s"] == {"0": None}


@pytest.mark.parametrize(
    ("behaviour", "error", "tokens"),
    [
        pytest.param(bad_server.dropped, "stream ended by a lost connection", 1, marks=SLOW),
        pytest.param(bad_server.unfinished, "stream ended without [DONE]", 1, marks=SLOW),
        pytest.param(bad_server.short, "fewer tokens than max_tokens", 10, marks=SLOW),
        (bad_server.busy, "HTTP 429: all slots are taken", 0),
        pytest.param(bad_server.failing, "error in the stream: the engine died", 1, marks=SLOW),
        pytest.param(bad_server.no_http, "no HTTP/1.1 response: b'SSH-2.0-OpenSSH_9.2'", 0, marks=SLOW),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_failure_is_told_and_the_others_are_measured(
    behaviour: bad_server.Behaviour, error: str, tokens: int, tmp_path: Path
) -> None:
    with BadServer(bad_server.good, behaviour) as server:
        done, result = bench(server.url, tmp_path, "--concurrency=1", *SHORT, *UNHURRIED)
    (point,) = result["points"]
    assert done.returncode == 0, done.stderr
    assert set(point["failures"]) == {error}
    assert point["failed_requests"][0]["tokens"] == tokens
    assert point["tokens_missing"] == (12 - tokens) * point["requests_failed"] > 0
    assert point["requests_complete"] == point["requests_sent"] - point["requests_failed"] > 0
    assert point["tpot_of_all_ms"]["n"] == point["requests_sent"]
    assert point["tpot_of_all_ms"]["p99"] is None
    assert error in done.stdout
    assert f"{point['tokens_missing']} tokens did not come" in done.stdout


@pytest.mark.alone
@pytest.mark.slow
def test_chunks_of_several_tokens_are_counted_by_usage(tmp_path: Path) -> None:
    with BadServer(bad_server.packed) as server:
        done, result = bench(server.url, tmp_path, "--concurrency=1", *SHORT, *UNHURRIED)
    (point,) = result["points"]
    assert point["requests_failed"] == 0
    assert point["tokens_per_chunk"] == 4
    assert point["output_tokens_per_s"] == pytest.approx(12 * point["completed_per_s"], rel=0.2)
    assert "up to 4.00 tokens a chunk" in done.stdout


@pytest.mark.slow
def test_reads_that_respect_no_boundary_make_the_same_stream(tmp_path: Path) -> None:
    with BadServer(bad_server.dribbled) as server:
        _, result = bench(server.url, tmp_path, "--concurrency=1", *SHORT, *UNHURRIED)
    (point,) = result["points"]
    assert point["requests_failed"] == 0
    assert point["tokens_per_chunk"] == 1


@pytest.mark.slow
def test_requests_are_those_of_the_trace(tmp_path: Path) -> None:
    seen = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        with BadServer(bad_server.good) as server:
            flags = (*SHORT, *UNHURRIED, "--input=40:0.5:8-80")
            _, result = bench(server.url, tmp_path / folder, "--rate=20", *flags)
        bodies = sorted((body for body in server.bodies[1:]), key=lambda body: str(body["prompt"]))
        seen.append((bodies, result["traces"]["20 req/s"]["digest"]))
    assert seen[0] == seen[1]
    for body in seen[0][0]:
        assert (body["stream"], body["ignore_eos"], body["temperature"]) == (True, True, 0)
        assert all(100 <= token < 1000 for token in body["prompt"])


@pytest.mark.slow
def test_no_window_repeats_a_prompt_of_another(tmp_path: Path) -> None:
    with BadServer(bad_server.good) as server:
        bench(server.url, tmp_path, "--concurrency=1,1", *SHORT, *UNHURRIED)
    beginnings = [tuple(body["prompt"][:4]) for body in server.bodies]
    assert len(beginnings) > 10
    assert len(set(beginnings)) == len(beginnings)


@pytest.mark.slow
@pytest.mark.alone
def test_antagonists_make_a_table_with_ratios(tmp_path: Path) -> None:
    flags = ("--antagonists=sort", "--per-core=0,1", "--cores=0")
    with BadServer(bad_server.good) as server:
        done, result = bench(server.url, tmp_path, "--concurrency=1", *flags, *SHORT, *UNHURRIED)
    assert done.returncode == 0, done.stderr
    quiet, loud = result["points"]
    assert quiet["antagonist_work"] == {}
    assert loud["antagonist_work"]["sort"] > 0
    assert "threads/core" in done.stdout
    assert "[1.00]" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("n_complete", [0, 1])
def test_ctrl_c_keeps_the_windows_that_are_complete(tmp_path: Path, n_complete: int) -> None:
    path, errors = tmp_path / "result.json", tmp_path / "errors"
    flags = [f"--json={path}", "--concurrency=1,1,1", *SHORT, "--duration=3", "--clients=2"]
    with BadServer(bad_server.good) as server, open(errors, "w") as stderr:
        command = [sys.executable, "-m", "blink", "bench", "serve", server.url, *flags]
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            process_group=0,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background job ignores it
        )
        wait_until(lambda: errors.read_text().count("1 streams") > n_complete, WAIT_S, "a window's begin")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 130
    assert len(json.loads(path.read_text())["points"]) == n_complete
    assert output.count("c=1 ") == 2 * n_complete  # in two tables
    lines = errors.read_text().splitlines()
    assert sum(" req/s, " in line for line in lines) == n_complete
    assert lines[-1] == f"interrupted: {n_complete} of 3 windows are complete"
    assert "Traceback" not in errors.read_text()


@pytest.mark.slow
def test_load_processes_end_when_the_command_is_killed(tmp_path: Path) -> None:
    with BadServer(bad_server.stalled) as server:
        command = [
            sys.executable,
            "-m",
            "blink",
            "bench",
            "serve",
            server.url,
            "--concurrency=2",
            "--clients=2",
        ]
        process = subprocess.Popen([*command, "--warmup=1"], cwd=ROOT, stderr=subprocess.DEVNULL)
        wait_until(lambda: len(server.bodies) == 3, WAIT_S, "load")
        children = tree(process.pid) - {process.pid}
        assert len(children) >= 2
        process.kill()
        process.wait()
        wait_until(lambda: not any(alive(pid) for pid in children), WAIT_S, "their end")


@pytest.mark.slow
def test_plots_are_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs scripts/setup bench")
    with BadServer(bad_server.good) as server:
        bench(server.url, tmp_path, "--concurrency=1,2", *SHORT, *UNHURRIED)
    command = [
        sys.executable,
        "-m",
        "blink",
        "bench",
        "plot",
        str(tmp_path / "result.json"),
        f"--out={tmp_path}",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PROGRAM_S, check=True)
    for name in ("load.png", "lengths.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
        assert str(tmp_path / name) in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give one of --rate, --concurrency, --conversations and --agents"),
        (("--rate=1", "--concurrency=1"), "give one of --rate, --concurrency"),
        (("--rate=1", "--antagonists=sort"), "--antagonists needs --cores"),
        (("--rate=0",), "0 is not a rate in requests/s"),
        (("--rate=1", "--input=10:1:20-30"), "low <= mean <= high does not hold"),
        (("--rate=1", "--slo=ttft:x"), "'x' is not a time in milliseconds"),
        (("--rate=1", "--antagonists=bees", "--cores=0"), "antagonists are copy, map, sort, spawn"),
        (("--rate=1", "--watch-pid=a=999999999"), "there is no process 999999999"),
        (("--rate=1",), "no server at 127.0.0.1:1: "),
    ],
)
def test_errors_are_told_before_anything_is_measured(
    flags: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done, result = bench("http://127.0.0.1:1", tmp_path, *flags)
    assert done.returncode in (1, 2)
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1  # a window that begins says so there
    assert result == {}

"""blink batch with a backend of its own: killed, it goes on, and nothing is lost or asked twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from limits import START_S, WAIT_S
from process_state import alive, children
from serve_process import ROOT
from serving import items
from waiting import wait_until


def command(folder: Path) -> list[str]:
    files = [str(folder / "in.jsonl"), str(folder / "out.jsonl")]
    return [sys.executable, "-m", "blink", "batch", "demo", *files, "--device=cpu", "--threads=1"]


def written(folder: Path, n: int) -> list[str]:
    """Prompts, which are the lines' ids, too."""
    prompts = [f"{i}: {item.prompt}" for i, item in enumerate(items(("count", "add"), n))]
    with (folder / "in.jsonl").open("w") as file:
        for prompt in prompts:
            body = {"prompt": prompt, "temperature": 0, "max_tokens": 40}
            line = {"custom_id": prompt, "method": "POST", "url": "/v1/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    return prompts


def n_lines(folder: Path) -> int:
    out = folder / "out.jsonl"
    return out.read_bytes().count(b"\n") if out.exists() else 0


@pytest.mark.slow
def test_a_killed_batch_goes_on(tmp_path: Path) -> None:
    prompts = written(tmp_path, 400)
    for at_least in (20, 100):
        with subprocess.Popen(command(tmp_path), cwd=ROOT, stderr=subprocess.PIPE) as process:
            wait_until(lambda least=at_least: n_lines(tmp_path) >= least, START_S)  # type: ignore[misc]
            started = children(process.pid)
            process.kill()
        wait_until(lambda pids=started: not any(alive(pid) for pid in pids), WAIT_S)  # type: ignore[misc]
        assert n_lines(tmp_path) < len(prompts)
    done = subprocess.run(
        command(tmp_path), cwd=ROOT, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert (
        f"{len(prompts)} requests are answered in {tmp_path}/out.jsonl, 0 of them with errors" in done.stderr
    )
    answers = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert sorted(answer["custom_id"] for answer in answers) == sorted(prompts)
    assert {answer["response"]["status_code"] for answer in answers} == {200}

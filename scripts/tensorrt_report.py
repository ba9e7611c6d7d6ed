#!/usr/bin/env python3
"""One page about the TensorRT engine on this machine's GPU, to send back: what is installed, the tests of its
logits and of launches from the GPU, and the time of its steps beside the native engine's.

    python scripts/tensorrt_report.py                       # prints it
    python scripts/tensorrt_report.py --model llama-3-8b --batch 1 8 32 --out report.md

Nobody has run this engine yet (docs/tensorrt.md): a page that says what fails is as welcome as any other.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from blink.bench.tables import table  # noqa: E402
from gpu_backend.cuda.probe import Finding, probe  # noqa: E402
from gpu_backend.devices.select import ENGINES  # noqa: E402
from gpu_backend.engines.tensorrt.findings import findings  # noqa: E402

TESTS = "tests/gpu/test_tensorrt.py"
COLUMNS = ("batch", "total_pages", "run_us", "period_us", "replay_us", "gap_median_us")
LAST_LINES = 15  # of what failed
TEST_S = 3600  # a first start builds some hundred plans
FAILED_S = 3 * TEST_S  # of a program


@dataclass(frozen=True)
class Ran:
    """A program's exit status, and the end of what it printed."""

    status: int
    output: str


Run = Callable[[Sequence[str]], Ran]


def run(words: Sequence[str]) -> Ran:
    """A program of this checkout, by this Python."""
    try:
        done = subprocess.run(
            [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=FAILED_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""  # bytes even of a program whose output is text
        output = said if isinstance(said, str) else said.decode(errors="replace")
        return Ran(124, f"{output}\nnot ready after {FAILED_S} s")
    return Ran(done.returncode, done.stdout + done.stderr)


def found(title: str, of: Sequence[Finding]) -> list[str]:
    lines = [f"- ok: {one.name}: {one.detail}" for one in of if one.ok]
    lines += [f"- missing: {one.name}: {one.detail}: {one.mend}" for one in of if not one.ok]
    return [f"## {title}", "", *lines, ""]


def tested(run: Run) -> list[str]:
    """What each test came to, and the end of the output where one failed."""
    ran = run(["-m", "pytest", TESTS, "-rA", "-v", f"--timeout={TEST_S}", "--tb=short", "-n", "0"])
    kinds = ("PASSED", "FAILED", "ERROR", "SKIPPED")
    results = [line for line in ran.output.splitlines() if line.startswith(kinds)]
    return ["## Tests", "", *(f"- {line}" for line in results), "", *failure(ran)]


def timed(run: Run, model: str, batches: Sequence[int], scratch: Path) -> list[str]:
    """The steps of both engines; one that fails says so, and the other has its table all the same."""
    lines = [f"## Decode steps of {model}, microseconds", ""]
    for engine in ENGINES:
        out = scratch / f"{engine}.json"
        sizes = [str(batch) for batch in batches]
        ran = run(
            [
                "scripts/bench/steps.py",
                "--model",
                model,
                "--engine",
                engine,
                "--out",
                str(out),
                "--batch",
                *sizes,
            ]
        )
        lines += [f"`--engine {engine}`", "", *failure(ran)]
        if ran.status == 0:
            lines += [steps_table(json.loads(out.read_text())["rows"]), ""]
    return lines


def steps_table(rows: Sequence[dict[str, Any]]) -> str:
    return table(COLUMNS, [tuple(cell(row[name]) for name in COLUMNS) for row in rows])


def cell(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def failure(ran: Ran) -> list[str]:
    if ran.status == 0:
        return []
    return [f"exit status {ran.status}:", "", "```text", *ran.output.splitlines()[-LAST_LINES:], "```", ""]


def page(
    run: Run, gpu: Sequence[Finding], library: Sequence[Finding], model: str, batches: Sequence[int]
) -> str:
    """Tests and times only where the library serves."""
    head = [f"# TensorRT engine, {datetime.date.today().isoformat()}", "", f"commit {commit()}", ""]
    lines = [*head, *found("GPU", gpu), *found("TensorRT", library)]
    if all(finding.ok for finding in library):
        with tempfile.TemporaryDirectory() as scratch:
            lines += [*tested(run), *timed(run, model, batches, Path(scratch))]
    return "\n".join(lines)


def commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    )
    return done.stdout.strip() or "unknown"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-3.2-1b", help="as scripts/bench/steps.py takes it")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--out", type=Path, help="a file, instead of the terminal")
    options = parser.parse_args()
    library = findings()
    text = page(run, probe(), library, options.model, options.batch)
    if options.out:
        options.out.write_text(text)
    else:
        print(text)
    return 0 if all(finding.ok for finding in library) else 1


if __name__ == "__main__":
    raise SystemExit(main())

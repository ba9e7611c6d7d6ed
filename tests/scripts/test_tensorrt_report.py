"""The page that a machine on which TensorRT serves sends back (scripts/tensorrt_report.py), with programs
that only say what they would."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tensorrt_report import Ran, page

from gpu_backend.cuda.probe import Finding

GPU = [Finding("GPU", True, "NVIDIA L4, 24 GiB, sm_89", "")]
SERVES = [Finding("library", True, "TensorRT for RTX 1.7", ""), Finding("plans", True, "serves", "")]
ROW = {
    "batch": 8,
    "total_pages": 123456,
    "run_us": 1234.5,
    "period_us": 1240.0,
    "replay_us": 1230.0,
    "gap_median_us": 0.6,
}


def programs(words: Sequence[str]) -> Ran:
    """The tests, one of which fails; and the steps, whose native engine does not start."""
    if "pytest" in words:
        return Ran(1, "noise\nPASSED tests/a\nFAILED tests/b - AssertionError\n1 failed, 1 passed\n")
    engine = words[words.index("--engine") + 1]
    if engine == "native":
        return Ran(1, "blink: out of memory")
    out = Path(words[words.index("--out") + 1])
    out.write_text(json.dumps({"rows": [ROW]}))
    return Ran(0, "")


def test_the_page_has_what_ran_and_what_failed() -> None:
    text = page(programs, GPU, SERVES, "llama-3.2-1b", [8])
    for part in (
        "- ok: GPU: NVIDIA L4, 24 GiB, sm_89",
        "- ok: library: TensorRT for RTX 1.7",
        "- PASSED tests/a\n- FAILED tests/b - AssertionError",
        "1 failed, 1 passed\n```",
        "`--engine native`\n\nexit status 1:\n\n```text\nblink: out of memory\n```",
    ):
        assert part in text
    measured = text.split("`--engine tensorrt`")[1]
    figures = [cell for cell in measured.split() if cell[0].isdigit()]
    assert figures == ["8", "123456", "1234", "1240", "1230", "0.6"]


def test_where_the_library_does_not_serve_nothing_is_run() -> None:
    def never(words: Sequence[str]) -> Ran:
        raise AssertionError(words)

    text = page(never, GPU, [Finding("library", False, "no TensorRT", "install it")], "llama-3.2-1b", [8])
    assert "- missing: library: no TensorRT: install it" in text


def test_the_steps_are_asked_for_by_flags_that_the_benchmark_has() -> None:
    asked: list[Sequence[str]] = []

    def note(words: Sequence[str]) -> Ran:
        asked.append(words)
        return Ran(1, "")

    page(note, GPU, SERVES, "llama-3.2-1b", [8])
    root = Path(__file__).resolve().parents[2]
    steps = next(words for words in asked if "--engine" in words)
    assert (root / steps[0]).exists()
    told = subprocess.run(
        [sys.executable, steps[0], "--help"], cwd=root, capture_output=True, text=True
    ).stdout
    assert all(word in told for word in steps if word.startswith("--"))
    assert all((root / word).exists() for word in asked[0] if word.startswith("tests/"))
    assert "--timeout=3600" in asked[0], "the tests' own bound is too short for a first start's plans"

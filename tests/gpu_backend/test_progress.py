"""How far a start says it has come."""

from __future__ import annotations

import pytest

from gpu_backend.progress import ProgressLine, describe


def test_progress_says_bytes_and_their_rate(capsys: pytest.CaptureFixture[str]) -> None:
    assert describe("weights", 12_340_000_000, 61_060_000_000, 4.0) == "12.34 of 61.06 GB, 3.1 GB/s"
    assert describe("weights", 0, 10**9, 0.0) == "0.00 of 1.00 GB"
    assert describe("graphs", 12, 90, 4.0) == "12/90"
    line = ProgressLine()
    for done in (0, 1, 2):
        line("graphs", done, 2)
    assert capsys.readouterr().err == "blink backend: graphs 2/2\n"  # no terminal: the end alone


def test_progress_on_a_terminal_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("gpu_backend.progress.TERMINAL_S", 0.0)
    line = ProgressLine()
    for done in (0, 1, 2):
        line("graphs", done, 2)
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.endswith("\rblink backend: graphs 2/2 [####################]\n")

"""The lines that processes write on standard error: one style, for people or for programs."""

from __future__ import annotations

import contextlib
import json
import logging
import re

import pytest

from ringbuffer import messages


def test_what_is_said_and_what_is_logged_look_alike(capsys: pytest.CaptureFixture[str]) -> None:
    messages.choose_format("text")
    messages.log_to_standard_error("blink frontend", "info")
    messages.say("blink backend", "serving")
    logging.getLogger("nic_frontend.service").info("serving %s", "demo")
    logging.getLogger("nic_frontend.service").warning("not serving")
    time = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d "
    said, logged, warned = capsys.readouterr().err.splitlines()
    assert re.fullmatch(f"{time}blink backend: serving", said)
    assert re.fullmatch(f"{time}blink frontend: serving demo", logged)
    assert re.fullmatch(f"{time}blink frontend: warning: not serving", warned)


def test_the_journal_has_the_time_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JOURNAL_STREAM", "8:1234")
    messages.choose_format("text")
    messages.say("blink", "ready")
    assert capsys.readouterr().err == "blink: ready\n"


def test_json_has_a_line_an_object_and_its_fields(capsys: pytest.CaptureFixture[str]) -> None:
    messages.choose_format("json")
    messages.log_to_standard_error("blink frontend", "info")
    logging.info("GET %s", "/é", extra={messages.LOG_FIELDS: {"status": 200}})
    try:
        raise KeyError("x")
    except KeyError:
        logging.exception("failed")
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first.items() >= {
        "level": "info", "process": "blink frontend", "message": "GET /é", "status": 200,
    }.items()  # fmt: skip
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert second["level"] == "error"
    assert "KeyError" in second["message"]


@pytest.mark.parametrize("log_format", messages.FORMATS)
def test_a_standard_error_that_fails_ends_nothing(log_format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:  # write(2) says ENOSPC, as a full disk does
        monkeypatch.setattr("sys.stderr", full)
        messages.choose_format(log_format)
        messages.log_to_standard_error("blink frontend", "info")
        messages.say("blink", "ready")
        logging.info("served")
        with contextlib.suppress(OSError):
            full.close()
    messages.say("blink", "still there")  # to one that is closed

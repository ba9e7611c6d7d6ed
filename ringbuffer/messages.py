"""What a process of Blink says on its standard error: one line each, for people or, as JSON, for programs.

14:32:41 blink frontend: serving demo on http://127.0.0.1:8000
{"time": "2026-11-25T14:32:41.123Z", "level": "info", "process": "blink frontend", "message": "serving ..."}
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from datetime import UTC, datetime
from typing import Any

FORMATS = ("text", "json")
LOG_FIELDS = "blink_fields"  # of a LogRecord: what JSON has beside the message

_as_json = False
_clock = ""  # strftime's, before a line of text; empty where what reads the lines has the time


def choose_format(log_format: str) -> None:
    """One of FORMATS, for all lines of this process. Until then they are text without the time."""
    global _as_json, _clock
    _as_json = log_format == "json"
    if "JOURNAL_STREAM" in os.environ:  # systemd.exec(5): the journal stamps what it gets
        _clock = ""
    else:
        _clock = "%H:%M:%S " if sys.stderr.isatty() else "%Y-%m-%d %H:%M:%S "


def log_format() -> str:
    return "json" if _as_json else "text"


def say(who: str, text: str, level: str = "info", **fields: Any) -> None:
    """One line. `fields` are for JSON; `text` says them already."""
    _write(line(who, text, level, time.time(), fields))


def _write(text: str) -> None:
    """To a standard error that may be a full disk or a pipe without a reader: that ends no service."""
    with contextlib.suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def line(who: str, text: str, level: str, when: float, fields: dict[str, Any]) -> str:
    if _as_json:
        stamp = datetime.fromtimestamp(when, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return json.dumps(
            {"time": stamp, "level": level, "process": who, "message": text} | fields, ensure_ascii=False
        )
    stamp = time.strftime(_clock, time.localtime(when)) if _clock else ""
    return f"{stamp}{who}: {f'{level}: ' if level in ('warning', 'error', 'critical') else ''}{text}"


class LogHandler(logging.Handler):
    """Records of Python's logging as such lines."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + logging.Formatter().formatException(record.exc_info)
            fields = getattr(record, LOG_FIELDS, {})
            _write(line(self._who, text, record.levelname.lower(), record.created, fields))
        except Exception:
            self.handleError(record)


def log_to_standard_error(who: str, level: str) -> None:
    """Python's logging of this process, from `level` on."""
    logging.basicConfig(level=level.upper(), handlers=[LogHandler(who)], force=True)

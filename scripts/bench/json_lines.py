"""Files of JSON lines that grow while something is measured, and whose writers may be killed at any time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def append_line(path: Path, record: dict[str, Any]) -> None:
    """On a line of its own: a last line that was torn goes, or the record would become a part of it. What was
    measured survives the machine's end.
    """
    with path.open("ab+") as file:
        file.seek(0)
        data = file.read()
        file.truncate(data.rfind(b"\n") + 1)
        file.write(json.dumps(record).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())

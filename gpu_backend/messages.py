"""What the backend says on its standard error."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    print(f"blink backend: {text}", file=sys.stderr, flush=True)

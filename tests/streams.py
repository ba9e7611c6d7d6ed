"""A streamed completion in the background."""

from __future__ import annotations

import contextlib
import json
import threading
import time

import httpx
from limits import WAIT_S


class Stream(threading.Thread):
    """Its text so far, and its error if it ended with one. `patience_s` is how long the server may take to be
    there.
    """

    def __init__(self, url: str, max_tokens: int, patience_s: float = 0.0) -> None:
        super().__init__()
        self.text, self.error = "", ""
        self._url, self._max_tokens = url, max_tokens
        self._deadline = time.monotonic() + patience_s
        self.start()

    def run(self) -> None:
        body = {"prompt": "x", "max_tokens": self._max_tokens, "stream": True}
        while True:
            try:
                with httpx.stream(
                    "POST", f"{self._url}/v1/completions", json=body, timeout=WAIT_S
                ) as response:
                    with contextlib.suppress(httpx.RemoteProtocolError):  # the server was killed
                        for line in response.iter_lines():
                            self._take(line)
                    return
            except httpx.ConnectError:
                if time.monotonic() > self._deadline:
                    raise
                time.sleep(0.2)

    def _take(self, line: str) -> None:
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            self.error = event.get("error", {}).get("message", "")
            self.text += "" if self.error else event["choices"][0]["text"]

"""A streamed completion of a Dynamo graph."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx
from graph import Graph
from limits import WAIT_S


class Stream(threading.Thread):
    """A completion that is read as it comes."""

    def __init__(self, graph: Graph, body: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.events: list[str] = []
        self.failed: str | None = None
        self._url, self._body = graph.url, {**body, "stream": True}
        self.start()

    def run(self) -> None:
        try:
            with httpx.stream(
                "POST", f"{self._url}/v1/completions", json=self._body, timeout=WAIT_S
            ) as response:
                for line in response.iter_lines():
                    if line:
                        self.events.append(line)
        except httpx.HTTPError as error:
            self.failed = str(error)

    def _objects(self) -> list[dict[str, Any]]:
        assert self.failed is None, self.failed
        return [
            json.loads(event.removeprefix("data: ")) for event in self.events if event.startswith("data: {")
        ]

    @property
    def text(self) -> str:
        return "".join(
            choice.get("text") or "" for found in self._objects() for choice in found.get("choices", ())
        )

    @property
    def error(self) -> Any:
        return next((found["error"] for found in self._objects() if "error" in found), None)

"""What is known of an HTTP request when it is over: for the log, and for traces."""

from __future__ import annotations

import re
import time
import uuid
from typing import Any

from nic_frontend.http.asgi import Header, Scope, header
from nic_frontend.http.keys import Key
from nic_frontend.ring.request import Request

TAKEN_ID = re.compile(r"[\x21-\x7e]{1,128}")
RECORD = "blink.record"  # where a scope has it


class RequestRecord:
    """Made when the request comes. `requests` are its choices, where a model answers it."""

    def __init__(self, scope: Scope) -> None:
        given = header(scope, b"x-request-id") or ""
        self.id = given if TAKEN_ID.fullmatch(given) else uuid.uuid4().hex
        self.method: str = scope["method"]
        self.path: str = scope["path"]
        self.client: str = (scope.get("client") or ("unknown", 0))[0]
        self.traceparent = header(scope, b"traceparent")
        self.key: Key | None = None
        self.status: int | None = None  # of the response, once it began
        self.requests: list[Request] = []
        self.began_ns = time.time_ns()
        self._began = time.perf_counter()
        self.seconds = 0.0
        scope[RECORD] = self

    @property
    def header(self) -> Header:
        return (b"x-request-id", self.id.encode())

    def end(self) -> None:
        self.seconds = time.perf_counter() - self._began

    def fields(self) -> dict[str, Any]:
        """What there is to tell, as JSON has it."""
        told: dict[str, Any] = {
            "id": self.id,
            "client": self.client,
            "method": self.method,
            "path": self.path,
            "status": self.status,
            "seconds": round(self.seconds, 6),
        }
        if self.key is not None and self.key.name is not None:
            told["key"] = self.key.name
        if not self.requests:
            return told
        told["prompt_tokens"] = sum(len(request.prompt) for request in self.requests)
        told["output_tokens"] = sum(request.n_tokens for request in self.requests)
        answered = [request for request in self.requests if request.n_tokens]
        if answered:
            first = min(answered, key=lambda request: request.first_token)
            told["cached_tokens"] = sum(request.cached_tokens for request in answered)
            told["queue_ms"] = round(first.queue_s * 1e3, 3)
            told["ttft_ms"] = round((first.first_token - first.arrived) * 1e3, 3)
        several = [request for request in answered if request.n_tokens > 1]
        if several:
            told["tpot_ms"] = round(sum(request.tpot_s for request in several) / len(several) * 1e3, 3)
        return told


def record_of(scope: Scope) -> RequestRecord:
    found = scope[RECORD]
    assert isinstance(found, RequestRecord)
    return found

"""Spans for a collector of OpenTelemetry, as it receives them."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from harness import StartFrontend, wait_until
from mock_backend import MockBackend

from blink import cli
from ringbuffer.version import install

trace_service = pytest.importorskip(
    "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
    reason="needs scripts/setup tracing",
)
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP; `spans` are by their gen_ai.request.id."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Receiver)
        self.spans: dict[str, tuple[Any, dict[str, Any]]] = {}
        self.url = f"http://127.0.0.1:{self.server_port}/v1/traces"


class Receiver(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.headers.get("content-encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        for resource in trace_service.ExportTraceServiceRequest.FromString(body).resource_spans:
            for scope in resource.scope_spans:
                for span in scope.spans:
                    found = {
                        pair.key: getattr(pair.value, pair.value.WhichOneof("value"))
                        for pair in span.attributes
                    }
                    self.server.spans[found["gen_ai.request.id"]] = (span, found)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_a_request_is_a_span_of_its_callers_trace(
    backend: MockBackend,
    start_frontend: StartFrontend,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    frontend = start_frontend(backend, otlp_traces_endpoint=collector.url)
    body = {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}
    headers = {"x-request-id": "one", "traceparent": f"00-{TRACE}-{PARENT}-01"}
    frontend.client.post("/v1/completions", json=body, headers=headers)
    frontend.client.post("/v1/completions", json={"prompt": 3.5}, headers={"x-request-id": "two"})
    frontend.client.get("/health", headers={"x-request-id": "three"})
    # Whose span comes behind all before it.
    frontend.client.post("/v1/completions", json=body, headers={"x-request-id": "four"})
    wait_until(lambda: {"one", "two", "four"} <= set(collector.spans))
    span, found = collector.spans["one"]
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
    assert found["http.response.status_code"] == 200
    assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (3, 4)
    seconds = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
    assert 0 < found["gen_ai.latency.time_to_first_token"] <= seconds
    refused, attributes = collector.spans["two"]
    assert attributes["http.response.status_code"] == 400
    assert refused.trace_id.hex() != TRACE
    assert "three" not in collector.spans


def test_without_the_extra_the_flag_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    assert cli.main(["serve", "demo", "--port=0", "--otlp-traces-endpoint=http://localhost"]) == 1
    assert install("tracing") in capsys.readouterr().err

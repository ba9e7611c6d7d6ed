"""A span for each request, for a collector of OpenTelemetry (`--otlp-traces-endpoint`; the extra `tracing`).

The span is made when the request is over and is exported by a thread of its own. It continues the caller's
trace where a `traceparent` came. Names of attributes are those of OpenTelemetry's conventions for generative
AI, and vLLM's for what they lack.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nic_frontend.observe.request_record import RequestRecord

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

SERVICE = "blink"
CLOSE_MS = 3000  # for spans that are on their way, at the end
LATENCIES = {
    "ttft_ms": "gen_ai.latency.time_to_first_token",
    "queue_ms": "gen_ai.latency.time_in_queue",
}  # in seconds
USAGE = {
    "prompt_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "cached_tokens": "gen_ai.usage.cache_read.input_tokens",
}


def require() -> None:
    """Raises ModuleNotFoundError without the extra, before anything starts."""
    importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")


def open_tracer(endpoint: str | None, model: str) -> Tracer | None:
    """The tracer for the collector at `endpoint`, if any."""
    if endpoint is None:
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return Tracer(OTLPSpanExporter(endpoint=endpoint), model)


class Tracer:
    def __init__(self, exporter: SpanExporter, model: str) -> None:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._model = model
        self._provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("blink")

    def record(self, record: RequestRecord) -> None:
        """Of requests that a model answered, or that were refused one."""
        if record.method != "POST":
            return
        from opentelemetry.trace import SpanKind, Status, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        carrier = {"traceparent": record.traceparent} if record.traceparent else {}
        span = self._tracer.start_span(
            f"{record.method} {record.path}",
            TraceContextTextMapPropagator().extract(carrier),
            SpanKind.SERVER,
            self._attributes(record),
            start_time=record.began_ns,
        )
        if record.status is None or record.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end(record.began_ns + int(record.seconds * 1e9))

    def _attributes(self, record: RequestRecord) -> dict[str, Any]:
        fields = record.fields()
        told: dict[str, Any] = {
            "http.request.method": record.method,
            "url.path": record.path,
            "gen_ai.request.id": record.id,
            "gen_ai.response.model": self._model,
            "gen_ai.latency.e2e": record.seconds,
        }
        if record.status is not None:
            told["http.response.status_code"] = record.status
        if "key" in fields:
            told["blink.key"] = fields["key"]
        told |= {name: fields[field] for field, name in USAGE.items() if field in fields}
        return told | {name: fields[field] / 1e3 for field, name in LATENCIES.items() if field in fields}

    def close(self) -> None:
        self._provider.force_flush(CLOSE_MS)
        self._provider.shutdown()

"""What a frontend counts: tokens, requests and their times, as plain integers on the token path.

`figures` is a copy of all of it: what /metrics shows (exposition.py), and what the frontends of a host tell
each other (shared_figures.py).
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from nic_frontend.abi import Health
from nic_frontend.ring.request import Request

TIME_BUCKETS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
TOKEN_BUCKETS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)
COUNTERS = {
    "prompt_tokens": "Prompt tokens submitted",
    "prompt_tokens_cached": "Prompt tokens that were cached",
    "generation_tokens": "Output tokens received",
    "slow_clients": "Requests cancelled because the client did not read",
    "client_disconnects": "Requests cancelled because the client left",
    "grammars_reused": "Grammars of requests that were compiled before",
    "grammars_refused": "Grammars of requests that cannot be enforced",
    "grammar_process_restarts": "Processes that compile grammars started in the place of others",
}
HISTOGRAMS = {  # of requests, of the tokens behind their first, and of grammars
    "time_to_first_token_seconds": ("Arrival to first token", TIME_BUCKETS),
    "inter_token_latency_seconds": ("Between two tokens of a request", TIME_BUCKETS),
    "request_time_per_output_token_seconds": ("Mean time per token after the first", TIME_BUCKETS),
    "e2e_request_latency_seconds": ("Arrival to last token", TIME_BUCKETS),
    "request_queue_time_seconds": ("Arrival to admission into the batch", TIME_BUCKETS),
    "request_prefill_time_seconds": ("Admission to first token", TIME_BUCKETS),
    "request_decode_time_seconds": ("First token to last token", TIME_BUCKETS),
    "request_inference_time_seconds": ("Admission to last token", TIME_BUCKETS),
    "request_prompt_tokens": ("Prompt tokens per request", TOKEN_BUCKETS),
    "request_prefill_kv_computed_tokens": ("Prompt tokens per request that were not cached", TOKEN_BUCKETS),
    "request_generation_tokens": ("Output tokens per request", TOKEN_BUCKETS),
    "request_params_max_tokens": ("Output tokens that requests allow", TOKEN_BUCKETS),
    "grammar_compile_time_seconds": ("To compile a grammar, from the request on", TIME_BUCKETS),
}
READER = {
    "cycles": "Cycles of the token reader that visited a slot",
    "wakes": "Times the token reader woke the event loop",
    "records": "Output records accepted",
    "bad_records": "Output records found stale or torn, and read again",
    "arena_reads": "Reads of the output arena, where the inline records did not suffice",
}

Figures = dict[str, Any]  # numbers, and dictionaries of them, as JSON has them


class Histogram:
    """Counts per bucket, for one thread."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Metrics:
    """One per frontend process."""

    def __init__(self) -> None:
        self.prompt_tokens = 0
        self.prompt_tokens_cached = 0
        self.generation_tokens = 0
        self.slow_clients = 0
        self.client_disconnects = 0
        self.grammars_reused = 0
        self.grammars_refused = 0
        self.grammar_process_restarts = 0
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.responses: dict[int, int] = {}
        self._histograms = {name: Histogram(bounds) for name, (_, bounds) in HISTOGRAMS.items()}
        self._ttft = self._histograms["time_to_first_token_seconds"]
        self._itl = self._histograms["inter_token_latency_seconds"]

    def on_submitted(self, request: Request) -> None:
        self.prompt_tokens += len(request.prompt)

    def on_tokens(self, request: Request, n: int, now: float) -> None:
        """`n` arrived at `now`; the request does not count them yet."""
        self.generation_tokens += n
        if request.n_tokens:
            self._itl.observe((now - request.last_token) / n, n)
        else:
            self.prompt_tokens_cached += request.cached_tokens
            self._ttft.observe(now - request.arrived)

    def on_slow_client(self) -> None:
        self.slow_clients += 1

    def on_finished(self, request: Request, reason: str, now: float) -> None:
        """`reason` is the API's finish_reason, or "abort" when the client left, or "error"."""
        self.finished[reason] += 1
        if reason not in ("stop", "length"):
            return
        values = {
            "e2e_request_latency_seconds": now - request.arrived,
            "request_queue_time_seconds": request.queue_s,
            "request_prefill_time_seconds": request.prefill_s,
            "request_decode_time_seconds": request.last_token - request.first_token,
            "request_inference_time_seconds": request.prefill_s + request.last_token - request.first_token,
            "request_prompt_tokens": len(request.prompt),
            "request_prefill_kv_computed_tokens": len(request.prompt) - request.cached_tokens,
            "request_generation_tokens": request.n_tokens,
            "request_params_max_tokens": request.sampling.max_tokens,
        }
        if request.n_tokens > 1:
            values["request_time_per_output_token_seconds"] = request.tpot_s
        for name, value in values.items():
            self._histograms[name].observe(value)

    def on_grammar_compiled(self, seconds: float) -> None:
        self._histograms["grammar_compile_time_seconds"].observe(seconds)

    def on_grammar_reused(self) -> None:
        self.grammars_reused += 1

    def on_grammar_refused(self) -> None:
        self.grammars_refused += 1

    def on_grammar_process_restart(self) -> None:
        self.grammar_process_restarts += 1

    def on_response(self, status: int) -> None:
        self.responses[status] = self.responses.get(status, 0) + 1

    def figures(self, n_open: int, health: Health) -> Figures:
        return {
            "open": n_open,
            "counters": {name: getattr(self, name) for name in COUNTERS},
            "finished": dict(self.finished),
            "responses": {str(status): count for status, count in self.responses.items()},
            "histograms": {
                name: {"counts": list(histogram.counts), "sum": histogram.sum}
                for name, histogram in self._histograms.items()
            },
            "reader": {name: int(getattr(health, name)) for name in READER},
            "heartbeat_age_s": health.heartbeat_age_ns / 1e9,
        }


def added(all_of_them: list[Figures]) -> Figures:
    """Of several frontends together: sums, but of the heartbeat's ages the least."""
    total: Figures = _sum(all_of_them)
    return total | {"heartbeat_age_s": min(figures["heartbeat_age_s"] for figures in all_of_them)}


def _sum(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        names = dict.fromkeys(name for value in values for name in value)
        return {name: _sum([value[name] for value in values if name in value]) for name in names}
    if isinstance(values[0], list):
        return [sum(column) for column in zip(*values, strict=True)]
    return sum(values)

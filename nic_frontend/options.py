"""What a frontend process can be told."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class VerbsRing:
    """A ring on another host, reached over RDMA through its backend's exchange at `host`:`port`."""

    host: str
    port: int
    key: bytes = field(repr=False)  # shared with the backend (ringbuffer/rdma/exchange_key.py)
    rdma_device: str | None = None  # of this host; default: the one on the network that leads to the backend
    gid_index: int | None = None  # of that device; default: chosen like the device
    read_back: bool = True  # read a payload back before its word is written (V3)

    def __str__(self) -> str:
        return f"verbs://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


@dataclass(frozen=True, kw_only=True)
class FrontendOptions:
    """One frontend process: one lease of one ring. Times in seconds, sizes in bytes.

    Several processes with the same host and port share the port (SO_REUSEPORT), each with a lease of its own.
    """

    ring: Path | VerbsRing  # the region's file, ringbuffer.region.ring_path(name), or where to reach it
    model_dir: Path  # its configuration, tokenizer and chat template; not its weights
    served_model_name: str | None = None  # default: the name in the ring's header
    model_aliases: tuple[str, ...] = ()  # further names that requests may call the model by
    host: str = "127.0.0.1"
    port: int = 8000  # 0: the system picks one
    uds: Path | None = None  # a Unix socket to listen on, in place of host and port
    root_path: str = (
        ""  # where a proxy serves this server, such as /llm; requests may come with it or without
    )
    cores: tuple[int, ...] | None = None  # that this process keeps to; default: those it was started on
    realtime: int | None = None  # priority under SCHED_RR; default: scheduled as ordinary work
    api_key: str | None = None  # everything but /health and /metrics then wants `Authorization: Bearer`
    api_keys: Path | None = None  # a file of several, in its place (http/keys.py)
    tls_cert: Path | None = None  # the server's certificate and those that lead to a root, PEM; then HTTPS
    tls_key: Path | None = None  # its private key, PEM, where that is not in the same file
    tls_client_ca: Path | None = None  # whose certificates clients must show, PEM; default: none is asked for
    allowed_hosts: tuple[str, ...] | None = None  # names that it answers to; "*": any. Default: hosts.py
    trusted_proxies: tuple[
        str, ...
    ] = ()  # addresses and networks whose X-Forwarded-For is believed; "*": all
    allowed_origins: tuple[str, ...] | None = None  # whose pages a browser lets read answers; "*": all

    store_responses: Path | None = None  # the file that stores responses; None: none are stored
    store_bytes: int = 1 << 30  # of all stored responses
    response_age_days: float = 30.0  # of what is stored, since it was used last, and of sealed reasoning
    seal_key: bytes | None = field(default=None, repr=False)  # seals reasoning; default: a new one
    seal_key_file: Path | None = None  # of another key, in its place

    chat_template: Path | None = None  # a file of Jinja in the place of the model directory's
    tool_call_parser: str = "auto"  # parsing/registry.py: how the model writes calls of tools; "none"
    reasoning_parser: str = "auto"  # and what it thinks

    attach_timeout_s: float = 30.0  # for the ring to appear and the scheduler to serve
    grant_timeout_s: float = 3.0  # for the scheduler to acknowledge the lease
    body_timeout_s: float = 30.0  # for a request's body to arrive
    request_timeout_s: float = 3600.0  # for an answer's last byte, from the first of the request's body
    drain_timeout_s: float = 30.0  # for open requests to finish after SIGTERM
    template_timeout_s: float = 5.0  # for the chat template to render one request
    watchdog_s: float | None = 20.0  # a process whose event loop does not turn for so long ends; None: never
    # For a slot that is just being released, before 429. None: until there is room, also for one client that
    # then leaves none to others, because all requests are one user's.
    slot_wait_s: float | None = 1.0

    max_connections: int = 4096  # beyond that, those that wait for longest make room
    max_body_bytes: int = 8 << 20
    template_memory_bytes: int = 1 << 30  # that the process may hold which renders the chat template
    body_memory_bytes: int = 64 << 20  # of all bodies together that are being read and understood
    max_choices: int = 128  # prompts times n of one request
    max_prompt_tokens: int = 512 << 10  # of all its choices, where it has several
    max_buffered_tokens: int = 4096  # a stream whose client is this far behind is cancelled
    hide_cached_tokens: bool = False  # from requests without a cache_salt, which share the cache with others
    scrub: bool = False  # clear prompts in the ring when their requests are released
    send_buffer_bytes: int = 256 << 10  # of the kernel, per connection
    send_timeout_s: float = 60.0  # a connection that acknowledges nothing for this long is dropped

    poll_spin_us: float = 20.0  # the token reader polls without a pause for this long after a token
    poll_min_us: float = 50.0  # then sleeps until more is due, within these bounds
    poll_max_us: float = 1000.0
    records_per_cycle: int = 8192
    log_level: str = "info"
    log_requests: bool = False  # a line for each, when it is over
    otlp_traces_endpoint: str | None = None  # URL of a collector that gets a span for each request
    metrics_names: str = "blink"  # the prefix of /metrics: blink, vllm

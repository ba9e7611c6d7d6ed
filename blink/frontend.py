"""blink frontend: the HTTP server alone, beside its backend or on a DPU."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blink import child, systemd
from blink.address import explained, verbs_address
from blink.config_file import add_config_flag
from blink.errors import CommandError
from blink.files import writable_file
from blink.flags import (
    Flag,
    add_flags,
    aliases,
    api_key,
    checked,
    cores,
    count,
    days,
    duration,
    given,
    hosts,
    ordinal,
    origins,
    port,
    proxies,
    realtime,
    ring_name,
    root_path,
    seconds,
    socket_path,
)
from blink.model_directory import add_model_arguments, model_directory
from blink.sizes import format_bytes, parse_bytes, parse_memory, write_bytes
from nic_frontend.http.keys import read_keys
from nic_frontend.http.tls import read_certificate, read_private_key, server_context
from nic_frontend.observe import tracing
from nic_frontend.options import FrontendOptions, VerbsRing
from nic_frontend.parsing.registry import AUTO, NONE, TOOL_CALL_PARSERS
from nic_frontend.store.file import StoreFile
from nic_frontend.store.seal_key import VARIABLE as SEAL_KEY_VARIABLE
from nic_frontend.store.seal_key import check_seal_key, read_seal_key
from nic_frontend.templates.marks import REASONING_PARSERS
from ringbuffer.messages import log_to_standard_error
from ringbuffer.model_file import shown
from ringbuffer.name import DEFAULT_NAME
from ringbuffer.rdma.exchange_key import VARIABLE, ring_key
from ringbuffer.region import ring_path
from ringbuffer.small_file import read_small_text

DESCRIPTION = """Serves HTTP for the ring of a running backend. Several frontends may share one host and port;
each takes one of the backend's leases. SIGTERM and SIGINT let open requests finish."""

API_KEY_VARIABLE = "BLINK_API_KEY"
METRICS_NAMES = ("blink", "vllm")  # exposition.NAMES, without the packages that it imports
LOG_LEVELS = ("debug", "info", "warning", "error")

LEAST_STORED = 4  # bodies, so that one conversation does not drive out all others
LONG_NAME = 150  # characters: longer ones may be a template's text
NO_TEXT = "give the path of a file of Jinja, not the template's text"


def check_template(path: Path) -> None:
    """Raises ValueError for what is no file of Jinja. What it does is tried where it is rendered."""
    from nic_frontend.templates.chat_template import (
        check_syntax,  # not at the top: jinja2 is a frontend's alone
    )

    if not os.path.lexists(path):
        name = str(path)
        raise ValueError(f"there is no file {name if len(name) < LONG_NAME else shown(name)}: {NO_TEXT}")
    text = read_small_text(path, NO_TEXT).removeprefix("\ufeff")
    try:
        check_syntax(text)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


OWN_FLAGS = (  # `blink serve` needs none of these
    Flag("--served-model-name", "served_model_name", "NAME",
         "the model's name in requests and answers (default: the backend's)"),
    Flag("--attach-timeout", "attach_timeout_s", "SECONDS", "wait for the ring to serve", seconds),
)  # fmt: skip
FLAGS = (
    Flag("--model-aliases", "model_aliases", "NAMES",
         "further names that requests may call the model by, such as gpt-4o,claude-sonnet-5",
         aliases, show=lambda _: "none"),
    Flag("--root-path", "root_path", "PATH",
         "the path at which a reverse proxy serves this server, such as /llm; the proxy may take it away "
         "before it passes requests on, or not", root_path, show=lambda _: "none"),
    Flag("--host", "host", "ADDRESS", "address to listen on; 0.0.0.0 is every IPv4 address of this machine"),
    Flag("--port", "port", "PORT", "port to listen on; 0 picks a free one", port),
    Flag("--uds", "uds", "PATH",
         "a Unix socket to listen on, in place of --host and --port; the umask says who may connect "
         "(default: none)", socket_path),
    Flag("--api-key", "api_key", "KEY",
         f"clients must send it as a bearer token (default: ${API_KEY_VARIABLE}, or no key)",
         api_key, secret=True),
    Flag("--api-keys", "api_keys", "FILE",
         "several keys in place of one, each with a name and limits of requests, tokens and what is open: "
         "TOML, read again when it changes", check=read_keys),
    Flag("--store-responses", "store_responses", "FILE",
         "store the responses of /v1/responses in this file, which clients may then continue by their ids "
         "(default: none are stored)", check=writable_file),
    Flag("--store-size", "store_bytes", "SIZE",
         "of all stored responses; beyond it, those that were used least of late go", parse_memory,
         show=format_bytes, write=write_bytes),
    Flag("--response-age", "response_age_days", "DAYS",
         "delete responses that nobody has continued for this long, and refuse sealed reasoning that is as "
         "old", days),
    Flag("--seal-key-file", "seal_key_file", "FILE",
         f"file with the key that seals reasoning for clients (default: ${SEAL_KEY_VARIABLE}, or a new one)",
         check=read_seal_key),
    Flag("--tls-cert", "tls_cert", "FILE", "serve HTTPS with this certificate, PEM, and its chain",
         check=read_certificate, also=("--ssl-certfile",)),
    Flag("--tls-key", "tls_key", "FILE", "the certificate's private key, PEM (default: in --tls-cert's file)",
         check=read_private_key, also=("--ssl-keyfile",)),
    Flag("--tls-client-ca", "tls_client_ca", "FILE",
         "serve only clients that show a certificate which one of these signed, PEM (default: none is asked "
         "for)", check=read_certificate, also=("--ssl-ca-certs",)),
    Flag("--allowed-hosts", "allowed_hosts", "HOSTS",
         "names that requests may call this server by (Host), such as example.com,10.0.0.7, or * (default:"
         " this machine's own on 127.0.0.1 without a key, else *)", hosts),
    Flag("--trusted-proxies", "trusted_proxies", "ADDRESSES",
         "proxies whose word on who the client is (X-Forwarded-For) is believed: addresses and networks, "
         "such as 10.0.0.2,10.1.0.0/16, or *", proxies, also=("--forwarded-allow-ips",),
         show=lambda _: "nobody's"),
    Flag("--allowed-origins", "allowed_origins", "ORIGINS",
         "whose pages may use the API in a browser, such as https://example.com, or * (default: nobody's)",
         origins),
    Flag("--drain-timeout", "drain_timeout_s", "SECONDS", "let open requests finish after SIGTERM", seconds),
    Flag("--body-timeout", "body_timeout_s", "SECONDS", "wait for a request's body", seconds),
    Flag("--request-timeout", "request_timeout_s", "SECONDS",
         "end a request that has not been answered in full after this long", seconds),
    Flag("--send-timeout", "send_timeout_s", "SECONDS", "drop a client that acknowledges nothing", seconds),
    Flag("--watchdog", "watchdog_s", "SECONDS",
         "end a frontend whose event loop does not turn for this long; another is started", duration),
    Flag("--slot-wait", "slot_wait_s", "SECONDS", "before 429, wait for a slot that is being freed", seconds),
    Flag("--max-body", "max_body_bytes", "SIZE", "largest request body, for example 8MiB", parse_bytes,
         show=format_bytes, write=write_bytes),
    Flag("--template-timeout", "template_timeout_s", "SECONDS",
         "refuse a chat whose template takes longer to render", seconds),
    Flag("--template-memory", "template_memory_bytes", "SIZE",
         "memory of the process that renders the chat template", parse_bytes, show=format_bytes,
         write=write_bytes),
    Flag("--body-memory", "body_memory_bytes", "SIZE",
         "for all bodies that are being read; 503 beyond it, but for small bodies", parse_bytes,
         show=format_bytes, write=write_bytes),
    Flag("--max-connections", "max_connections", "N",
         "beyond it, connections that keep the server waiting make room, the longest first", count),
    Flag("--max-choices", "max_choices", "N", "prompts times n of one request", count),
    Flag("--max-prompt-tokens", "max_prompt_tokens", "TOKENS",
         "prompts of one request in all, each counted for every choice, where it has several", count),
    Flag("--max-buffered-tokens", "max_buffered_tokens", "TOKENS",
         "cancel a stream whose client is this far behind", count),
    Flag("--hide-cached-tokens", "hide_cached_tokens", None,
         "answer cached_tokens: 0 to requests without a cache_salt, who would learn from it what others sent",
         switch=True),
    Flag("--scrub", "scrub", None, "clear prompts in the ring when their requests are released", switch=True),
    Flag("--chat-template", "chat_template", "FILE",
         "a file of Jinja that turns messages into prompts, in place of the model's chat template",
         check=check_template),
    Flag("--tool-call-parser", "tool_call_parser", "NAME",
         "how the model writes calls of tools: auto (by its chat template), none, "
         + ", ".join(TOOL_CALL_PARSERS), choices=(AUTO, NONE, *TOOL_CALL_PARSERS)),
    Flag("--reasoning-parser", "reasoning_parser", "NAME",
         "how it marks what it thinks: auto (by its chat template), none, " + ", ".join(REASONING_PARSERS),
         choices=(AUTO, NONE, *REASONING_PARSERS)),
    Flag("--metrics-names", "metrics_names", "NAMES",
         "of /metrics: blink, each frontend of this host by itself, or vllm, for dashboards made for vLLM",
         choices=METRICS_NAMES),
    Flag("--frontend-cores", "cores", "CORES",
         "cores that frontends keep to, for example 10-11, away from what else runs (default: any)", cores),
    Flag("--frontend-realtime", "realtime", "PRIORITY",
         "run frontends before all ordinary work of their cores: 1 to 99, under SCHED_RR (default: no)",
         realtime),
    Flag("--log-requests", "log_requests", None,
         "a line in the log for each request: its id, status, tokens and times", switch=True,
         also=("--enable-log-requests",)),
    Flag("--otlp-traces-endpoint", "otlp_traces_endpoint", "URL",
         "send a span for each request to this OpenTelemetry collector, such as "
         "http://localhost:4318/v1/traces (default: none)"),
    Flag("--log-level", "log_level", "LEVEL", f"one of {', '.join(LOG_LEVELS)}", choices=LOG_LEVELS,
         also=("--uvicorn-log-level",)),
)  # fmt: skip

RDMA_FLAGS = (
    Flag("--rdma-device", "rdma_device", "DEVICE",
         "RDMA device to use (default: the one on the network that leads to the backend)"),
    Flag("--rdma-gid-index", "gid_index", "N", "GID of that device (default: chosen like the device)",
         ordinal),
    Flag("--ring-key-file", "key_file", "FILE",
         f"file with the key that the backend was given (default: ${VARIABLE})", check=ring_key),
    Flag("--no-read-back", "no_read_back", None,
         "submit without reading the payload back first; refused unless the backend's memory orders writes",
         switch=True),
)  # fmt: skip


LISTEN_FD = "--listen-fd"  # from `blink serve`, whose frontends accept from one Unix socket


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument(LISTEN_FD, type=int, help=argparse.SUPPRESS)
    add_model_arguments(parser)
    add_place(parser, DEFAULT_NAME, "the backend's ring on this host, by name or path (default: %(default)s)")
    add_config_flag(parser)
    add_flags(parser, "frontend", FrontendOptions, (*OWN_FLAGS, *FLAGS))
    add_flags(parser, "a backend on another host", VerbsRing, RDMA_FLAGS)
    child.add_child_flags(parser)


def add_place(parser: argparse.ArgumentParser, ring: str | None, ring_help: str) -> None:
    """Where the ring is: --ring, which is `ring` by default, or --connect."""
    place = parser.add_mutually_exclusive_group()
    place.add_argument("--ring", metavar="NAME", type=checked(ring_name), default=ring, help=ring_help)
    place.add_argument(
        "--connect",
        type=checked(verbs_address),
        metavar="verbs://HOST:PORT",
        help="the ring of a backend on another host, which was given --rdma-listen",
    )


def chosen_ring(namespace: argparse.Namespace) -> Path | VerbsRing:
    of_rdma = given(namespace, RDMA_FLAGS)
    if not namespace.connect:
        if of_rdma:
            raise CommandError("the flags for a backend on another host need --connect verbs://HOST:PORT")
        return ring_path(namespace.ring)
    host, number = namespace.connect
    key, read_back = ring_key(of_rdma.pop("key_file", None)), not of_rdma.pop("no_read_back", False)
    return VerbsRing(host=host, port=number, key=key, read_back=read_back, **of_rdma)


def each_thread(change: Callable[[int], None], refused: str) -> None:
    """`change` to every thread that libraries started when they were imported; all that come inherit it.

    Raises CommandError with `refused`.
    """
    try:
        for thread in os.listdir("/proc/self/task"):
            change(int(thread))
    except OSError as error:
        raise CommandError(refused) from error


def keep_to(chosen: tuple[int, ...]) -> None:
    """This process on these cores. Raises CommandError."""
    named = ", ".join(map(str, chosen))
    each_thread(
        lambda thread: os.sched_setaffinity(thread, chosen),
        f"--frontend-cores: this process may use none of the cores {named}",
    )


def run_in_realtime(priority: int) -> None:
    """This process before all ordinary ones (sched(7)). It sleeps between tokens. Raises CommandError."""
    parameter = os.sched_param(priority)
    each_thread(
        lambda thread: os.sched_setscheduler(thread, os.SCHED_RR, parameter),
        f"--frontend-realtime: this process may not take priority {priority}; it needs CAP_SYS_NICE,"
        " or a limit of real-time priority (ulimit -r) that is as high",
    )


def values(namespace: argparse.Namespace) -> dict[str, Any]:
    """The fields of FrontendOptions that flags or the environment say."""
    of_environment = {
        "api_key": os.environ.get(API_KEY_VARIABLE) or None,
        "seal_key": os.environ.get(SEAL_KEY_VARIABLE, "").encode() or None,
    }
    return of_environment | given(namespace, (*OWN_FLAGS, *FLAGS))


def check_root_path(root: str) -> None:
    """Raises CommandError for one that begins as an endpoint does: a proxy that takes it away would leave
    requests that look as if they had it."""
    if not root:
        return
    from nic_frontend.api.openapi import OPERATIONS  # not at the top: it makes all models of requests

    paths = [operation.partition(" ")[2] for operation in OPERATIONS]
    if own := [path for path in paths if f"{path}/".startswith(f"{root}/")]:
        raise CommandError(f"--root-path is {root}, where this server has {own[0]}: choose another")


def check(options: FrontendOptions) -> None:
    """Raises CommandError for flags that do not go together; ValueError for files that do not."""
    if options.api_key and options.api_keys:
        raise CommandError(f"--api-key (or ${API_KEY_VARIABLE}) and --api-keys exclude each other")
    check_root_path(options.root_path)
    if options.uds and options.tls_cert:
        raise CommandError("--uds and --tls-cert exclude each other: nobody else reads a Unix socket")
    if options.tls_key and not options.tls_cert:
        raise CommandError("--tls-key needs --tls-cert, the certificate that it belongs to")
    if options.tls_client_ca and not options.tls_cert:
        raise CommandError("--tls-client-ca needs --tls-cert: clients show certificates over HTTPS alone")
    check_memory(options)
    if options.otlp_traces_endpoint:
        tracing.require()
    if options.tls_cert:
        server_context(options.tls_cert, options.tls_key, options.tls_client_ca)


def check_memory(options: FrontendOptions) -> None:
    """What is stored of responses, and the key of what clients keep. Raises CommandError or ValueError."""
    if options.seal_key is not None:
        check_seal_key(options.seal_key, f"${SEAL_KEY_VARIABLE}")
    if options.store_responses is None:
        if options.store_bytes != FrontendOptions.store_bytes:
            raise CommandError("--store-size needs --store-responses FILE: without it, nothing is stored")
        return
    try:
        StoreFile(options.store_responses).close()
    except (OSError, ValueError) as error:
        raise CommandError(f"--store-responses: {error}") from error
    if options.store_bytes < LEAST_STORED * options.max_body_bytes:
        raise CommandError(
            f"--store-size {format_bytes(options.store_bytes)} is too little for responses whose input alone "
            f"may have {format_bytes(options.max_body_bytes)} (--max-body): give at least {LEAST_STORED} "
            "times as much"
        )


def main(namespace: argparse.Namespace) -> int:
    on_hangup = child.begin(namespace)
    directory = model_directory(namespace.model, namespace.revision, weights=False)
    options = FrontendOptions(ring=chosen_ring(namespace), model_dir=directory, **values(namespace))
    check(options)
    if options.cores:
        keep_to(options.cores)
    if options.realtime:
        run_in_realtime(options.realtime)
    from nic_frontend.server import listening, serve  # not at the top: `blink serve` needs no uvicorn

    log_to_standard_error("blink frontend", options.log_level)
    service = systemd.Service()

    def ready() -> None:
        child.report_ready(namespace.ready_fd)
        service.ready()

    with contextlib.ExitStack() as owned:
        owned.enter_context(explained(options.host, options.port))
        if namespace.listen_fd is None:
            listener = owned.enter_context(listening(options))
        else:
            listener = owned.enter_context(socket.socket(fileno=namespace.listen_fd))
        serve(options, listener, ready, service.lives, on_hangup)
    return 0

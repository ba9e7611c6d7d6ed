"""blink frontend: the HTTP server alone, beside its backend or on a DPU."""

from __future__ import annotations

import argparse
import logging
import os

from blink import child
from blink.address import explained
from blink.flags import Flag, add_flags, count, given, port, seconds
from blink.model_directory import model_directory
from blink.sizes import format_bytes, parse_bytes
from nic_frontend.options import FrontendOptions
from ringbuffer.region import ring_path

DESCRIPTION = """Serves HTTP for the ring of a running backend. Several frontends may share one host and port;
each takes one of the backend's leases. SIGTERM and SIGINT let open requests finish."""

API_KEY_VARIABLE = "BLINK_API_KEY"
LOG_FORMAT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
LOG_LEVELS = ("debug", "info", "warning", "error")

OWN_FLAGS = (  # `blink serve` needs none of these
    Flag("--served-model-name", "served_model_name", "NAME",
         "the model's name in requests and answers (default: the backend's)"),
    Flag("--attach-timeout", "attach_timeout_s", "SECONDS", "wait for the ring to serve", seconds),
)  # fmt: skip
FLAGS = (
    Flag("--host", "host", "ADDRESS", "address to listen on; 0.0.0.0 is every IPv4 address of this machine"),
    Flag("--port", "port", "PORT", "port to listen on; 0 picks a free one", port),
    Flag("--api-key", "api_key", "KEY",
         f"clients must send it as a bearer token (default: ${API_KEY_VARIABLE}, or no key)",
         secret=True),
    Flag("--drain-timeout", "drain_timeout_s", "SECONDS", "let open requests finish after SIGTERM", seconds),
    Flag("--body-timeout", "body_timeout_s", "SECONDS", "wait for a request's body", seconds),
    Flag("--send-timeout", "send_timeout_s", "SECONDS", "drop a client that acknowledges nothing", seconds),
    Flag("--slot-wait", "slot_wait_s", "SECONDS", "before 429, wait for a slot that is being freed", seconds),
    Flag("--max-body", "max_body_bytes", "SIZE", "largest request body, for example 8MiB", parse_bytes,
         show=format_bytes),
    Flag("--max-choices", "max_choices", "N", "prompts times n of one request", count),
    Flag("--max-buffered-tokens", "max_buffered_tokens", "TOKENS",
         "cancel a stream whose client is this far behind", count),
    Flag("--log-level", "log_level", "LEVEL", f"one of {', '.join(LOG_LEVELS)}", choices=LOG_LEVELS),
)  # fmt: skip


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("model", metavar="MODEL", help="the backend's model directory, or 'demo'")
    parser.add_argument("--ring", metavar="NAME", required=True, help="the backend's ring, by name or path")
    add_flags(parser, "frontend", FrontendOptions, (*OWN_FLAGS, *FLAGS))
    child.add_child_flags(parser)


def main(namespace: argparse.Namespace) -> int:
    child.end_with_parent(namespace.parent_pid)
    values = {"api_key": os.environ.get(API_KEY_VARIABLE) or None} | given(namespace, (*OWN_FLAGS, *FLAGS))
    ring = ring_path(namespace.ring)
    options = FrontendOptions(ring=ring, model_dir=model_directory(namespace.model), **values)
    from nic_frontend.server import (
        serve,
    )  # not at the top: `blink serve` reads the flags, and needs no uvicorn

    logging.basicConfig(level=options.log_level.upper(), format=LOG_FORMAT)
    with explained(options.host, options.port):
        serve(options, ready=lambda host, port: child.report_ready(namespace.ready_fd))
    return 0

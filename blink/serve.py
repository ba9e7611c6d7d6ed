"""blink serve: both planes on this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from blink import backend, frontend
from blink.address import reserve, url
from blink.flags import add_flags, arguments, checked, count, defaults, given, ordinal, seconds
from blink.model_directory import model_directory
from blink.plan import Plan
from blink.supervisor import Supervisor
from gpu_backend.backend import DRAIN_S, STOP_S
from gpu_backend.options import BackendOptions, described_model
from nic_frontend.options import FrontendOptions
from ringbuffer.abi import MAX_LEASES
from ringbuffer.region import ring_path

DESCRIPTION = """Starts one backend and N frontends as processes of their own, and again when they die. The
frontends share the port. SIGTERM and SIGINT let open requests finish; a second one ends at once."""

START_TIMEOUT_S = 600.0
BACKEND_RESTARTS = 3
SLACK_S = 10.0  # beyond the bounds that the children keep by themselves


def frontends(text: str) -> int:
    n = count(text)
    if n > MAX_LEASES:
        raise ValueError(f"{n} frontends are too many; at most {MAX_LEASES} can be attached to a ring")
    return n


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    parser.add_argument("model", metavar="MODEL", help="a Hugging Face model directory, or 'demo'")
    group = parser.add_argument_group("processes")
    group.add_argument(
        "--frontends",
        type=checked(frontends),
        default=1,
        metavar="N",
        help="frontend processes (default: %(default)s)",
    )
    group.add_argument(
        "--ring", metavar="NAME", help="name of the ring between the planes (default: serve-PORT)"
    )
    group.add_argument(
        "--start-timeout",
        type=checked(seconds),
        default=START_TIMEOUT_S,
        metavar="SECONDS",
        help="give up when requests are not accepted after this long (default: %(default)g)",
    )
    group.add_argument(
        "--backend-restarts",
        type=checked(ordinal),
        default=BACKEND_RESTARTS,
        metavar="N",
        help="start a backend that ends again, so often in a row before it has served for a minute; clients"
        " get 503 meanwhile (default: %(default)s)",
    )
    add_flags(parser, "frontend", FrontendOptions, frontend.FLAGS)
    add_flags(parser, "backend", BackendOptions, backend.FLAGS)


def main(namespace: argparse.Namespace) -> int:
    directory = model_directory(namespace.model)
    options = BackendOptions(directory, **given(namespace, backend.FLAGS))
    described_model(options)  # refuse what cannot be served before anything is started
    values = defaults(FrontendOptions) | given(namespace, frontend.FLAGS)
    with reserve(values["host"], values["port"]) as reserved:
        port = reserved.getsockname()[1]
        return asyncio.run(Supervisor(plan(namespace, str(directory), port)).run())


def plan(namespace: argparse.Namespace, directory: str, port: int) -> Plan:
    ring = namespace.ring or f"serve-{port}"
    for_backend = given(namespace, backend.FLAGS)
    for_frontend = given(namespace, frontend.FLAGS) | {"port": port}
    complete = defaults(FrontendOptions) | for_frontend
    blink = [sys.executable, "-m", "blink"]
    debug = ["--debug"] if namespace.debug else []
    leases = f"--leases={namespace.frontends}"
    environment = dict(os.environ)
    if complete["api_key"]:
        environment[frontend.API_KEY_VARIABLE] = complete["api_key"]
    return Plan(
        backend=[
            *blink, "backend", directory, f"--ring={ring}", leases, *debug,
            *arguments(for_backend, backend.FLAGS),
        ],
        frontend=[
            *blink, "frontend", directory, f"--ring={ring}", *debug,
            *arguments(for_frontend, frontend.FLAGS),
        ],
        n_frontends=namespace.frontends,
        environment=environment,
        ring=ring_path(ring),
        host=complete["host"],
        port=port,
        backend_restarts=namespace.backend_restarts,
        url=f"{url(complete['host'], port)}/v1",
        start_timeout_s=namespace.start_timeout,
        drain_s=complete["drain_timeout_s"],
        frontend_end_s=complete["drain_timeout_s"] + SLACK_S,
        backend_end_s=DRAIN_S + STOP_S + SLACK_S,
    )  # fmt: skip

"""blink serve: both planes on this machine."""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import secrets
import socket
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from blink import backend, frontend
from blink.address import reserve, url
from blink.child import add_log_flags, open_log
from blink.config_file import add_config_flag
from blink.flags import add_flags, arguments, checked, count, defaults, given, ordinal, ring_name, seconds
from blink.model_directory import add_model_arguments, model_directory, public_name
from blink.supervisor import Supervisor
from blink.supervisor_options import SupervisorOptions
from gpu_backend.backend import DRAIN_S, STOP_S
from gpu_backend.options import BackendOptions, described_model
from nic_frontend.http.listener import listening_at
from nic_frontend.options import FrontendOptions
from nic_frontend.store.seal_key import VARIABLE as SEAL_KEY_VARIABLE
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
    add_model_arguments(parser)
    add_config_flag(parser)
    group = parser.add_argument_group("processes")
    group.add_argument(
        "--frontends",
        "--api-server-count",
        type=checked(frontends),
        default=1,
        metavar="N",
        help="frontend processes (default: %(default)s)",
    )
    group.add_argument(
        "--ring",
        metavar="NAME",
        type=checked(ring_name),
        help="name of the ring between the planes (default: serve-PORT, and with --uds one that follows"
        " from the socket's path)",
    )
    group.add_argument(
        "--start-timeout",
        type=checked(seconds),
        default=START_TIMEOUT_S,
        metavar="SECONDS",
        help="give up when requests are not accepted after this long (default: %(default)g)",
    )
    add_log_flags(group)
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
    reopen_log = open_log(namespace)
    directory = model_directory(namespace.model, namespace.revision)
    options = BackendOptions(directory, **given(namespace, backend.FLAGS))
    described_model(options)  # refuse what cannot be served before anything is started
    wanted = FrontendOptions(ring=Path(), model_dir=directory, **frontend.values(namespace))
    frontend.check(wanted)  # likewise
    with reserved_for(wanted) as reserved:
        where = (0, reserved) if wanted.uds else (reserved.getsockname()[1], None)
        supervisor = Supervisor(supervisor_options(namespace, str(directory), *where), reopen_log)
        return asyncio.run(supervisor.run())


def reserved_for(options: FrontendOptions) -> AbstractContextManager[socket.socket]:
    """The Unix socket that frontends accept from, or a socket that keeps their port from others."""
    if options.uds is not None:
        return listening_at(options.uds, options.send_buffer_bytes)
    return reserve(options.host, options.port)


def _of_socket(path: Path) -> str:
    """What names the ring of the server at this socket, and of none at a socket of that name elsewhere."""
    digest = hashlib.blake2b(os.fsencode(path.resolve()), digest_size=4).hexdigest()
    return f"{path.stem}-{digest}"


def supervisor_options(
    namespace: argparse.Namespace, directory: str, port: int, listener: socket.socket | None = None
) -> SupervisorOptions:
    """`listener`: the Unix socket that frontends accept from, in place of a port."""
    ring = namespace.ring or f"serve-{_of_socket(namespace.uds) if listener else port}"
    for_backend = public_name(namespace.model) | given(namespace, backend.FLAGS)
    for_frontend = given(namespace, frontend.FLAGS) | {"port": port}
    complete = defaults(FrontendOptions) | for_frontend
    blink = [sys.executable, "-m", "blink"]
    common = [f"--log-format={namespace.log_format}", *(["--debug"] if namespace.debug else [])]
    common += [f"--log-file={namespace.log_file}"] if namespace.log_file else []
    leases = f"--leases={namespace.frontends}"
    address = url(complete["host"], port, tls=complete["tls_cert"] is not None)
    environment = dict(os.environ)
    if complete["api_key"]:
        environment[frontend.API_KEY_VARIABLE] = complete["api_key"]
    # All frontends have one, those that are started later, too: any of them may be asked next.
    environment[SEAL_KEY_VARIABLE] = environment.get(SEAL_KEY_VARIABLE) or secrets.token_hex(32)
    return SupervisorOptions(
        backend=[
            *blink, "backend", directory, f"--ring={ring}", leases, *common,
            *arguments(for_backend, backend.FLAGS),
        ],
        frontend=[
            *blink, "frontend", directory, f"--ring={ring}", *common,
            *arguments(for_frontend, frontend.FLAGS),
            *([f"{frontend.LISTEN_FD}={listener.fileno()}"] if listener else []),
        ],
        n_frontends=namespace.frontends,
        environment=environment,
        ring=ring_path(ring),
        host=complete["host"],
        port=port,
        backend_restarts=namespace.backend_restarts,
        listener=listener,
        url=f"unix:{complete['uds']}" if listener else f"{address}/v1",
        start_timeout_s=namespace.start_timeout,
        drain_s=complete["drain_timeout_s"],
        frontend_end_s=complete["drain_timeout_s"] + SLACK_S,
        backend_end_s=DRAIN_S + STOP_S + SLACK_S,
    )  # fmt: skip

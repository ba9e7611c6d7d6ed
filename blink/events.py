"""blink events: what a running backend's prefix cache stores and removes, as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import socket
import sys
import time
from collections.abc import Callable

from blink.backend import RING
from blink.errors import CommandError
from blink.flags import add_flags
from gpu_backend.options import BackendOptions
from nic_frontend.observe.kv_events import BlockStored, KvEvent, KvEventReader
from nic_frontend.observe.public_blocks import PublicBlocks
from nic_frontend.service import open_local, why_not_serving
from nic_frontend.transport.base import Transport, read_header
from ringbuffer.region import ring_path
from ringbuffer.words import text

DESCRIPTION = """Prints a line of JSON for each block that the prefix cache of a running backend holds, and
then for each that it stores or removes; or publishes them over ZeroMQ, in vLLM's form, to routers that read
vLLM's. The backend must have been started with --kv-events. It has one reader at a time: the one that came
last."""

POLL_S = 0.01
LOOK_S = 1.0  # between looks at whether the backend lives, where nothing happens
POD_IP = "POD_IP"  # the variable that llm-d's pods have


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_flags(parser, "events", BackendOptions, (RING,))
    group = parser.add_argument_group("publishing")
    group.add_argument(
        "--publish",
        metavar="ENDPOINT",
        help="publish instead of printing, and leave out blocks with a salt: tcp://*:5557 binds, an address "
        "without a wildcard is connected to",
    )
    group.add_argument(
        "--replay", metavar="ENDPOINT", help="answer those who missed messages here, such as tcp://*:5558"
    )
    group.add_argument(
        "--topic", help=f"of the messages (default: kv@ADDRESS@MODEL, with ${POD_IP} or this host's address)"
    )


def line(event: KvEvent) -> str:
    fields = {"type": type(event).__name__, **dataclasses.asdict(event)}
    if isinstance(event, BlockStored) and event.cache_salt is not None:
        fields["cache_salt"] = event.cache_salt.hex()
    return json.dumps(fields)


def main(namespace: argparse.Namespace) -> int:
    if namespace.publish is None and (namespace.replay, namespace.topic) != (None, None):
        raise CommandError("--replay and --topic need --publish ENDPOINT")
    transport = open_local(ring_path(getattr(namespace, "ring", BackendOptions.ring)))
    try:
        if namespace.publish is None:
            follow(transport, print_lines, time.sleep)
        else:
            publish(transport, namespace)
    finally:
        transport.close()
    return 0


def print_lines(events: list[KvEvent]) -> None:
    for event in events:
        print(line(event))
    sys.stdout.flush()


def publish(transport: Transport, namespace: argparse.Namespace) -> None:
    from nic_frontend.observe.zmq_events import ZmqEvents  # not at the top: only this needs ZeroMQ

    header = read_header(transport)
    address = os.environ.get(POD_IP) or socket.gethostbyname(socket.gethostname())
    topic = namespace.topic
    if topic is None:
        topic = f"kv@{address}@{text(header['model_name'].tobytes())}"
    published = ZmqEvents(namespace.publish, topic, namespace.replay, int(header["page_size"]))
    blocks = PublicBlocks()
    print(f"blink events: publishing '{topic}' at {namespace.publish}", file=sys.stderr, flush=True)
    try:
        follow(transport, lambda events: published.publish(blocks.runs(events)), published.answer_replays)
    finally:
        published.close()


def follow(
    transport: Transport, take: Callable[[list[KvEvent]], None], wait: Callable[[float], None]
) -> None:
    """Hands events over until the backend ends. Raises CommandError when it has."""
    reader = KvEventReader(transport)
    looked = time.monotonic()
    while True:
        events = reader.poll()
        if events:
            take(events)
        elif time.monotonic() - looked > LOOK_S:
            if missing := why_not_serving(transport):
                raise CommandError(missing)
            looked = time.monotonic()
        else:
            wait(POLL_S)

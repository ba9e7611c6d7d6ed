"""blink events: what a running backend's prefix cache stores and removes, as JSON."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time

from blink.backend import RING
from blink.errors import CommandError
from blink.flags import add_flags
from gpu_backend.options import BackendOptions
from nic_frontend.kv_events import BlockStored, KvEvent, KvEventReader
from nic_frontend.service import open_local, why_not_serving
from ringbuffer.region import ring_path

DESCRIPTION = """Prints a line of JSON for each block that the prefix cache of a running backend holds, and
then for each that it stores or removes. The backend must have been started with --kv-events. It has one
reader at a time: the one that came last."""

POLL_S = 0.01
LOOK_S = 1.0  # between looks at whether the backend lives, where nothing happens


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    add_flags(parser, "events", BackendOptions, (RING,))


def line(event: KvEvent) -> str:
    fields = {"type": type(event).__name__, **dataclasses.asdict(event)}
    if isinstance(event, BlockStored) and event.cache_salt is not None:
        fields["cache_salt"] = event.cache_salt.hex()
    return json.dumps(fields)


def main(namespace: argparse.Namespace) -> int:
    transport = open_local(ring_path(getattr(namespace, "ring", BackendOptions.ring)))
    try:
        reader = KvEventReader(transport)
        looked = time.monotonic()
        while True:
            events = reader.poll()
            for event in events:
                print(line(event))
            if events:
                sys.stdout.flush()
            elif time.monotonic() - looked > LOOK_S:
                if missing := why_not_serving(transport):
                    raise CommandError(missing)
                looked = time.monotonic()
            else:
                time.sleep(POLL_S)
    finally:
        transport.close()

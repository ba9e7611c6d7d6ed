"""blink dynamo: a worker of NVIDIA Dynamo."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from blink.dynamo.installed import needing_dynamo
from blink.errors import CommandError

if TYPE_CHECKING:
    from dynamo.common.backend.worker import WorkerConfig

    from blink.dynamo.engine import BlinkEngine

DESCRIPTION = """Serves a model as a worker of NVIDIA Dynamo, for `python -m dynamo.frontend`. It starts a
backend of its own, or attaches to one that runs: on this host with --ring, on another with --connect. SIGTERM
takes the worker out of Dynamo's sight and lets open requests finish."""

# Dynamo's packages are imported where the command needs them: the modules that do not name them work without.


def configure(parser: argparse.ArgumentParser) -> None:
    from blink.dynamo import options

    parser.description = DESCRIPTION
    options.configure(parser)


def main(namespace: argparse.Namespace) -> int:
    with needing_dynamo():
        from dynamo.common.backend.run import run

        from blink.dynamo.engine import BlinkEngine

    engines: list[BlinkEngine] = []

    async def made(_: list[str] | None) -> tuple[BlinkEngine, WorkerConfig]:
        engine, config = BlinkEngine.chosen(namespace)
        engines.append(engine)
        return engine, config

    run(BlinkEngine, engine_factory=made)
    if failure := next((engine.failure for engine in engines if engine.failure), None):
        raise CommandError(failure)
    return 0

"""blink batch: a file of requests, and a file of their answers."""

from __future__ import annotations

import argparse
import queue
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from blink.batch import options
from blink.flags import given
from nic_frontend.options import FrontendOptions
from ringbuffer.messages import log_to_standard_error, say

if TYPE_CHECKING:
    from blink.batch.run import Batch
    from blink.llm.engine import Engine

DESCRIPTION = """Answers a file of requests in the form of OpenAI's Batch API: in each line a JSON object with
custom_id, method, url and body. Each answer is written as it ends. If it is stopped, the same command goes on
from there. The exit status is 0 when all requests were answered with success, and 1 when some were not."""

WHO = "blink batch"
FAILED = 1
TOLD_S = 10.0  # between two lines about how far it has come, where there is no terminal

News = str | None | Future[None]  # a warning; that one more is answered; the end

# What needs a frontend's packages is imported where the command runs: its help does not.


def configure(parser: argparse.ArgumentParser) -> None:
    parser.description = DESCRIPTION
    options.configure(parser)


def main(namespace: argparse.Namespace) -> int:
    from blink.batch.run import Batch

    wanted = FrontendOptions(ring=Path(), model_dir=Path(), **given(namespace, options.FRONTEND_FLAGS))
    batch = Batch(namespace.requests, namespace.answers, wanted.max_body_bytes)
    try:
        total, before = len(batch.index), batch.index.n_answered
        if before:
            say(WHO, f"{before} of {total} requests are answered already")
        if before < total and not _ask(namespace, batch):
            return 128 + signal.SIGINT
        failed = batch.answers.n_failed
        say(WHO, f"{total} requests are answered in {namespace.answers}, {failed} of them with errors")
        return FAILED if failed else 0
    finally:
        batch.close()


def _ask(namespace: argparse.Namespace, batch: Batch) -> bool:
    """Answers all that are not answered yet. False: it was interrupted."""
    from blink.llm.engine import Engine

    log_to_standard_error(WHO, "warning")
    with _interrupted_by_sigterm():
        try:
            engine = Engine(*options.chosen(namespace))
            try:
                _follow(engine, batch)
            finally:
                engine.close()
        except KeyboardInterrupt:
            done, total = batch.index.n_answered, len(batch.index)
            say(WHO, f"stopped with {done} of {total} requests answered: the same command goes on from here")
            return False
    return True


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """As by Ctrl-C: with an end in order."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _follow(engine: Engine, batch: Batch) -> None:
    """Until all lines are answered. Raises CommandError when they cannot be."""
    from tqdm import tqdm

    news: queue.SimpleQueue[News] = queue.SimpleQueue()
    work = engine.start(batch.run(engine.service, lambda: engine.failure, news.put))
    work.add_done_callback(news.put)
    told = time.monotonic()
    with tqdm(
        total=len(batch.index), initial=batch.index.n_answered, desc=WHO, unit="request", file=sys.stderr,
        disable=not sys.stderr.isatty(), dynamic_ncols=True,
    ) as bar:  # fmt: skip
        while not isinstance(one := news.get(), Future):
            if one is not None:
                say(WHO, one, "warning")
                continue
            bar.update(1)
            if bar.disable and time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                say(WHO, f"{batch.index.n_answered} of {len(batch.index)} requests answered")
    work.result()

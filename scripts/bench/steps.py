#!/usr/bin/env python3
"""Time between steps, and the price of a step, against the same graphs replayed by the host.

    python scripts/bench/steps.py --model llama-3-8b --batch 1 8 32 --steps 2000
    python scripts/bench/steps.py --model models/demo --batch 8 --soak 100000
    python scripts/bench/steps.py --model models/demo --batch 8 --kv-memory 6GiB --cached-pages 100000

A model is a directory, or a name of scripts/bench/shapes with random weights of that shape. For each batch
the scheduler decodes that many rows at about --context tokens; from its own counters come the period of a
step and the gap from a step's completion to the next one's first instruction. Then the scheduler ends and
the host replays the very same executables back to back in one stream: what the GPU needs without any
scheduler. The period is compared over the last 120 steps (one launch window, its relaunch included), which
ran at the context that the replay sees. The longest turn of the scheduler's loop is that since its start, so
it may be one that planned the prompts.

With --cached-pages the prefix cache is first filled with so many pages, and the times of its look-ups and
insertions are printed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from blink.flags import checked  # noqa: E402
from blink.sizes import parse_bytes  # noqa: E402
from gpu_backend.abi import STEP_SETS  # noqa: E402
from gpu_backend.backend import Backend  # noqa: E402
from gpu_backend.devices.select import ENGINES  # noqa: E402
from gpu_backend.models.quantization import ROUNDINGS  # noqa: E402
from gpu_backend.options import BackendOptions  # noqa: E402
from gpu_backend.scheduler_abi import GAP_BIN_NS  # noqa: E402
from ringbuffer.abi import Control, RequestFlags  # noqa: E402
from ringbuffer.client import RingClient, Stream  # noqa: E402

REPLAYS = 120
REPEATED_PROMPTS = 64
TAIL_STEPS = 120  # at the end, whose period the replay is compared with: the context has hardly grown


def model_directory(name: str, scratch: Path) -> tuple[Path, bool]:
    """The directory to serve, and whether its weights are random."""
    shape = ROOT / "scripts" / "bench" / "shapes" / f"{name}.json"
    if not shape.exists():
        return Path(name), False
    target = scratch / name
    target.mkdir(exist_ok=True)
    shutil.copy(shape, target / "config.json")
    shutil.copy(ROOT / "models" / "demo" / "tokenizer.json", target)
    return target, True


def submit(client: RingClient, backend: Backend, batch: int, context: int, steps: int) -> list[Stream]:
    rng = np.random.default_rng(1)
    vocab = int(client.region.header["vocab_size"][0])
    longest = backend.limits.max_context
    first = max(1, min(context - steps // 2, longest - steps - 64))
    return [
        client.submit(rng.integers(0, vocab, first), longest, flags=RequestFlags.IGNORE_EOS)
        for _ in range(batch)
    ]


def line_of(row: dict[str, Any]) -> str:
    """A row of results to be read by people."""
    return " ".join(f"{k}={v:.2f}" if isinstance(v, float) else f"{k}={v}" for k, v in row.items())


def percentile(histogram: Any, share: float) -> float:
    """Microseconds: the upper edge of the bin where the share is reached."""
    total = np.cumsum(histogram)
    return float((np.searchsorted(total, share * total[-1]) + 1) * GAP_BIN_NS / 1e3)


class Snapshot:
    """The scheduler's counters at one moment, and when its last step completed by the GPU's clock."""

    def __init__(self, backend: Backend) -> None:
        state = backend.setup.state()
        while (again := backend.setup.state())["last_done_ns"] != state["last_done_ns"]:
            state = again  # a step ended between the copies of its parts
        self.gaps = state["gap_histogram"]
        self.done_ns, self.committed = int(state["last_done_ns"]), int(state["stats"]["steps"])
        self.stats, self.times = backend.ring.stats(), backend.setup.shape_times()


def wait_for_steps(backend: Backend, steps: int, batch: int) -> None:
    """Until the scheduler has decoded so many steps, while all rows of the batch run."""
    while (stats := backend.ring.stats())["decode_steps"] < steps:
        assert backend.fault() is None, backend.fault()
        assert stats["running"] == batch, "rows ended before the measurement did: lower --steps"
        time.sleep(0.0005)


def fill_cache(backend: Backend, pages: int) -> dict[str, Any]:
    """Fills the prefix cache with `pages` pages, by prompts as long as a context allows. Then the last
    prompts are asked once more: look-ups that find the whole prompt, by the scheduler's own clock."""
    client, rng = RingClient(backend.ring), np.random.default_rng(3)
    vocab = int(client.region.header["vocab_size"][0])
    page = int(client.region.header["page_size"][0])
    length = (backend.limits.max_context - 2) // page * page + 1
    prompts: list[Any] = []
    while backend.ring.stats()["cached_pages"] < pages:
        prompts = [rng.integers(0, vocab, length) for _ in range(REPEATED_PROMPTS)]
        client.wait([client.submit(prompt, 1) for prompt in prompts], 60)
    before = backend.ring.stats()
    client.wait([client.submit(prompt, 1) for prompt in prompts], 60)
    after = backend.ring.stats()
    client.close()
    ran = {name: after[name] - before[name] for name in before}
    return {
        "cached_pages": after["cached_pages"],
        "prompt_tokens": length,
        "hit_share": ran["prefix_hits"] / ran["prefix_queries"],
        "lookup_us": ran["prefix_lookup_ns"] / ran["prefix_lookups"] / 1e3,
        "insertion_us_a_page": before["prefix_insertion_ns"] / before["prefix_insertions"] / 1e3,
    }


def measure(backend: Backend, batch: int, context: int, steps: int) -> dict[str, Any]:
    client = RingClient(backend.ring)
    streams = submit(client, backend, batch, context, steps)
    while not all(stream.tokens for stream in streams):
        for stream in streams:
            client.poll(stream)
        time.sleep(0.001)
    time.sleep(0.05)
    first = Snapshot(backend)
    wait_for_steps(backend, first.stats["decode_steps"] + steps - TAIL_STEPS, batch)
    tail = Snapshot(backend)
    wait_for_steps(backend, first.stats["decode_steps"] + steps, batch)
    last = Snapshot(backend)
    backend.ring.set_control(Control.STOP)
    assert backend.scheduler.wait(10)
    gaps = last.gaps - first.gaps
    shape = int(np.argmax(last.times["steps"] - tail.times["steps"]))
    ran = last.times[shape]["steps"] - tail.times[shape]["steps"]
    row = {
        "batch": batch,
        "steps": last.stats["decode_steps"] - first.stats["decode_steps"],
        "gap_median_us": percentile(gaps, 0.5),
        "gap_p99_us": percentile(gaps, 0.99),
        "gaps_over_4us": int(gaps[4000 // GAP_BIN_NS :].sum()),
        "refused_launches": last.stats["refused_launches"] - first.stats["refused_launches"],
        "relaunches": last.stats["relaunches"] - first.stats["relaunches"],
        "longest_turn_us": last.stats["longest_turn_ns"] / 1e3,
        "run_us": float((last.times[shape]["total_ns"] - tail.times[shape]["total_ns"]) / ran / 1e3),
        "period_us": (last.done_ns - tail.done_ns) / (last.committed - tail.committed) / 1e3,
        "replay_us": replay_us(backend, shape),
    }
    row["period_over_replay"] = row["period_us"] / row["replay_us"]
    client.close()
    return row


def replay_us(backend: Backend, shape: int) -> float:
    """Mean period of the shape's executables, launched by the host back to back in one stream."""
    engine: Any = backend.device.engine  # type: ignore[attr-defined]
    ids = [int(step_set["id"]) for step_set in heads(backend)]
    order = sorted(range(STEP_SETS), key=lambda i: ids[i])
    for timed in (False, True):
        start = time.monotonic()
        for i in range(REPLAYS):
            engine.enqueue(shape, order[i % STEP_SETS])
        engine.synchronize()
        if timed:
            return (time.monotonic() - start) / REPLAYS * 1e6
    raise AssertionError


def heads(backend: Backend) -> list[Any]:
    from gpu_backend.abi import StepHead

    device: Any = backend.device
    return [
        np.frombuffer(device.memory.read(int(s["head"]), StepHead.itemsize), StepHead)[0]
        for s in device.batch.step_sets
    ]


def soak(backend: Backend, batch: int, steps: int) -> dict[str, Any]:
    """Decode steps without end: new requests take the places of finished ones."""
    client = RingClient(backend.ring)
    rng, vocab = np.random.default_rng(2), int(client.region.header["vocab_size"][0])

    def one() -> Stream:
        length = int(rng.integers(1, 40))
        longest = int(rng.integers(200, backend.limits.max_context - 64))
        return client.submit(rng.integers(0, vocab, length), longest, flags=RequestFlags.IGNORE_EOS)

    start, streams, tokens = time.monotonic(), [one() for _ in range(batch)], 0
    while backend.ring.stats()["decode_steps"] < steps:
        for i, stream in enumerate(streams):
            tokens += client.poll(stream)
            if stream.done:
                streams[i] = one()
        time.sleep(0.0005)
    seconds = time.monotonic() - start
    for stream in streams:
        client.cancel(stream)
    client.wait(streams, 10)
    stats = backend.ring.stats()
    fault = backend.fault()
    client.close()
    names = ("decode_steps", "prefill_steps", "launches", "refused_launches", "relaunches", "tokens")
    return {"batch": batch, "seconds": seconds, "fault": fault, **{name: stats[name] for name in names}}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--quantization", choices=tuple(ROUNDINGS), help="weights in fp8, by row or block, or in four bits"
    )
    parser.add_argument("--engine", choices=tuple(ENGINES), default="native", help="(default: native)")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--context", type=int, default=1024, help="tokens a row holds at half time")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--soak", type=int, default=0, help="decode steps of a soak run instead")
    parser.add_argument(
        "--kv-memory",
        type=checked(parse_bytes),
        metavar="SIZE",
        help="of the KV cache (default: see blink backend)",
    )
    parser.add_argument(
        "--cached-pages", type=int, default=0, help="pages of the prefix cache, filled before"
    )
    parser.add_argument("--commit", default="unknown", help="recorded with the results")
    parser.add_argument("--out", type=Path, help="a JSON file")
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        directory, random = model_directory(options.model, Path(scratch))
        for batch in options.batch:
            backend = Backend(
                BackendOptions(
                    directory,
                    f"bench-{batch}",
                    device="gpu",
                    random_weights=random,
                    quantization=options.quantization,
                    engine=options.engine,
                    max_batch=batch,
                    kv_memory=options.kv_memory,
                )
            )
            backend.start()
            machine = backend.device.name
            filled = fill_cache(backend, options.cached_pages) if options.cached_pages else {}
            row = (
                soak(backend, batch, options.soak)
                if options.soak
                else measure(backend, batch, options.context, options.steps)
            )
            row |= filled | {"total_pages": backend.limits.total_pages}
            rows.append(row)
            print(line_of(row), flush=True)
            assert backend.stop(0.0)
    if options.out:
        driver = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "--id=0"],
            capture_output=True,
            text=True,
        ).stdout.strip()
        record = {
            "what": "soak" if options.soak else "steps",
            "model": options.model,
            "engine": options.engine,
            "date": datetime.date.today().isoformat(),
            "commit": options.commit,
            "machine": machine,
            "driver": driver,
            "rows": rows,
        }
        options.out.write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

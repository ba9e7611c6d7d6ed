#!/usr/bin/env python3
"""What logits processors cost the sampler: rows that ask for one, against rows that do not.

    scripts/bench/processors.py --rows 1 8 64 128 --vocab 128256

`more` is microseconds a step beyond those of rows that ask for nothing. "no processors" is the sampler of a
server without --logits-processor. "called for all" is a processor that changes only recent tokens' logits,
and does not say so.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.sampler_step import SAMPLING, Result, SamplerStep, measure_all  # noqa: E402

from gpu_backend.cuda.driver import Device  # noqa: E402
from gpu_backend.processors.loaded import load  # noqa: E402
from gpu_backend.processors.source import parse_sources  # noqa: E402
from ringbuffer.extents import NO_CONTROLS, controls  # noqa: E402

NAMES = ("no_repeat", "no_repeated_pair", "watermark")
ALL = "no_repeat, called for all"


def measured(device: Device, rows: int, vocab: int, hidden: int) -> list[Result]:
    results: list[Result] = []
    named = [f"blink.example_processors:{name}" for name in NAMES] + [
        "all=blink.example_processors:no_repeat"
    ]
    processors = load(parse_sources(",".join(named)), vocab, device.capability)
    asked = {"nothing": NO_CONTROLS}
    asked |= {name: controls(vocab, processors=[(i, [])]) for i, name in enumerate((*NAMES, ALL))}
    without = SamplerStep(device, rows, vocab, hidden=hidden)
    marked = processors.only_recent & ~(1 << len(NAMES))
    step = SamplerStep(device, rows, vocab, 0, hidden, processors.device_codes, marked)
    for one in (without, step):
        one.compile()
    for name, sampling in SAMPLING.items():
        plain = without.measure(without.params(**sampling))
        results.append(Result(rows, name, "no processors", plain, 0.0))
        for what, of in asked.items():
            params = step.params(**sampling, n_processors=of.n_processors)
            for row in range(rows):
                step.write("controls", of.words, 4 * row * int(step.tables["control_words"]))
            us = step.measure(params)
            results.append(Result(rows, name, what, us, us - plain))
    for one in (step, without):
        one.close()
    return results


if __name__ == "__main__":
    measure_all(__doc__, "asked of every row", measured)

#!/usr/bin/env python3
"""What log-probabilities and changes of logits cost the sampler: rows that ask, against rows that do not.

    scripts/bench/logprobs.py --rows 1 8 64 128 --vocab 151936

`more` is microseconds a step beyond those of rows that ask for nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.sampler_step import SAMPLING, Result, SamplerStep, measure_all  # noqa: E402

from gpu_backend.cuda.driver import Device  # noqa: E402
from ringbuffer.abi import MAX_BIASES, MAX_LOGPROBS  # noqa: E402
from ringbuffer.extents import NO_CONTROLS, Controls, controls  # noqa: E402


def asked(vocab: int) -> dict[str, tuple[int, Controls]]:
    """By name, words of log-probabilities and controls of every row."""
    rng = np.random.default_rng(2)
    tokens = rng.permutation(vocab)
    biases = dict.fromkeys(tokens[:MAX_BIASES].tolist(), 1.0)
    bans = [[int(token)] for token in tokens[:100]]
    return {
        "nothing": (0, NO_CONTROLS),
        "own logprob": (1, NO_CONTROLS),
        "top 5": (6, NO_CONTROLS),
        f"top {MAX_LOGPROBS}": (1 + MAX_LOGPROBS, NO_CONTROLS),
        "10 biases": (0, controls(vocab, biases=dict(list(biases.items())[:10]))),
        f"{MAX_BIASES} biases": (0, controls(vocab, biases=biases)),
        "mask": (0, controls(vocab, allowed=tokens[: vocab // 2])),
        "100 bad words": (0, controls(vocab, bans=bans)),
    }


def measured(device: Device, rows: int, vocab: int, hidden: int) -> list[Result]:
    step = SamplerStep(device, rows, vocab, hidden=hidden)
    step.compile()
    results: list[Result] = []
    for name, sampling in SAMPLING.items():
        plain = 0.0
        for what, (words, of) in asked(vocab).items():
            params = step.params(**sampling, logprob_words=words)
            params["n_biases"], params["ban_words"], params["flags"] = of.n_biases, of.ban_words, of.flags
            for row in range(rows):
                step.write("controls", of.words, 4 * row * int(step.tables["control_words"]))
            us = step.measure(params)
            plain = plain or us
            results.append(Result(rows, name, what, us, us - plain))
    step.close()
    return results


if __name__ == "__main__":
    measure_all(__doc__, "asked of every row", measured)

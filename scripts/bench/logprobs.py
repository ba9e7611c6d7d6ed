#!/usr/bin/env python3
"""What log-probabilities and changes of logits cost the sampler: rows that ask, against rows that do not.

    scripts/bench/logprobs.py --rows 1 8 64 128 --vocab 151936

`more` is microseconds a step beyond those of rows that ask for nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from bench.sampler_step import SamplerStep  # noqa: E402

from gpu_backend.cuda.driver import Device  # noqa: E402
from ringbuffer.abi import MAX_BIASES, MAX_LOGPROBS  # noqa: E402
from ringbuffer.extents import NO_CONTROLS, Controls, controls  # noqa: E402

SAMPLING = {"greedy": {"temperature": 0.0}, "drawn": {"temperature": 0.8, "top_k": 50, "top_p": 0.95}}


@dataclass(frozen=True)
class Result:
    """Microseconds of the sampler."""

    rows: int
    sampling: str
    asked: str
    us: float
    more: float


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


def measured(device: Device, rows: int, vocab: int) -> list[Result]:
    step = SamplerStep(device, rows, vocab)
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


def report(results: list[Result]) -> str:
    lines = ["| rows | sampling | asked of every row | us | more |", "|---|---|---|---|---|"]
    lines += [f"| {r.rows} | {r.sampling} | {r.asked} | {r.us:.1f} | {r.more:+.1f} |" for r in results]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 64, 128])
    parser.add_argument("--vocab", type=int, default=151_936)
    parser.add_argument("--json", type=Path, help="write the results there, too")
    options = parser.parse_args()
    device = Device()
    results = [result for rows in options.rows for result in measured(device, rows, options.vocab)]
    device.close()
    print(report(results))
    if options.json:
        options.json.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

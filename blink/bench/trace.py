"""Workloads: how long prompts and answers are, and when they arrive. A seed decides all of it (B1)."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

ARRIVALS, INPUTS, OUTPUTS = 1, 2, 3  # each has its own random stream: a change of one leaves the others
MAX_RESCALES = 100
LENGTHS = re.compile(r"(\d+)(?::([0-9.]+):(\d+)-(\d+))?")
UNIFORM = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True)
class Lengths:
    """Lengths in tokens: lognormal with the mean `mean` and sigma `sigma`, within [low, high]; or fixed,
    sigma 0; or uniform, where every length from low to high is as likely.

    The mean 1019 of inputs and 463 of outputs is that of the Blink paper's ShareGPT v3 (section 6.1); the
    sigmas and bounds are this project's assumption, so every result carries its histogram.
    """

    mean: int
    sigma: float
    low: int
    high: int
    is_uniform: bool = False

    def sample(self, n: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """(n,) lengths. Bounds move the mean, so the sample is scaled until its mean is `mean` again."""
        if self.is_uniform:
            return rng.integers(self.low, self.high + 1, n)
        raw = rng.lognormal(math.log(self.mean) - self.sigma**2 / 2, self.sigma, n)
        bounded = np.clip(raw, self.low, self.high)
        for _ in range(MAX_RESCALES):
            if abs(bounded.mean() - self.mean) < 0.1:
                break
            raw = raw * self.mean / bounded.mean()
            bounded = np.clip(raw, self.low, self.high)
        return np.rint(bounded).astype(np.int64)

    def __str__(self) -> str:
        if self.is_uniform:
            return f"{self.low}-{self.high}"
        return str(self.mean) if self.sigma == 0 else f"{self.mean}:{self.sigma:g}:{self.low}-{self.high}"


def fixed(tokens: int) -> Lengths:
    return Lengths(tokens, 0.0, tokens, tokens)


def uniform(low: int, high: int) -> Lengths:
    return Lengths((low + high) // 2, 0.0, low, high, is_uniform=True)


CHAT_INPUT = Lengths(1019, 1.0, 16, 3072)
CHAT_OUTPUT = Lengths(463, 0.8, 8, 1024)


def lengths(text: str) -> Lengths:
    """Of "1024", of "LOW-HIGH", or of "MEAN:SIGMA:LOW-HIGH". Raises ValueError."""
    if both := UNIFORM.fullmatch(text):
        result = uniform(int(both[1]), int(both[2]))
    elif match := LENGTHS.fullmatch(text):
        mean = int(match[1])
        result = fixed(mean)
        if match[2] is not None:
            result = Lengths(mean, float(match[2]), int(match[3]), int(match[4]))
    else:
        raise ValueError(
            f"'{text}' is no length; write TOKENS, LOW-HIGH for a uniform one, or MEAN:SIGMA:LOW-HIGH for a "
            "lognormal one"
        )
    if not 1 <= result.low <= result.mean <= result.high:
        raise ValueError(f"'{text}': 1 <= low <= mean <= high does not hold")
    return result


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival: times (n,) f64 in seconds, lengths (n,) int64 in tokens."""

    arrivals_s: NDArray[np.float64]
    inputs: NDArray[np.int64]
    outputs: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.inputs)

    def digest(self) -> str:
        """Names the trace: two results with the same digest had the same requests."""
        return hashlib.sha256(json.dumps(self.to_json()).encode()).hexdigest()[:16]

    def to_json(self) -> dict[str, Any]:
        return {
            "arrivals_s": [round(time, 6) for time in self.arrivals_s.tolist()],
            "input_tokens": self.inputs.tolist(),
            "output_tokens": self.outputs.tolist(),
        }

    def summary(self) -> dict[str, Any]:
        return {
            "requests": len(self),
            "digest": self.digest(),
            "input_tokens": histogram(self.inputs),
            "output_tokens": histogram(self.outputs),
        }


def histogram(values: NDArray[np.int64]) -> dict[str, Any]:
    counts, edges = np.histogram(values, bins=32)
    return {
        "mean": float(values.mean()),
        "min": int(values.min()),
        "max": int(values.max()),
        "edges": [round(edge, 2) for edge in edges.tolist()],
        "counts": counts.tolist(),
    }


def poisson(rate: float, duration_s: float, seed: int, inputs: Lengths, outputs: Lengths) -> Trace:
    """Independent arrivals at `rate` a second until `duration_s`; at least one."""
    rng = np.random.default_rng([seed, ARRIVALS])
    expected = rate * duration_s
    gaps = rng.exponential(1.0, int(expected + 10 * math.sqrt(expected) + 20))
    times = np.cumsum(gaps) / rate
    n = max(1, int(np.searchsorted(times, duration_s)))
    return Trace(times[:n], *_lengths(n, seed, inputs, outputs))


def endless(n: int, seed: int, inputs: Lengths, outputs: Lengths) -> Trace:
    """For a closed loop, which takes request i modulo n when a stream is free: no arrival times."""
    return Trace(np.zeros(n), *_lengths(n, seed, inputs, outputs))


def _lengths(
    n: int, seed: int, inputs: Lengths, outputs: Lengths
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return (
        inputs.sample(n, np.random.default_rng([seed, INPUTS])),
        outputs.sample(n, np.random.default_rng([seed, OUTPUTS])),
    )


def load_label(rate: float | None, streams: int | None) -> str:
    """Names a load in results and on terminals: `rate` requests/s, or else `streams` open requests."""
    return f"{rate:g} req/s" if rate is not None else f"{streams} streams"
